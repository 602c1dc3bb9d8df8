"""The predicted roofline: its arithmetic, its labels, and its verdict on the kernels' budgets."""

import json
from itertools import product
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bench import roofline
from bench.calibration import FORMS
from machine_code import cuda_code
from machine_code.cases import ARCHITECTURES, PREDICTED, Case
from machine_code.launches import Launch
from machine_code.machines import MACHINES, by_pipe, pipe
from machine_code.work import Work

A100, H100, H200, B200 = MACHINES.values()
EXACT = Case("gate_forward", "normal", "bfloat16", False, "cuda")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(roofline.main, list(arguments))


def test_by_hand() -> None:
    """An H100 moves 3 bytes in a picosecond, and issues 132 x 128 x 0.0017 = 28.72 instructions;
    16 of 128 lanes are MUFU's."""
    found = H100.predict(4, 20, {"FFMA": 19, "MUFU": 1})
    expected = {"memory": 1.3333, "issue": 0.6963, "FMA": 0.6615, "MUFU": 0.2785}
    assert found.picoseconds == pytest.approx(expected, abs=1e-4)
    assert (found.bound, found.percent) == ("memory", 100)


def test_beyond_the_roof() -> None:
    """40 slots take an H100 1.3926 ps, 4 bytes 1.3333."""
    found = H100.predict(4, 40)
    assert found.bound == "issue"
    assert found.percent == pytest.approx(95.74, abs=0.01)
    assert H100.limit(4) == pytest.approx(38.30, abs=0.01)


def test_what_binds() -> None:
    cases = [
        # 10 bytes: 5.757 ps of an A100, 3.333 of an H100, 1.493 of a B200.
        (A100, {"FFMA": 20}, "memory", 100),
        (A100, {"FFMA": 100}, "FMA", 56.1),  # 64 lanes: 9.7459 in a picosecond
        (H100, {"FFMA": 100}, "issue", 95.7),
        (H100, {"LDG": 100}, "issue", 95.7),
        (H100, {"HADD2": 100}, "FMA", 47.9),
        (B200, {"FFMA2": 50}, "FMA", 49.5),  # two of 128 lanes each: 33.152 in a picosecond
        (H100, {"LOP3": 100}, "ALU", 47.9),
        (H100, {"F2FP": 100}, "ALU", 47.9),
        (H100, {"MUFU": 20}, "MUFU", 59.8),
        (H100, {"DFMA": 100}, "FP64", 47.9),
        (H100, {"LOP3": 40, "SHF": 40, "FFMA": 30, "LDG": 10}, "ALU", 59.8),
        (H100, {"LOP3": 50, "FFMA": 60, "LDG": 10}, "issue", 79.8),
    ]
    for machine, instructions, bound, percent in cases:
        found = machine.predict(10, sum(instructions.values()), instructions)
        assert found.bound == bound, (machine.name, instructions)
        assert found.percent == pytest.approx(percent, abs=0.06), (machine.name, instructions)


def test_pipes() -> None:
    names = ["IMAD", "FMNMX", "BRA", "UIADD3", "I2F", "DADD"]
    assert list(map(pipe, names)) == ["FMA", "ALU", None, None, "MUFU", "FP64"]


def test_a_copy_on_an_h200() -> None:
    """8 bytes in 8 / 4.28 ps, of 132 x 128 x 0.00198 = 33.45 issue slots each."""
    assert H200.predict(8, 10).picoseconds["memory"] == pytest.approx(1.8692, abs=1e-4)
    assert H200.limit(8) == pytest.approx(62.53, abs=0.01)


def test_by_pipe() -> None:
    """Packed pairs take their lanes twice, on sm_80 no longer than others. IMAD is also counted
    apart; memory and control go to no pipe."""
    names = {"IMAD": 2, "FFMA": 3, "HADD2": 4, "LOP3": 5, "I2F": 1, "LDG": 9, "BRA": 9}
    found = {"IMAD": 2, "FMA": 13, "ALU": 5, "MUFU": 1}
    assert by_pipe("sm_90", names) == found
    assert by_pipe("sm_80", names) == found | {"FMA": 9}


def test_machines() -> None:
    """The machines that code is compiled for; no copy is faster than the memory."""
    assert {machine.architecture for machine in MACHINES.values()} == set(ARCHITECTURES)
    assert all(machine.copied < machine.bandwidth for machine in MACHINES.values())


def test_exact_gate_reaches_the_roof_of_an_h100() -> None:
    """As the slots may not exceed their budgets, neither can the kernels."""
    for op, biased in product(("gate_forward", "gate_backward"), (False, True)):
        case = EXACT._replace(op=op, biased=biased)
        needed = roofline.allowed("sm_90")[case].slots
        assert H100.predict(case.moved, needed).percent >= 95, case


def test_needs_tools(monkeypatch) -> None:
    monkeypatch.setattr(cuda_code, "missing_tools", lambda: ["nvcc"])
    with pytest.raises(click.ClickException, match="cuda needs nvcc"):
        roofline.compiled("sm_90", [EXACT])


def test_an_architecture_that_was_not_built(monkeypatch) -> None:
    """The other machines are predicted."""

    def kernels(architecture: str) -> list:
        if architecture != "sm_90":
            raise LookupError("not built")
        return []

    monkeypatch.setattr(cuda_code, "missing_tools", list)
    monkeypatch.setattr(cuda_code, "kernels", kernels)
    result = run("--machine", "A100", "--machine", "H200", "--backend", "cuda")
    assert result.exit_code == 0, result.output
    assert "without sm_80: not built" in result.stderr
    assert "H200: predicted" in result.stdout and "A100" not in result.stdout


def record(op: str = "gelu", side: str = "cuda", roof: float = 90.0, **changed) -> dict:
    x = {"op": op, "pass": "forward", "gate": "normal", "dtype": "bfloat16", "elements": 2**27}
    return x | {"side": side, "roof": roof} | changed


def write(folder: Path, name: str, device: str, *records: dict) -> None:
    report = {"machine": {"device": device}, "results": records}
    (folder / f"{name}.json").write_text(json.dumps(report))


def test_measurements(tmp_path: Path) -> None:
    """Of one size. The cells that one kernel serves are one case; the first stands for it."""
    write(tmp_path, "1", H100.device, record("soi_map", roof=70))
    write(
        *(tmp_path, "2", H100.device),
        *(record(roof=97.3), record(roof=2, elements=2**25), record(side="torch", roof=3)),
        record(
            "bias_gelu", roof=96.0, gate="normal_tanh", dtype="bfloat16", **{"pass": "backward"}
        ),
        record("soi_map", side="triton", roof=80, **{"pass": "backward"}),
        *(record("something else"), record(**{"pass": "both"})),
    )
    write(tmp_path, "3", "NVIDIA H100 PCIe", record(roof=4))
    write(
        *(tmp_path, "4", H100.device),
        *(record("geglu", roof=91, dtype="float32", elements=2**26), record("geglu", roof=5)),
        *(record("geglu_halves", roof=6), record("gate_dropout", roof=54)),
        record("bias_soi_map", roof=65, **{"pass": "backward"}),
    )
    assert roofline.measurements(tmp_path, H100.device, 256) == {
        EXACT: 97.3,
        Case("gate_backward_bias", "normal_tanh", "bfloat16", True, "cuda"): 96.0,
        Case("soi_forward", "normal", "bfloat16", False, "cuda"): 70,
        Case("soi_backward", "", "bfloat16", False, "triton"): 80,
        Case("glu_forward", "normal", "float32", False, "cuda"): 91,
        Case("glu_forward", "normal", "bfloat16", False, "cuda"): 5,
        Case("gate_dropout_forward", "normal", "bfloat16", False, "cuda"): 54,
        Case("soi_backward_bias", "", "bfloat16", True, "cuda"): 65,
    }
    assert roofline.measurements(tmp_path, H100.device, 64) == {EXACT: 2}
    assert roofline.measurements(tmp_path / "none", H100.device, 256) == {}


def test_every_operator_has_a_kernel() -> None:
    """That a record of it can be compared with."""
    kernels = {(case.op, case.biased) for case in PREDICTED}
    assert {form[1:] for form in FORMS.values()} <= kernels


NEEDS = {EXACT: roofline.Need(20.0, {"FFMA": 19.0, "MUFU": 1.0})}


def test_labels() -> None:
    """No column can be taken for a measurement."""
    rows = roofline.rows_of(H100, [EXACT], NEEDS, Path(), [64, 256])
    table = roofline.predictions(H100, rows, [64, 256])
    headings = [column.header for column in table.columns]
    assert "predicted, not measured" in table.title
    times = [f"predicted\n{name}" for name in ("memory", "issue", "FMA", "MUFU")]
    result = [f"predicted\n{name}" for name in ("bound", "% of roof", "warps")]
    of_sizes = [f"{word}\n% at {n} MiB" for word in ("predicted", "measured") for n in (64, 256)]
    assert headings == ["kernel", "backend", *times, *result, *of_sizes]


def test_families() -> None:
    """One line for all gates, with the least and the most of each size."""
    work = Work(40, 4, 32, 640, 0, 0, 0, {})
    gates = [EXACT, EXACT._replace(gate="cauchy"), EXACT._replace(op="gate_backward")]
    rows = [
        roofline.Row(
            *(H200, case, H200.predict(case.moved, 20)),
            [Launch(H200, case, work._replace(slots=slots), mib) for mib in (64, 256)],
            [None, None],
        )
        for case, slots in zip(gates, (640, 1280, 640), strict=True)
    ]
    table = roofline.families(H200, rows, [64, 256])
    assert "predicted, not measured" in table.title
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [x[:3] for x in cells] == [
        ("gate_forward bfloat16", "cuda", "48"),
        ("gate_backward bfloat16", "cuda", "48"),
    ]
    least, most = (f"{rows[i].launches[1].percent:.0f}" for i in (1, 0))
    assert cells[0][4] == f"{least}-{most}" and float(least) < 80 < 95 < float(most)


def test_span() -> None:
    assert [roofline.span(x) for x in ([3.2], [9.6, 100.4, 20], [5.1, 4.9])] == [
        *("3", "10-100", "5")
    ]


def test_command(tmp_path: Path) -> None:
    write(tmp_path, "h100", H100.device, record(roof=97.25))
    output = tmp_path / "rows"
    result = run(
        *("--machine", "H100", "--machine", "A100", "--op", "gate_forward", "--gate", "normal"),
        *("--dtype", "bfloat16", "--backend", "cuda", "--no-bias", "--budgets"),
        *("--results", str(tmp_path), "--json", str(output)),
    )
    assert result.exit_code == 0, result.output
    assert "H100: predicted, not measured" in result.stdout
    assert H100.sources[3] in result.stdout
    assert "97.2" in result.stdout
    written = json.loads(output.read_text())
    assert [machine["name"] for machine in written["machines"]] == ["H100", "A100"]
    h100, a100 = written["predicted"]
    assert h100["machine"] == "H100" and h100["op"] == "gate_forward"
    assert h100["predicted bound"] == "memory" and h100["predicted % of roof"] == 100
    assert h100["predicted picoseconds"]["memory"] == pytest.approx(4 / 3)
    assert h100["predicted of launches"] == []  # no code was compiled
    assert h100["measured % of roof"] == [None, 97.25]
    assert a100["measured % of roof"] == [None, None]


def test_unknown_choice() -> None:
    for option in ("--machine", "--op", "--gate", "--dtype", "--backend"):
        result = run(option, "Z80")
        assert result.exit_code == 2
        assert f"Invalid value for '{option}': 'Z80' is not one of" in result.stderr


def test_no_gate() -> None:
    """Where an operator has none, choosing one leaves it in."""
    result = run("--machine", "B200", "--op", "soi_backward", "--gate", "normal", "--budgets")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("soi_backward") == 8


def test_nothing_chosen() -> None:
    result = run("--op", "soi_backward", "--bias")
    assert result.exit_code == 2
    assert "no kernel is all of that" in result.stderr
