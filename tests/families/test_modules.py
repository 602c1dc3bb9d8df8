"""The modules of gelu_kernels.nn: each computes its function, and can be copied and printed."""

import copy
import inspect
import pickle

import pytest
import torch
from torch import Tensor

from gelu_kernels import nn, reference
from gelu_kernels.operators.table import PUBLIC
from gelu_kernels.operators.workloads import formula_of
from tests.calls import APPROXIMATE, GATES, SEED, Sample, call_of, positive
from tests.cases import each

ROWS = {name: row for row in PUBLIC for name in row.modules}


def parameters(name: str) -> set[str]:
    """The names of the constructor's parameters."""
    return set(inspect.signature(getattr(nn, name)).parameters)


def selected(name: str, gate: str) -> dict[str, str]:
    """The argument of the constructor that chooses the gate."""
    given = {"gate": gate, "approximate": APPROXIMATE[gate]}
    return {keyword: given[keyword] for keyword in given.keys() & parameters(name)}


CASES = [
    (name, gate)
    for name, row in ROWS.items()
    for gate in ([row.modules[name]] if row.modules[name] else GATES)
    if None not in selected(name, gate).values()
]


def build(name: str, gate: str, **options: object) -> torch.nn.Module:
    """For inputs of six features."""
    sizes = {"features": 6, "in_features": 6, "out_features": 5, "dtype": torch.float64}
    taken = {argument: sizes[argument] for argument in sizes.keys() & parameters(name)}
    module = getattr(nn, name)(**taken, **selected(name, gate), **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    if "scale" in dict(module.named_parameters()):
        module.scale.data = positive(module.scale.data)
    return module


def expected(name: str, gate: str, module: torch.nn.Module, x: Tensor) -> Tensor:
    """The formula with the module's own parameters."""
    own = dict(module.named_parameters())
    if "weight" in own:
        x = torch.nn.functional.linear(x, own.pop("weight"))
    (y,) = Sample(call_of(ROWS[name]), gate, [x, *own.values()]).expected()
    return y


def test_every_module_is_here() -> None:
    with_linear = {"GateLinear", "GLULinear", "MLP"}  # test_linear.py
    modules = {name for name, _ in inspect.getmembers(nn, inspect.isclass)}
    assert modules - with_linear == set(ROWS)


@each(case=CASES)
def test_values_and_gradients(case: tuple[str, str], device: str) -> None:
    name, gate = case
    module = build(name, gate).to(device)
    # The last shape is large enough that similar gates draw different masks.
    for shape in ((6,), (3, 6), (100, 80, 6)):
        x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        leaves = [x, *module.parameters()]
        torch.manual_seed(SEED)
        y, e = module(x), expected(name, gate, module, x)
        torch.testing.assert_close(y, e)
        ours, theirs = (torch.autograd.grad(t.square().sum(), leaves) for t in (y, e))
        torch.testing.assert_close(ours, theirs)


def saving(name: str) -> list[dict[str, object]]:
    if "save" not in parameters(name):
        return [{}]
    return [{}, {"save": "8bit"}, {"save": "4bit", "dither": True}]


@each(case=[(*case, options) for case in CASES for options in saving(case[0])])
def test_copies_and_representation(case: tuple[str, str, dict[str, object]]) -> None:
    name, gate, options = case
    module = build(name, gate, **options)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    for keyword, value in (selected(name, gate) | options).items():
        assert f"{keyword}={value!r}" in repr(module)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is type(module) and repr(other) == repr(module)
        results = []
        for m in (module, other):
            torch.manual_seed(SEED)
            y = m(x)
            results.append([y, *torch.autograd.grad(y.sum(), x)])
        assert all(map(torch.equal, *results))


def test_linear_gelu_without_bias() -> None:
    layer = nn.LinearGELU(7, 5, bias=False, dtype=torch.float64)
    x = torch.randn(3, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference.gelu(x @ layer.weight.T))


def test_bias_gelu_starts_at_zero(device: str) -> None:
    module = nn.BiasGELU(5, device=device)
    assert list(module.state_dict()) == ["bias"]
    assert torch.equal(module.bias, torch.zeros(5, device=device))
    torch.nn.init.normal_(module.bias)
    module.reset_parameters()
    assert not module.bias.any()


@each(case=[case for case in CASES if ROWS[case[0]].is_random])
def test_in_evaluation_nothing_is_drawn(case: tuple[str, str], device: str) -> None:
    name, gate = case
    module = build(name, gate).to(device).eval()
    x = torch.randn(50, 6, dtype=torch.float64, device=device)
    y = formula_of(ROWS[name], getattr(reference, gate), reference.DISTRIBUTIONS[gate])(
        x, *module.parameters()
    )
    torch.testing.assert_close(module(x), y)


def test_silu_is_not_in_place() -> None:
    assert repr(nn.SiLU(inplace=False)) == "SiLU()"
    with pytest.raises(ValueError, match="nn.SiLU: inplace must be False, got True"):
        nn.SiLU(inplace=True)
