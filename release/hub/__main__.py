"""``python -m release.hub``: writes a kernel repository for the Hugging Face Hub.

It has the sources as the Hub's builder takes them, and in build/ the installed library, which
`kernels.get_kernel` loads.
"""

import shutil
from pathlib import Path

import click

from release.environments import output_option
from release.hub import sources, variant


@click.command(help=__doc__)
@output_option("hub", help="The folder, which is replaced.")
def main(output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    sources.write(output)
    build = output / "build" / variant.name()
    variant.write(build)
    print(build)


if __name__ == "__main__":
    main(prog_name="python -m release.hub")
