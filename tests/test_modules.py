"""The modules of gelu_kernels.nn: each is its function, with parameters, copies and a name."""

import copy
import inspect
import pickle
from collections.abc import Callable

import pytest
import torch
from calls import APPROXIMATE, GATES, SEED
from torch import Tensor

from gelu_kernels import functional, nn, reference
from gelu_kernels.operators import PUBLIC

# From a gate to a module, for inputs of six features.
Build = Callable[[str], torch.nn.Module]
MODULES: dict[str, Build] = {
    "GELU": lambda gate: nn.GELU(APPROXIMATE[gate]),
    "BiasGELU": lambda gate: nn.BiasGELU(
        6, approximate=APPROXIMATE[gate], dtype=torch.float64
    ),
    "LinearGELU": lambda gate: nn.LinearGELU(
        6, 5, approximate=APPROXIMATE[gate], dtype=torch.float64
    ),
    "GEGLU": lambda gate: nn.GEGLU(APPROXIMATE[gate]),
    "SOIMap": lambda gate: nn.SOIMap(gate),
}  # fmt: skip
CASES = [
    (name, gate)
    for name in MODULES
    for gate in GATES
    if APPROXIMATE[gate] or name == "SOIMap"
]  # fmt: skip


def build(name: str, gate: str) -> torch.nn.Module:
    module = MODULES[name](gate)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def expected(name: str, gate: str, module: torch.nn.Module, x: Tensor) -> Tensor:
    """The formula, of the module's own parameters."""
    parameters = dict(module.named_parameters())
    if name == "LinearGELU":
        x = torch.nn.functional.linear(x, parameters.pop("weight"))
    row = next(row for row in PUBLIC if name in row.modules and len(row.operands) <= 2)
    operands = [x, *parameters.values()]
    return row.reference(getattr(reference, gate), *operands)


def test_every_module_is_here() -> None:
    classes = {name for name, found in inspect.getmembers(nn, inspect.isclass)
               if found.__module__ == nn.__name__}  # fmt: skip
    assert set(MODULES) == classes == {name for row in PUBLIC for name in row.modules}


@pytest.mark.parametrize("name, gate", [c for c in CASES if c[0] != "SOIMap"])
def test_values_and_gradients(name: str, gate: str, device: str) -> None:
    module = build(name, gate).to(device)
    for shape in ((6,), (3, 6), (2, 3, 6)):
        x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        leaves = [x, *module.parameters()]
        y, e = module(x), expected(name, gate, module, x)
        torch.testing.assert_close(y, e)
        ours, theirs = (torch.autograd.grad(t.square().sum(), leaves) for t in (y, e))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name, gate", CASES)
def test_copies_and_representation(name: str, gate: str) -> None:
    module = build(name, gate)
    x = torch.randn(3, 6, dtype=torch.float64)
    keyword = "gate" if name == "SOIMap" else "approximate"
    assert f"{keyword}={gate if keyword == 'gate' else APPROXIMATE[gate]!r}" in repr(module)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is type(module) and repr(other) == repr(module)
        results = []
        for m in (module, other):
            torch.manual_seed(SEED)
            results.append(m(x))
        assert torch.equal(*results)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_gelu_has_the_state_of_linear(bias: bool, tmp_path) -> None:
    torch.manual_seed(1)
    ours = nn.LinearGELU(7, 5, bias)
    torch.manual_seed(1)
    linear = torch.nn.Linear(7, 5, bias)
    assert ours.state_dict().keys() == linear.state_dict().keys()
    for a, b in zip(ours.parameters(), linear.parameters(), strict=True):
        assert torch.equal(a, b)  # the same initialisation
    for source, target in (
        (nn.LinearGELU(7, 5, bias), linear),
        (torch.nn.Linear(7, 5, bias), ours),
    ):
        torch.save(source.state_dict(), tmp_path / "state")
        target.load_state_dict(torch.load(tmp_path / "state"))
        for a, b in zip(source.parameters(), target.parameters(), strict=True):
            assert torch.equal(a, b)


def test_linear_gelu_without_bias() -> None:
    layer = nn.LinearGELU(7, 5, bias=False, dtype=torch.float64)
    x = torch.randn(3, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference.gelu(x @ layer.weight.T))


def test_linear_gelu_takes_device_and_dtype_where_linear_does() -> None:
    layer = nn.LinearGELU(7, 5, True, "meta", torch.bfloat16)
    assert layer.weight.is_meta and layer.bias.dtype == torch.bfloat16


def test_bias_gelu_starts_at_zero(device: str) -> None:
    module = nn.BiasGELU(5, device=device)
    assert list(module.state_dict()) == ["bias"]
    assert torch.equal(module.bias, torch.zeros(5, device=device))
    torch.nn.init.normal_(module.bias)
    module.reset_parameters()
    assert not module.bias.any()


@pytest.mark.parametrize("gate", GATES)
def test_soi_map_is_a_gate_in_evaluation(gate: str, device: str) -> None:
    layer = nn.SOIMap(gate)
    x = torch.randn(50, 60, device=device)
    torch.manual_seed(SEED)
    y = layer(x)
    torch.manual_seed(SEED)
    assert torch.equal(y, functional.soi_map(x, gate=gate))
    expected = getattr(reference, gate)(x.double()).float()
    torch.testing.assert_close(layer.eval()(x), expected)
