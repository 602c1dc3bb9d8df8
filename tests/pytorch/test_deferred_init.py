"""Models built on the meta device and initialised later by each module's reset_parameters."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Module

from tests.calls import SEED
from tests.cases import each
from tests.pytorch.module_cases import SHAPE, Case, every_case
from tests.replace.equivalence.outcomes import MODELS, MODES, replace

MAKERS = [make for make, *_ in MODELS.values()]


def state(model: Module) -> dict[str, Tensor]:
    """The parameters and all buffers, also those that a state dict leaves out."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def on_meta(make: Case) -> Module:
    with torch.device("meta"):
        model = make()
    assert all(t.is_meta for t in state(model).values())
    return model


def give_memory(model: Module) -> None:
    """Filled with NaN, as fresh memory may happen to hold the initial values."""
    model.to_empty(device="cpu")
    with torch.no_grad():
        for t in state(model).values():
            t.fill_(torch.nan)


def initialise(model: Module) -> None:
    torch.manual_seed(SEED)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def made_directly(make: Case) -> Module:
    torch.manual_seed(SEED)
    return make()


def assert_same(model: Module, expected: Module) -> None:
    """The state and the result of a call, bit by bit."""
    found, wanted = state(model), state(expected)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    x, results = torch.randn(SHAPE), []
    for module in (model, expected):
        torch.manual_seed(1)
        results.append(module(x))
    assert torch.equal(*results)


@every_case
def test_modules(case: Case) -> None:
    model = on_meta(case)
    give_memory(model)
    initialise(model)
    assert_same(model, made_directly(case))


@each(make=MAKERS, is_on_meta=[True, False], mode=MODES)
def test_replaced_models(make, is_on_meta: bool, mode: str) -> None:
    model = on_meta(make)
    if is_on_meta:
        replace(model, mode)
    give_memory(model)
    if not is_on_meta:
        replace(model, mode)
    initialise(model)
    expected = made_directly(make)
    replace(expected, mode)
    assert_same(model, expected)


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*DTensor random operators")
@every_case
def test_fully_shard(case: Case, mesh) -> None:
    """FSDP2's recipe on one rank; distributed/networks.py runs it on several."""
    model = on_meta(case)
    fully_shard(model, mesh=mesh)
    give_memory(model)
    initialise(model)
    for name, t in state(made_directly(case)).items():
        found = state(model)[name]
        assert torch.equal(found.full_tensor() if hasattr(found, "full_tensor") else found, t)
