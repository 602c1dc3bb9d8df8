"""``python -m bench.compare``: ratios by hand, rows of one report alone, files that are none."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

import bench.__main__
from bench import compare


def run(*paths: Path) -> Result:
    return CliRunner().invoke(compare.main, list(map(str, paths)))


def record(us: float, op: str = "gelu", spread: float = 0, **changed) -> dict:
    x = {"op": op, "pass": "forward", "gate": "normal", "dtype": "bfloat16", "elements": 2**18}
    return x | {"side": "cuda", "us": us, "low": us - spread, "high": us + spread} | changed


def write(path: Path, *records: dict, **machine) -> Path:
    versions = {"torch": machine.pop("torch", "2.13.0"), "commit": machine.pop("commit", "abc")}
    machine = {"date": "2026-11-22", "device": "NVIDIA H200", "versions": versions} | machine
    path.write_text(json.dumps({"machine": machine, "results": records}))
    return path


def lines(result: Result) -> list[list[str]]:
    """The cells of the tables' lines."""
    assert result.exit_code == 0, result.output
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in result.stdout.splitlines()
        if line.startswith("│")
    ]


def test_ratios(tmp_path: Path) -> None:
    """20 us of 19 to 21 against 30 of 28 to 32: 30 / 20 = 1.5, from 28 / 21 to 32 / 19. 10 of 9 to
    11 against 10.5 of 9.5 to 11.5: 1.05, from 9.5 / 11 to 11.5 / 9. sqrt(1.5 x 0.5) = 0.866."""
    larger = {"elements": 2**26}
    a = write(
        tmp_path / "a.json",
        *(record(20, spread=1), record(8, **larger), record(10, op="soi_map", spread=1)),
        record(5, side="eager"),
    )
    b = write(
        tmp_path / "b.json",
        *(record(10.5, op="soi_map", spread=1), record(7, op="geglu")),
        *(record(99), record(30, spread=2), record(4, **larger)),
    )
    result = run(a, b)
    gelu = ["gelu", "forward", "normal", "bfloat16"]
    soi = ["soi_map", *gelu[1:], "262144", "cuda"]
    found = lines(result)
    assert [*gelu, "262144", "cuda", "20.00", "30.00", "1.500", "1.333 to 1.684", "slower"] in found
    assert [*gelu, "67108864", "cuda", "8.00", "4.00", "0.500", "0.500 to 0.500", "faster"] in found
    assert [*soi, "10.00", "10.50", "1.050", "0.864 to 1.278", ""] in found
    assert ["gelu", "forward", "cuda", "2", "0.866"] in found
    assert ["soi_map", "forward", "cuda", "1", "1.050"] in found
    only = [line for line in result.stdout.splitlines() if line.startswith("only")]
    assert only == [
        "only in A: gelu forward normal bfloat16 262144 eager",
        "only in B: geglu forward normal bfloat16 262144 cuda",
    ]


def test_machines_that_differ(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", record(1))
    b = write(tmp_path / "b.json", record(1), torch="2.11.0", commit="def", device="NVIDIA H100")
    found = lines(run(a, b))
    assert found[:3] == [
        ["device", "NVIDIA H200", "NVIDIA H100"],
        ["torch", "2.13.0", "2.11.0"],
        ["commit", "abc", "def"],
    ]
    assert lines(run(a, a))[0] == ["device", "NVIDIA H200", "NVIDIA H200"]
    assert "torch" not in run(a, a).stdout


def test_nothing_in_common(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", record(1))
    b = write(tmp_path / "b.json", record(1, op="geglu"))
    assert "no row is in both" in run(a, b).stdout


NO_REPORTS = (
    *("", "[]", "{}", '{"machine": {}}', '{"results": []}', '{"machine": {"device": "x"}, "res'),
    '{"machine": {}, "results": [{"side": "cuda"}]}',
    '{"machine": {}, "results": [1]}',
    json.dumps({"machine": {}, "results": [record(1) | {"low": 2}]}),
    json.dumps({"machine": {}, "results": [record(0)]}),
    None,
)


def test_no_report_is_refused_by_name(tmp_path: Path) -> None:
    good = write(tmp_path / "good.json", record(1))
    for number, text in enumerate(NO_REPORTS):
        bad = tmp_path / f"{number}.json"
        if text is not None:
            bad.write_text(text)
        for paths in ((good, bad), (bad, good)):
            result = run(*paths)
            assert result.exit_code == 1, text
            assert f"{bad} is no report of python -m bench" in result.stderr, text
            assert "good.json" not in result.stderr, text


def test_a_run_beside_itself(tmp_path: Path) -> None:
    arguments = ["--op", "gelu", "--pass", "forward", "--dtype", "float32", "--size", "16"]
    arguments += ["--peer", "none", "--device", "cpu", "--deadline", "60"]
    result = CliRunner().invoke(bench.__main__.main, [*arguments, "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("*.json")
    found = lines(run(path, path))
    ours, eager = (line for line in found if line[0] == "gelu" and len(line) == 11)
    assert (ours[5], eager[5]) == ("gelu_kernels", "eager")
    assert ours[6] == ours[7] and ours[8] == eager[8] == "1.000" and ours[10] == ""
    assert ["gelu", "forward", "gelu_kernels", "1", "1.000"] in found
