"""``python -m release.versions [PYTHON:TORCH...]``: runs the tests with other releases of torch.

Each pair, such as 3.12:2.13.0, has its own environment and a CPU build of the last commit.
release/versions.json keeps the results of `make test`; `python -m docs.tables` prints them.
"""

import json
from datetime import date
from time import perf_counter

import click
from packaging.version import Version

from bench import junit
from bench.environment import commit
from release.environments import PAIRS, ROOT, last_commit, make, with_torch

RECORD = ROOT / "release" / "versions.json"
KEPT = ("passed", "failure", "error", "skipped", "failures", "skipped because")


def load() -> list[dict]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


def test(pair: str) -> dict[str, object]:
    environment = with_torch(pair)
    python, torch = pair.split(":")
    # Read now, as another commit may follow during the tests. Uncommitted changes are not tested.
    start, tested = perf_counter(), commit().removesuffix("-dirty")
    with last_commit() as folder:
        report = folder / "tests.xml"
        # The report has the failures. If it is missing, nothing was tested.
        make(
            "test", environment, folder, FORCE_ONLY_CPU="1", PYTEST_ADDOPTS=f"--junit-xml={report}"
        )
        found = junit.read(report)
    return {
        "python": python,
        "torch": torch,
        "date": date.today().isoformat(),
        "commit": tested,
        "seconds": round(perf_counter() - start),
        **{key: found[key] for key in KEPT},
    }


@click.command(help=__doc__)
@click.argument("pairs", nargs=-1)
def main(pairs: tuple[str, ...]) -> None:
    for pair in pairs or PAIRS[::2]:  # one Python for each torch
        tested = test(pair)
        others = [record for record in load() if record["torch"] != tested["torch"]]
        records = sorted([*others, tested], key=lambda record: Version(record["torch"]))
        RECORD.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m release.versions")
