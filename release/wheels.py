"""``python -m release.wheels [PYTHON:TORCH...]``: builds the wheels of a release, and its sdist.

Each pair, such as 3.12:2.13.0, has its own environment and its own copy of the last commit.
"""

from pathlib import Path

import click

from release.environments import PAIRS, last_commit, make, output_option, with_torch


@click.command(help=__doc__)
@click.argument("pairs", nargs=-1)
@output_option("wheels")
def main(pairs: tuple[str, ...], output: Path) -> None:
    for pair in pairs or PAIRS:
        with last_commit() as folder:
            if make("wheel", with_torch(pair), folder, OUTPUT=str(output.resolve())):
                raise click.ClickException(f"{pair} was not built")


if __name__ == "__main__":
    main(prog_name="python -m release.wheels")
