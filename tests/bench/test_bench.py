"""The benchmark: its counts, that it times nothing wrong, and that it names what it leaves out."""

import json
from dataclasses import replace
from itertools import count, product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner, Result
from tqdm import tqdm

import bench.__main__
from bench import accuracy, check_exact, memory, peers, runs, timing
from bench.measure import Plan, measure, rotated
from bench.operators import GATES, OPERATORS, is_measured, quick_gelu
from bench.options import Size
from bench.presets import PRESETS
from bench.sides import Side, eager, ours
from bench.workloads import Inputs, Workload, make_inputs

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")

KIB = Size("1KiB", 1024, True)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench.__main__.main, list(arguments))


def test_bytes_moved() -> None:
    """By hand, for 512 rows of 512 bfloat16: 512 KiB each, a bias of 1 KiB, as many weights, a mask
    of 32 KiB. The halves of geglu_halves are two of these."""
    n, bias, weight, mask = 2**19, 2**10, 2**10, 2**15
    expected = {
        "gelu": (2 * n, 3 * n),
        "gate": (2 * n, 3 * n),
        "bias_gelu": (2 * n + bias, 3 * n + 2 * bias),
        "bias_gate": (2 * n + bias, 3 * n + 2 * bias),
        "geglu": (3 * n, 5 * n),
        "geglu_halves": (3 * n, 5 * n),
        "glu": (3 * n + weight, 5 * n + 2 * weight),
        "glu_halves": (3 * n + weight, 5 * n + 2 * weight),
        "soi_map": (2 * n + mask, 2 * n + mask),
        "bias_soi_map": (2 * n + bias + mask, 2 * n + bias + mask),
        "cdf_soi_map": (2 * n + 2 * bias + mask, 2 * n + mask),
        "cdf_gate": (2 * n, 3 * n),
        "cdf_gate_columns": (2 * n + 2 * bias, 3 * n + 4 * bias),
        "gate_dropout": (2 * n + mask, 3 * n + mask),
        "bias_gelu_dropout": (2 * n + bias + mask, 3 * n + 2 * bias + mask),
        "bias_gate_dropout": (2 * n + bias + mask, 3 * n + 2 * bias + mask),
        "geglu_dropout": (3 * n + mask, 5 * n + mask),
        "geglu_dropout_halves": (3 * n + mask, 5 * n + mask),
    }
    assert expected.keys() == OPERATORS.keys()
    for op, (forward, backward) in expected.items():
        workload = Workload(op, "normal", "bfloat16", 2**18)
        assert workload.shape == (512, 512)
        assert workload.bytes_moved("forward") == forward
        assert workload.bytes_moved("backward") == backward
        assert workload.bytes_moved("both") == forward + backward


def test_every_kernel_of_the_table_is_measured() -> None:
    """For every gate, under the name of one of the operators that it serves."""

    def kernels(op: str) -> tuple:
        row = OPERATORS[op]
        return row.forward, row.backward, row.operands, row.halves

    for gate in [*GATES, "one that has only a name"]:
        named = {kernels(op) for op in OPERATORS if is_measured(op, gate)}
        assert named == set(map(kernels, OPERATORS))


def test_shape_has_all_elements() -> None:
    for elements in (1, 15, 16, 4096, 12 * 1024, 2**24):
        rows, columns = Workload("gelu", "normal", "float32", elements).shape
        assert rows * columns == elements


def plan(op: str, **sides: Side) -> Plan:
    return Plan(
        ops=(op,),
        passes=("forward", "backward", "both"),
        gates=("normal",),
        dtypes=("float32",),
        sizes=(KIB,),
        device="cpu",
        backend="gelu_kernels",
        compilers=(),
        peers={name: {(op, "normal"): side} for name, side in sides.items()},
    )


def test_inputs_rotate() -> None:
    """On a GPU through more memory than it caches, but for tensors that are small."""
    for elements in (16, 2**20, 2**22, 2**24, 2**28):
        workload = Workload("gelu", "normal", "float32", elements)
        assert rotated("cpu", workload) == 1
        sets = rotated("cuda", workload)
        if elements <= 2**20:
            assert sets == 1, elements
        else:
            assert sets >= 2 and sets * workload.bytes >= 2**29, elements


def slightly_off(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * (1 + 1e-4)


class Overwrites(torch.autograd.Function):
    """As some packages compute it: the gradients lie where the operands were."""

    @staticmethod
    def forward(ctx, x, up):
        ctx.save_for_backward(x, up)
        return F.gelu(x) * up

    @staticmethod
    def backward(ctx, dy):
        x, up = (t.data for t in ctx.saved_tensors)  # unseen by autograd
        dx, dup = torch.ops.aten.gelu_backward(dy * up, x), dy * F.gelu(x)
        return x.copy_(dx), up.copy_(dup)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dy):
        return dy


def raises(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("not here")


ALL = ("forward", "backward", "both")
# Of each operator: peers, and the passes in which each is wrong.
PEERS: dict[str, dict[str, tuple[Side, tuple[str, ...]]]] = {
    "gelu": {
        "right": (Side(F.gelu), ()),
        "slightly off": (Side(slightly_off), ALL),
        "wrong gradient": (Side(WrongGradient.apply), ("backward", "both")),
        "raises": (Side(raises), ALL),
    },
    "geglu": {
        "right": (Side(lambda x, up: F.gelu(x) * up), ()),
        "overwrites": (Side(Overwrites.apply, overwrites=True), ()),
        "exchanged": (Side(lambda x, up: F.gelu(up) * x), ALL),
        "gradient": (Side(lambda x, up: F.gelu(x) * (2 * up - up.detach())), ("backward", "both")),
    },
    "geglu_halves": {
        "right": (Side(lambda x: F.gelu(x[:, : x.size(1) // 2]) * x[:, x.size(1) // 2 :]), ()),
        "another": (Side(lambda x: F.glu(x, -1)), ALL),
    },
}


@pytest.mark.parametrize("op", PEERS)
def test_nothing_wrong_is_timed(op: str) -> None:
    peers = {name: side for name, (side, _) in PEERS[op].items()}
    found = list(measure(plan(op, **peers), tqdm(disable=True)))
    assert all(record["us"] > 0 for record in found if "us" in record)
    for name, (_, wrong) in PEERS[op].items():
        timed = [record["pass"] for record in found if record.get("side") == name]
        refused = [record["wrong"].split()[1] for record in found if record.get("by") == name]
        assert timed == [label for label in ALL if label not in wrong], name
        assert refused == list(wrong), name


def test_errors_are_in_ulp() -> None:
    exact = torch.tensor([1.0, 3.0, 2**-149, 0.0], dtype=torch.float64)
    units = check_exact.ulp(exact, torch.float32)
    assert units.tolist() == [2**-23, 2**-22, 2**-149, 2**-149]
    peers = {"right": Side(F.gelu), "off": Side(lambda x: F.gelu(x) * (1 + 2**-22))}
    found = {r["side"]: r["ULP"] for r in measure(plan("gelu", **peers), tqdm(disable=True))}
    assert found["gelu_kernels"] < 4 and found["off"] > 1


def test_presets() -> None:
    """All of their names exist. "families" has each, and "changed" all forms of some."""
    for preset in PRESETS.values():
        parameters = {p.name: p.type for p in bench.__main__.main.params}
        for name, values in preset.items():
            assert [parameters[name].convert(value, None, None) for value in values]
    every = {op.family for op in OPERATORS.values()}
    assert {OPERATORS[op].family for op in PRESETS["families"]["ops"]} == every
    assert {"glu", "geglu_dropout", "cdf_gate"} <= set(PRESETS["changed"]["ops"])
    assert not {"gelu", "geglu"} & set(PRESETS["changed"]["ops"])


def test_quartiles_are_of_one_call() -> None:
    """By a clock for which the turns take 1, 2, 3, ... ms a call."""
    turns = count(1)
    counts = []

    def clock(calls, number):
        counts.append(number)
        milliseconds = next(turns)
        return lambda: number * milliseconds / 1000

    (found,) = timing.quartiles({"side": [lambda: None]}, clock).values()
    # The second reading, 2 ms a call, sets one call to a turn and as many turns as there may be.
    assert counts == [1, 2] + [1] * timing.MOST_TURNS
    assert found == pytest.approx([6000, 10000, 14000])


def test_turns_are_few_where_there_is_little_time() -> None:
    def turns(seconds: float) -> int:
        counts = []

        def clock(calls, number):
            counts.append(number)
            return lambda: number * 2e-3

        timing.quartiles({"side": [lambda: None]}, clock, seconds=seconds)
        return len(counts) - 1  # the first tells how long a turn is

    assert (turns(1), turns(2e-2), turns(1e-9)) == (timing.MOST_TURNS, 10, timing.LEAST_TURNS)


def inputs(op: str = "gelu") -> Inputs:
    torch.manual_seed(0)
    return make_inputs(Workload(op, "normal", "float32", 2**14), "cpu")


def test_peak_bytes() -> None:
    (x,) = inputs().operands
    n = x.nbytes
    assert memory.peak_bytes(lambda: F.gelu(x), "cpu") == n
    assert memory.peak_bytes(lambda: (x + 1) * 2, "cpu") == pytest.approx(2 * n, rel=0.01)


def test_saved_bytes() -> None:
    n = inputs().dy.nbytes
    assert memory.saved_bytes(Side(F.gelu), inputs()) == n
    assert memory.saved_bytes(Side(quick_gelu), inputs()) == 2 * n  # x and the sigmoid
    assert memory.saved_bytes(eager("soi_map", "normal"), inputs()) > 2 * n
    assert memory.saved_bytes(ours("soi_map", "normal"), inputs()) == n // 32  # a bit for 32
    # x and up; PyTorch also the gate's value.
    assert memory.saved_bytes(ours("geglu", "normal"), inputs("geglu")) == 2 * n
    assert memory.saved_bytes(eager("geglu", "normal"), inputs("geglu")) == 3 * n
    assert memory.saved_bytes(ours("geglu_halves", "normal"), inputs("geglu_halves")) == 2 * n


def test_ulp_errors() -> None:
    x = torch.tensor([1.0, 3.0, 2**-149, 0.0])
    y = torch.tensor([1 + 2**-23, 3 - 2**-21, 2**-148, -0.0])
    assert accuracy.ulp_errors(y, x.tolist()) == [1, 2, 1, 0]


def test_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not there, and one that cannot be imported, are named with the reason."""
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("raise OSError('no libcuda')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(peers.PEERS, "not_there", peers.PEERS["flash_attn"])
    found, absent = peers.load(["flash_attn", "not_there"])
    assert found == {}
    assert absent["flash_attn"] == "OSError: no libcuda"
    assert absent["not_there"] == "not installed"
    assert "GEGLU" in absent["unsloth"]


def test_run(tmp_path: Path) -> None:
    result = run(
        *("--op", "gelu", "--op", "geglu", "--gate", "normal_tanh", "--dtype", "bfloat16"),
        *("--size", "16", "--size", "2^10", "--peer", "none", "--threads", "1"),
        *("--device", "cpu", "--output", str(tmp_path)),
    )
    assert result.exit_code == 0, result.output
    assert "not measured: any GPU" in result.output
    assert "gelu, forward" in result.output and "geglu, both" in result.output
    found = read(tmp_path)
    assert found["machine"]["threads"] == 1 and found["machine"]["versions"]["torch"]
    cells = {(r["op"], r["pass"], r["elements"], r["side"]) for r in found["results"]}
    assert len(cells) == len(found["results"]) == 2 * 3 * 2 * 2


def read(folder: Path) -> dict:
    (run,) = runs.load_all(folder)
    return run


def test_headline(tmp_path: Path) -> None:
    """Without any time: the list of its cells, the most important first."""
    result = run(
        "--preset", "headline", "--device", "cpu", "--deadline", "0", "--output", str(tmp_path)
    )
    assert result.exit_code == 0, result.output
    found = [record["skipped"] for record in read(tmp_path)["not timed"]]
    expected = product(
        ("normal", "normal_tanh"),
        ("bfloat16", "float32"),
        ("gelu", "bias_gelu", "geglu", "soi_map"),
        ("1GiB", "64MiB"),
    )
    assert found == [f"{op} {gate} {dtype} {size}" for gate, dtype, op, size in expected]


def test_headline_beside_other_options(tmp_path: Path) -> None:
    result = run(
        *(
            "--preset",
            "headline",
            "--op",
            "geglu",
            "--size",
            "2^10",
            "--size",
            "16",
            "--dtype",
            "float16",
        ),
        *("--device", "cpu", "--output", str(tmp_path), "--deadline", "60"),
    )
    assert result.exit_code == 0, result.output
    names = ("op", "gate", "dtype", "elements", "pass", "side")
    assert [tuple(r[name] for name in names) for r in read(tmp_path)["results"]] == list(
        product(
            *(["geglu"], ["normal", "normal_tanh"], ["float16"], [1024, 16]),
            *(["forward", "backward"], ["gelu_kernels", "eager"]),
        )
    )


def test_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second whenever it is read. It is read for each size twice, for
    the time that is left and a pass's share of it, and for each pass."""
    clock = count()
    monkeypatch.setattr(bench.measure, "monotonic", lambda: next(clock))
    limited = replace(plan("gelu"), sizes=(KIB, KIB, KIB), deadline=8)
    found = list(measure(limited, tqdm(disable=True)))
    timed = [record["pass"] for record in found if record.get("side") == "eager"]
    assert timed == ["forward", "backward", "both", "forward"]
    assert [(r["skipped"], r["because"]) for r in found if "skipped" in r] == [
        ("gelu backward normal float32 256", "no time was left"),
        ("gelu both normal float32 256", "no time was left"),
        ("gelu normal float32 1KiB", "no time was left"),
    ]


def test_half_a_report_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    runs.save({"results": [1]}, path)

    def killed(self: Path, text: str) -> None:
        self.write_bytes(text[: len(text) // 2].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        runs.save({"results": [1, 2]}, path)
    assert json.loads(path.read_text()) == {"results": [1]}
    assert list(tmp_path.glob("*.json")) == [path]


def test_bad_options() -> None:
    bad = [("--size", "64MB"), ("--size", "2"), ("--op", "relu"), ("--gate", "erf")]
    bad += [("--threads", "0"), ("--deadline", "-1"), ("--device", "tpu")]
    if not torch.cuda.is_available():
        bad.append(("--device", "cuda"))
    for option, value in bad:
        result = run(option, value)
        assert result.exit_code == 2 and option in result.output, (option, value)
