"""The tables of the docs: as ``python -m docs.tables`` writes them, and what they are made of."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import runs
from bench.markdown import two_digits
from docs import families, tables
from gelu_kernels.operators.table import PUBLIC

MACHINE = {"device": "A (fast) CPU @ 3 GHz", "threads": 2, "versions": {"torch": "2.13.0"}}
MACHINE |= {"date": "2026-11-22"}
KEPT = "a-fast-cpu-3-ghz-2-threads"


def record(side: str, us: float, elements: int = 2**20, **changed) -> dict:
    names = {"op": "gelu", "pass": "forward", "gate": "normal", "dtype": "float32"}
    times = {"us": us, "low": us - 0.5, "high": us + 0.25, "us in a graph": None, "roof": 90.0}
    others = {"elements": elements, "side": side, "peak bytes": 4, "saved bytes": 0}
    others |= {"host us": None, "ULP": None}
    return names | times | others | changed


def test_tables_are_up_to_date() -> None:
    texts = {page.name: page.read_text() for page in tables.pages()}
    old = [name for name, text in texts.items() if tables.with_tables(text) != text]
    assert not old, "python -m docs.tables writes them anew"


def test_every_table_stands_in_a_page() -> None:
    shown = [
        name for page in tables.pages() for _, name, _ in tables.MARKED.findall(page.read_text())
    ]
    assert sorted(shown) == sorted(tables.TABLES)


def test_a_run_is_kept(tmp_path: Path) -> None:
    """Without loss, though one side may be missing or be there twice."""
    results = [record("cuda", 4), record("eager", 3), record("triton", 5), record("eager", 6)]
    results += [record("cuda", 2, op="geglu"), record("eager", 7, elements=16)]
    run = {"machine": MACHINE, "results": results}
    runs.keep({**run, "results": [record("eager", 1)]}, tmp_path)
    path = runs.keep({**run, "stages": {"build": {}}}, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {f"{KEPT}.csv", f"{KEPT}.json"}
    assert runs.load(path) == run
    assert runs.load_all(tmp_path) == [run]


def test_a_report_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of `make gpu`, whose records say more."""
    report = {"machine": MACHINE, "results": [record("cuda", 2, stage="headline")]}
    runs.save(report, tmp_path / "x.json")
    assert runs.load(tmp_path / "x.json") == report
    monkeypatch.setattr(runs.keep, "__defaults__", (tmp_path / "kept",))
    monkeypatch.setattr(tables, "pages", lambda: [])
    result = CliRunner().invoke(tables.main, [str(tmp_path / "x.json")])
    assert result.exit_code == 0, result.output
    assert runs.load_all(tmp_path / "kept") == [{**report, "results": [record("cuda", 2)]}]


def test_speed() -> None:
    """By hand: 4 / 2 and 8 / 2 with two threads, 9 / 2 with three; small tensors are left out."""
    silu, lalu = ({"op": "gate", "gate": gate} for gate in ("logistic", "laplace"))
    soi_map = {"op": "soi_map", "dtype": "bfloat16"}
    results = [record("cuda", 2), record("eager", 4), record("compile", 7)]
    results += [record("cuda", 2, **silu), record("eager", 8, **silu)]
    results += [record("cuda", 1, 16), record("eager", 9, 16)]
    results += [record("cuda", 2, **soi_map), record("eager", 2, **soi_map)]
    results += [record("cuda", 1, 3000, **lalu), record("eager", 30, 3000, **lalu)]
    run = {"machine": MACHINE, "results": results}
    results = [record("cuda", 2), record("eager", 9), record("compile", 3)]
    other = {"machine": MACHINE | {"threads": 3}, "results": results}
    text, _, *lines = tables.speed_of([run, other], "cuda").splitlines()
    assert text == (
        "A (fast) CPU @ 3 GHz, threads: 2, torch 2.13.0, 2026-11-22;"
        " A (fast) CPU @ 3 GHz, threads: 3, torch 2.13.0, 2026-11-22; cuda, 3000 to 2^20 elements."
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["operator", "gates", "float32 forward", "bfloat16 forward"]
    assert rows[2:] == [
        ["gate", "`F.gelu`, `F.silu`", "2.0-4.5", ""],
        ["gate", "others", "30", ""],
        ["SOI map", "all", "", "1.0"],
    ]
    assert list(tables.compiled([run, other], "cuda")) == [
        "Against `torch.compile` of the same formulas: 1.5-3.5.\n"
    ]
    assert not list(tables.compiled([run, other], "triton"))


def test_every_operator_has_a_family() -> None:
    ops = [op for family in families.FAMILIES.values() for op in family]
    assert sorted(ops) == sorted(op.label for op in PUBLIC)


def test_two_digits() -> None:
    texts = {1.04: "1.0", 9.94: "9.9", 9.96: "10", 94.7: "95"}
    assert {x: two_digits(x) for x in texts} == texts
