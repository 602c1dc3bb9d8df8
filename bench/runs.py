"""Runs of the benchmark as files.

A run is a dictionary: ``machine`` says where it was made, ``results`` has a record for each side of
each cell that was timed. It may lie in one JSON file, as ``make gpu`` writes it. A run that is kept
is two files: a CSV with a line for each record, and a JSON with the rest of it beside.
"""

import csv
import io
import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"  # the latest run of each machine
Run = dict[str, object]

# The columns. us is the median of a call, low and high are the quartiles; roof is the % of the rate
# of a plain copy of memory.
FIELDS = {
    "op": str,
    "pass": str,
    "gate": str,
    "dtype": str,
    "elements": int,
    "side": str,
    "us": float,
    "low": float,
    "high": float,
    "us in a graph": float,
    "roof": float,
    "peak bytes": int,
    "saved bytes": int,
}
TOO_LONG = {"results", "stages"}  # for the JSON of a run that is kept


def replace(path: Path, text: str) -> None:
    """By way of a file with another name, so that whoever is killed leaves no half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    os.replace(new, path)


def save(run: Run, path: Path) -> None:
    """As one JSON file."""
    replace(path, json.dumps(run, indent=1) + "\n")


def slug(machine: dict[str, object]) -> str:
    """The name of its files."""
    threads = f" {machine['threads']} threads" if "threads" in machine else ""
    return re.sub(r"[^a-z0-9]+", "-", f"{machine['device']}{threads}".lower()).strip("-")


def keep(run: Run, folder: Path = RESULTS) -> Path:
    """In place of the run that was kept of the same machine."""
    path = folder / f"{slug(run['machine'])}.json"
    text = io.StringIO()
    table = csv.DictWriter(text, FIELDS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(run["results"])
    replace(path.with_suffix(".csv"), text.getvalue())
    save({name: value for name, value in run.items() if name not in TOO_LONG}, path)
    return path


def load(path: Path) -> Run:
    """Of either kind, by its JSON file."""
    run = json.loads(path.read_text())
    if isinstance(run, dict) and path.with_suffix(".csv").exists():
        with path.with_suffix(".csv").open(newline="") as file:
            run["results"] = [
                {name: FIELDS[name](text) if text else None for name, text in row.items()}
                for row in csv.DictReader(file)
            ]
    return run


def load_all(folder: Path = RESULTS) -> list[Run]:
    return [load(path) for path in sorted(folder.glob("*.json"))]
