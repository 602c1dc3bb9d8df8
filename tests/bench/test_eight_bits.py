"""``python -m bench.quantized`` and ``python -m bench.coded``: the bytes that they count, and that
they time nothing wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click import ClickException, Command
from click.testing import CliRunner, Result
from torch.utils._pytree import tree_leaves

from bench import coded, quantized, runs, torchao_casts
from bench.plan import options
from bench.quantized_passes import PASSES, make_inputs
from bench.quantized_recipes import RECIPES, cast
from bench.workloads import Workload
from machine_code.quantized import Cell
from tests.cases import each

SMALL = ("--size", "2^10", "--dtype", "bfloat16", "--output")
NAMES = {
    "gate forward": "forward",
    "GLU forward": "GLU forward",
    "gate backward with a bias": "backward with a bias gradient",
    "GLU backward": "GLU backward",
}


def run(command: Command, folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, *SMALL, str(folder)])


def records(folder: Path) -> list[dict]:
    (path,) = folder.iterdir()
    return list(runs.read_csv(path))


def test_quantized_bytes() -> None:
    """As machine_code counts them for MX blocks, and by hand."""
    for name, operation in NAMES.items():
        for along in ("row", "column", "both"):
            expected = Cell(operation, "normal", "bfloat16", "BlockWise1x32", along).moved
            assert PASSES[name].cell(along, "bfloat16", 2**20).moved == 2**20 * expected
    forward = PASSES["gate forward"]
    assert forward.cell("TensorWise", "float32", 4).moved == 4 * (4 + 1)
    assert forward.cell("BlockWise1x128", "bfloat16", 256).moved == 256 * 3 + 2 * 4
    assert forward.cell("BlockWise1x128 both rceil", "bfloat16", 256).moved == 256 * 4 + 4 * 4
    assert forward.cell("RowWise both", "bfloat16", 256).moved == 256 * (2 * 2 + 2)
    assert PASSES["experts backward"].cell("RowWise both", "float32", 1).moved == 2 * 3 * 4 + 4


def test_coded_bytes() -> None:
    """By hand, for 32 rows of 32 bfloat16."""
    workload = Workload("gelu", "normal", "bfloat16", 1024)
    n, bias = 1024, 64

    def moved(op: str, saved: str) -> list[float]:
        return [coded.moved(op, saved, label, workload) for label in ("forward", "backward")]

    assert moved("gate", "x") == [4 * n, 6 * n]
    assert moved("gate", "8 bits") == [5 * n, 5 * n]
    assert moved("gate", "4 bits") == [4.5 * n, 4.5 * n]
    assert moved("bias_gate", "8 bits, dithered") == [5 * n + bias, 5 * n + bias]
    assert moved("bias_gate", "x") == [4 * n + bias, 6 * n + 2 * bias]


def test_quantized(tmp_path: Path) -> None:
    recipes = "RowWise both", "both"
    found = run(quantized.main, tmp_path, "--no-compile", *options("--recipe", recipes))
    assert found.exit_code == 0, found.output
    cells = {(r["op"], r["pass"], r["side"]) for r in records(tmp_path)}
    assert len(cells) == 2 * 2 * len(PASSES)
    assert ("quantized_bias_gate both", "backward", "gelu_kernels") in cells
    assert ("quantized_experts RowWise both", "forward", "eager") in cells


@each(name=PASSES, dtype=["bfloat16", "float32"])
def test_every_recipe(name: str, dtype: str) -> None:
    """On rows that end a group within a block."""
    for recipe in PASSES[name].recipes:
        quantized.check(name, recipe, torch.tensor(0.01), make_inputs((256, 128), dtype, "cpu"))


@each(recipe=["RowWise both", "BlockWise1x128 both rceil", "both"])
def test_a_wrong_group_is_not_timed(recipe: str) -> None:
    inputs = make_inputs((256, 128), "bfloat16", "cpu")

    def of_other_groups(of: object, **options: object) -> object:
        return right(of, **{**options, "offsets": inputs.offsets - 1})

    right = PASSES["experts forward"].ours
    wrong = replace(PASSES["experts forward"], ours=of_other_groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PASSES, "experts forward", wrong)
        with pytest.raises(ClickException, match=f"experts forward, {recipe}"):
            quantized.check("experts forward", recipe, torch.tensor(0.01), inputs)


@each(name=NAMES, along=["row", "column", "both"])
def test_torchao_casts(name: str, along: str) -> None:
    """This package's results in its order, but for rounding, where torchao's kernels cast as one
    writes it."""
    kernels = pytest.importorskip("torchao.prototype.blockwise_fp8_training.kernels")
    recipe = RECIPES["BlockWise1x128" + f" {along}" * (along != "row")]
    inputs = make_inputs((128, 256), "bfloat16", "cpu")
    casts = {
        "lhs": lambda y: cast(y, recipe),
        "transposed_lhs": lambda y: cast(y.t().contiguous(), recipe),
    }
    with pytest.MonkeyPatch.context() as patch:
        for suffix, one_cast in casts.items():
            patch.setattr(kernels, f"triton_fp8_blockwise_act_quant_{suffix}", one_cast)
        found = tree_leaves(torchao_casts.chain(name, recipe)(inputs))
    ours = tree_leaves(quantized.call(PASSES[name], recipe, torch.tensor(0.01), inputs))
    for a, b in zip(found, ours, strict=True):
        near = torch.isclose(a.float(), b.float(), rtol=1e-5, atol=0)
        assert a.shape == b.shape and near.float().mean() > 0.99


def test_torchao_has_one_recipe() -> None:
    assert not torchao_casts.chain("gate forward", RECIPES["BlockWise1x128 both rceil"])
    assert not torchao_casts.chain("experts forward", RECIPES["BlockWise1x128"])


def test_coded(tmp_path: Path) -> None:
    found = run(coded.main, tmp_path, "--gate", "normal")
    assert found.exit_code == 0, found.output
    cells = {(r["op"], r["pass"]) for r in records(tmp_path)}
    assert len(cells) == 2 * 2 * len(coded.SAVED)
    assert ("bias_gate saving 4 bits", "backward") in cells


def test_without_time(tmp_path: Path) -> None:
    for command in (quantized.main, coded.main):
        found = run(command, tmp_path, "--deadline", "0")
        assert found.exit_code == 0 and "no time was left" in found.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("label", ["forward", "backward"])
def test_a_wrong_code_is_not_timed(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = coded.calls

    def wrong(op: str, gate: str, saved: str, x: torch.Tensor, dy: torch.Tensor) -> dict:
        found = right(op, gate, saved, x, dy)
        if saved == "4 bits":
            found[label] = lambda call=found[label]: coded.first(call()) * 1.1
        return found

    monkeypatch.setattr(coded, "calls", wrong)
    found = run(coded.main, tmp_path)
    assert found.exit_code == 1 and "saving 4 bits" in found.output
    assert not list(tmp_path.iterdir())
