"""Replaced models under torch's tools and transformers': distributed training, checkpointing,
torch.func, tracing, generation. Each before and after the replacement."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.replace.equivalence.outcomes import MODELS, Gated, every_mode, replace
from tests.replace.replacements import error

MAKERS = [make for make, *_ in MODELS.values()]
every_model = pytest.mark.parametrize("make", MAKERS, ids=MODELS)
before_and_after = pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def numbers(model: Module, x: torch.Tensor, call=None) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = (call or model)(x)
    gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    return [_local(t).detach() for t in (y, *gradients)]


def _local(t: torch.Tensor) -> torch.Tensor:
    return t.full_tensor() if isinstance(t, DTensor) else t


def changed(model: Module, mode: str, is_before: bool, change) -> Module:
    """Replaced before or after a change of another kind."""
    if is_before:
        replace(model, mode)
        return change(model)
    model = change(model)
    replace(model, mode)
    return model


@every_model
@every_mode
@before_and_after
def test_fully_shard(make, mode, is_before, mesh):
    model, x = make().double(), torch.randn(4, 6, dtype=torch.float64)
    expected = numbers(model, x)
    model = changed(model, mode, is_before, lambda model: fully_shard(model, mesh=mesh))
    assert error(numbers(model, x), expected) < 1e-12


def test_a_second_call_after_fully_shard(mesh):
    """Whose class is derived from ours: what is fused stays so, and no more is said to be."""
    model, x = Gated().double(), torch.randn(4, 6, dtype=torch.float64)
    expected = numbers(model, x)
    replace(model, "plain")
    fully_shard(model, mesh=mesh)
    assert not replace(model, "recompute").changed
    assert error(numbers(model, x), expected) < 1e-12


@every_model
@every_mode
@before_and_after
def test_data_parallel(make, mode, is_before, mesh):
    model, x = make().double(), torch.randn(4, 6, dtype=torch.float64)
    expected = numbers(model, x)
    model = changed(model, mode, is_before, DistributedDataParallel)
    model(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert error(found, expected[2:]) < 1e-12


@every_mode
@before_and_after
def test_tensor_parallel(mode, is_before, mesh):
    model, x = Gated().double(), torch.randn(4, 6, dtype=torch.float64)
    plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel()}
    plan["down_proj"] = RowwiseParallel()
    expected = numbers(model, x)
    model = changed(model, mode, is_before, lambda model: parallelize_module(model, mesh, plan))
    assert error(numbers(model, x), expected) < 1e-12


@every_model
@every_mode
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(make, mode, use_reentrant):
    model, x = make().double(), torch.randn(4, 6, dtype=torch.float64)
    expected = numbers(model, x)
    replace(model, mode)

    def call(x):
        return checkpoint(model, x, use_reentrant=use_reentrant)

    if use_reentrant:  # it takes backward() alone
        call(x.clone().requires_grad_()).square().sum().backward()
        found = [parameter.grad for parameter in model.parameters()]
        assert error(found, expected[2:]) < 1e-12
    else:
        assert error(numbers(model, x, call), expected) < 1e-12


@every_model
@every_mode
def test_torch_func(make, mode):
    model, x = make().double(), torch.randn(4, 6, dtype=torch.float64)
    models = [copy.deepcopy(model) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state([make().double() for _ in range(3)])

    def ensemble(x):
        def call(parameters, buffers):
            return torch.func.functional_call(model, (parameters, buffers), (x,))

        return torch.vmap(call)(parameters, buffers)

    def results():
        one = {name: parameter[0] for name, parameter in parameters.items()}

        def loss(one, x):
            return torch.func.functional_call(model, one, (x,)).square().sum()

        values, tangents = torch.func.jvp(model, (x,), (torch.ones_like(x),))
        gradients = torch.func.grad(loss)(one, x)
        hessian = torch.func.hessian(loss, argnums=1)(one, x[:1])
        per_sample = torch.vmap(torch.func.grad(loss), (None, 0))(one, x)
        return [ensemble(x), values, tangents, hessian, *gradients.values(), *per_sample.values()]

    expected = [t.detach() for t in results()]
    replace(model, mode)
    assert error([t.detach() for t in results()], expected) < 1e-12
    assert len(models) == 3


@every_model
@every_mode
def test_gradcheck(make, mode):
    model = make().double()
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    replace(model, mode)
    assert torch.autograd.gradcheck(model, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(model, x)


@every_model
@every_mode
def test_traces(make, mode):
    model, x = make().double(), torch.randn(4, 6, dtype=torch.float64)
    expected = model(x).detach()
    replace(model, mode)
    program = torch.export.export(model, (x,), strict=False).module()
    graph = torch.fx.experimental.proxy_tensor.make_fx(model)(x)
    for traced in (program, graph):
        assert error([traced(x).detach()], [expected]) < 1e-12
    with torch.device("meta"):
        assert make().to("meta")(x.to("meta").float()).shape == expected.shape


@every_mode
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
def test_generate_and_gradient_checkpointing(mode):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, eos_token_id=None, bos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).double().eval()
    tokens = torch.arange(12).view(2, 6)
    expected = model.generate(tokens, max_new_tokens=8, do_sample=False)

    def gradients():
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected_gradients = gradients()
    replace(model, mode)
    assert torch.equal(model.generate(tokens, max_new_tokens=8, do_sample=False), expected)
    model.train().gradient_checkpointing_enable()
    assert error(gradients(), expected_gradients) < 1e-10
