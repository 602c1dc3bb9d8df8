"""``python -m release.hub``: writes a repository of kernels for the Hugging Face Hub.

It has the sources as the Hub's builder takes them, and in build/ the library that is installed
here, which `kernels.get_kernel` loads.
"""

import shutil
from pathlib import Path

import click

from release.environments import ROOT
from release.hub import sources, variant


@click.command(help=__doc__)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "build" / "hub",
    show_default=True,
    help="The folder, which is replaced.",
)
def main(output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    sources.write(output)
    build = output / "build" / variant.name()
    variant.write(build)
    print(build)


if __name__ == "__main__":
    main(prog_name="python -m release.hub")
