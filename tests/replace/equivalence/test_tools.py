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

from tests.cases import each
from tests.replace.equivalence.outcomes import (
    MODELS,
    MODES,
    Gated,
    each_model,
    inputs,
    replace,
)
from tests.replace.replacements import compute, error


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def numbers(model: Module, x: torch.Tensor) -> list[torch.Tensor]:
    return [t.full_tensor() if isinstance(t, DTensor) else t for t in compute(model, x)]


def changed(model: Module, mode: str, is_before: bool, change) -> Module:
    """The model replaced before or after a change of another kind."""
    if is_before:
        replace(model, mode)
        return change(model)
    model = change(model)
    replace(model, mode)
    return model


@each_model(is_before=[True, False])
def test_fully_shard(name, mode, is_before, mesh):
    model, x = MODELS[name][0]().double(), inputs()
    expected = numbers(model, x)
    model = changed(model, mode, is_before, lambda model: fully_shard(model, mesh=mesh))
    assert error(numbers(model, x), expected) < 1e-12


def test_a_second_call_after_fully_shard(mesh):
    """fully_shard derives from our class: its fusions stay, and nothing new is reported."""
    model, x = Gated().double(), inputs()
    expected = numbers(model, x)
    replace(model, "plain")
    fully_shard(model, mesh=mesh)
    assert not replace(model, "recompute").changed
    assert error(numbers(model, x), expected) < 1e-12


@each_model(is_before=[True, False])
def test_data_parallel(name, mode, is_before, mesh):
    model, x = MODELS[name][0]().double(), inputs()
    expected = numbers(model, x)
    model = changed(model, mode, is_before, DistributedDataParallel)
    model(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert error(found, expected[2:]) < 1e-12


@each(mode=MODES, is_before=[True, False])
def test_tensor_parallel(mode, is_before, mesh):
    model, x = Gated().double(), inputs()
    plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel()}
    plan["down_proj"] = RowwiseParallel()
    expected = numbers(model, x)
    model = changed(model, mode, is_before, lambda model: parallelize_module(model, mesh, plan))
    assert error(numbers(model, x), expected) < 1e-12


@each_model(use_reentrant=[True, False])
def test_checkpoint(name, mode, use_reentrant):
    model, x = MODELS[name][0]().double(), inputs()
    expected = numbers(model, x)
    replace(model, mode)

    x.requires_grad_()
    checkpoint(model, x, use_reentrant=use_reentrant).square().sum().backward()
    found = [x.grad, *(parameter.grad for parameter in model.parameters())]
    assert error(found, expected[1:]) < 1e-12


@each_model()
def test_torch_func(name, mode):
    model, x = MODELS[name][0]().double(), inputs()
    models = [MODELS[name][0]().double() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)

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


@each_model()
def test_gradcheck(name, mode):
    model = MODELS[name][0]().double()
    x = inputs()[:2].requires_grad_()
    replace(model, mode)
    assert torch.autograd.gradcheck(model, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(model, x)


@each_model()
def test_traces(name, mode):
    model, x = MODELS[name][0]().double(), inputs()
    expected = model(x).detach()
    replace(model, mode)
    program = torch.export.export(model, (x,), strict=False).module()
    graph = torch.fx.experimental.proxy_tensor.make_fx(model)(x)
    for traced in (program, graph):
        assert error([traced(x).detach()], [expected]) < 1e-12
    assert copy.deepcopy(model).to("meta")(x.to("meta")).shape == expected.shape


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
@each(lambda mode: mode != "both", mode=MODES)
def test_generate_and_gradient_checkpointing(mode):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch.default_generator.manual_seed(0)
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
