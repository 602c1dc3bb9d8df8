"""Runs of the benchmark as files.

A run is a dictionary: ``machine`` says where it was made, ``results`` has a record for each side of
each cell that was timed. It may lie in one JSON file, as ``make gpu`` writes it, with ``tables`` of
other rows by the names of their files. A run that is kept is two files: a CSV with a line for each
cell and columns for each side, and a JSON with the rest; its tables are a CSV each.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"  # the latest run of each machine
Run = dict[str, object]

# Of a record; the names before "side" tell the cell. us is the median of a call, low and high are
# the quartiles; in a graph it is without the host's part, which is "host us"; roof is the % of the
# rate of a plain copy of memory; ULP is the largest error, in units of the last place.
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
    "host us": float,
    "roof": float,
    "ULP": float,
    "peak bytes": int,
    "saved bytes": int,
}
CELL = list(FIELDS).index("side")
MEASURED = tuple(FIELDS)[CELL + 1 :]
TOO_LONG = {"results", "stages", "tables"}  # for the JSON of a run that is kept


def replace(path: Path, text: str) -> None:
    """Writes another file and renames it, so that a killed process leaves no half of one."""
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


def cells(records: list[dict]) -> Iterator[dict[str, object]]:
    """The lines of a CSV: a record's side goes before the names of what was measured of it, as in
    "eager us". A cell that was measured twice has two lines."""
    row: dict[str, object] = {}
    for record in records:
        names = list(record)
        split = names.index("side")
        side = record["side"]
        cell = {name: record[name] for name in names[:split]}
        values = {f"{side} {name}": record[name] for name in names[split + 1 :]}
        if row.items() >= cell.items() and not row.keys() & values.keys():
            row |= values
            continue
        if row:
            yield row
        row = cell | values
    if row:
        yield row


def write_csv(rows: list[dict], path: Path) -> None:
    """Without the columns that are empty."""
    filled = dict.fromkeys(name for row in rows for name in row if row[name] is not None)
    text = io.StringIO()
    table = csv.DictWriter(text, filled, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    replace(path, text.getvalue())


def read_csv(path: Path) -> Iterator[dict[str, object]]:
    """The records of a run."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            sides = dict.fromkeys(name.partition(" ")[0] for name in islice(row, CELL, None))
            cell = {name: FIELDS[name](row[name]) for name in islice(row, CELL)}
            for side in sides:
                if row[f"{side} us"]:
                    texts = {name: row.get(f"{side} {name}") for name in MEASURED}
                    values = {n: FIELDS[n](text) if text else None for n, text in texts.items()}
                    yield cell | {"side": side} | values


def read_tables(folder: Path, pattern: str = "*.csv") -> dict[str, list[dict[str, str]]]:
    """Of CSV files, by their names."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        with path.open(newline="") as file:
            found[path.stem] = list(csv.DictReader(file))
    return found


def keep(run: Run, folder: Path = RESULTS) -> Path:
    """In place of the run that was kept of the same machine."""
    path = folder / f"{slug(run['machine'])}.json"
    records = [{name: record.get(name) for name in FIELDS} for record in run["results"]]
    write_csv(list(cells(records)), path.with_suffix(".csv"))
    for name, rows in run.get("tables", {}).items():
        write_csv(rows, folder / f"{name}.csv")
    save({name: value for name, value in run.items() if name not in TOO_LONG}, path)
    return path


def load(path: Path) -> Run:
    """Of either kind, by its JSON file."""
    run = json.loads(path.read_text())
    if isinstance(run, dict) and path.with_suffix(".csv").exists():
        run["results"] = list(read_csv(path.with_suffix(".csv")))
    return run


def load_all(folder: Path = RESULTS) -> list[Run]:
    return [load(path) for path in sorted(folder.glob("*.json"))]
