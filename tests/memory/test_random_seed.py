"""A gradient has the mask of its result, whatever is recomputed for backward."""

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from gelu_kernels import functional, reference
from tests.cases import each

P = 0.5
Act = Callable[[Tensor, Tensor], Tensor]  # of x and a bias


def soi_map(x: Tensor, bias: Tensor) -> Tensor:
    return functional.soi_map(x + bias)


def bias_gelu_dropout(x: Tensor, bias: Tensor) -> Tensor:
    return functional.bias_gelu_dropout(x, bias, P)


def coded_dropout(x: Tensor, bias: Tensor) -> Tensor:
    return functional.bias_gelu_dropout(x, bias, P, save="8bit")


def glu_dropout(x: Tensor, bias: Tensor) -> Tensor:
    return functional.glu_dropout(x, x + bias, P, gate="normal")


def dropped(x: Tensor) -> Tensor:
    return reference.gelu(x) / (1 - P)


# Each function, and what it computes where the mask is 1.
FORMS: dict[Act, Act] = {
    soi_map: torch.add,
    functional.bias_soi_map: torch.add,
    bias_gelu_dropout: lambda x, bias: dropped(x + bias),
    coded_dropout: lambda x, bias: dropped(x + bias),
    glu_dropout: lambda x, bias: dropped(x) * (x + bias),
}


class Blocks:
    """Three MLPs one after the other."""

    def __init__(self) -> None:
        shapes = [(32, 128), (128,), (128, 32)]
        self.weights = [[torch.randn(s) * s[0] ** -0.5 for s in shapes] for _ in range(3)]
        self.parameters = [t.requires_grad_() for block in self.weights for t in block]
        self.x = torch.randn(64, 32)

    def loss(self, act: Act, x: Tensor) -> Tensor:
        for up, bias, down in self.weights:
            x = x + act(x @ up, bias) @ down
        return x.square().sum()

    def gradients(self, act: Act, compiler: Callable = lambda f: f) -> list[Tensor]:
        loss = compiler(partial(self.loss, act))
        torch.manual_seed(1)
        return list(torch.autograd.grad(loss(self.x), self.parameters))

    def expected(self, act: Act) -> list[Tensor]:
        """The gradients in float64, with the masks that the functions draw."""
        masks = []

        def masked(x: Tensor, bias: Tensor) -> Tensor:
            if len(masks) < len(self.weights):
                with torch.no_grad():
                    masks.append(act(x.float(), bias.float()) != 0)
            return torch.where(masks[-1], FORMS[act](x, bias), 0)

        double = [[t.detach().double().requires_grad_() for t in block] for block in self.weights]
        torch.manual_seed(1)
        x = self.x.double()
        for up, bias, down in double:
            x = x + masked(x @ up, bias) @ down
        return list(torch.autograd.grad(x.square().sum(), [t for block in double for t in block]))


def error(actual: list[Tensor], expected: list[Tensor]) -> float:
    pairs = zip(actual, expected, strict=True)
    return max(float((a.double() - e).norm() / e.norm()) for a, e in pairs)


def compiler(backend: str = "aot_eager_decomp_partition") -> Callable:
    torch._dynamo.reset()
    return partial(torch.compile, fullgraph=True, backend=backend)


def bound(act: Act) -> float:
    """The derivative of a code is within 0.0025."""
    return 0.01 if act is coded_dropout else 1e-5


QUICK = [(bias_gelu_dropout, 0.5), (bias_gelu_dropout, 0.0), (soi_map, 0.5)]


@each(lambda case: case not in QUICK, case=[*QUICK, *product(FORMS, [0.9, 0.1])])
def test_partitioner_with_a_budget(case: tuple[Act, float]) -> None:
    """Without the operator's rules the errors are 0.4 to 1."""
    act, budget = case
    blocks = Blocks()
    with functorch_config.patch(activation_memory_budget=budget):
        gradients = blocks.gradients(act, compiler())
    assert error(gradients, blocks.expected(act)) < bound(act)


@pytest.mark.slow
def test_code_of_inductor_with_a_budget() -> None:
    blocks = Blocks()
    with functorch_config.patch(activation_memory_budget=0.5):
        gradients = blocks.gradients(bias_gelu_dropout, compiler("inductor"))
    assert error(gradients, blocks.expected(bias_gelu_dropout)) < 1e-5


@pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "region_activation_memory_budget"),
    reason="this torch has one budget for all regions",
)
@each(lambda budget: budget > 0, budget=[0.0, 0.5])
def test_region_with_a_budget(budget: float) -> None:
    blocks = Blocks()

    def within(loss: Callable) -> Callable:
        def region(x: Tensor) -> Tensor:
            with torch.autograd.graph.region_activation_memory_budget(budget):
                return loss(x)

        return compiler()(region)

    gradients = blocks.gradients(bias_gelu_dropout, within)
    assert error(gradients, blocks.expected(bias_gelu_dropout)) < 1e-5


@each(lambda randomness: randomness == "same", randomness=["different", "same"])
def test_partitioner_under_vmap(randomness: str) -> None:
    blocks = Blocks()
    x = torch.randn(2, 64, 32)

    def loss(x: Tensor) -> Tensor:
        of_one = partial(blocks.loss, bias_gelu_dropout)
        return torch.vmap(of_one, randomness=randomness)(x).sum()

    with functorch_config.patch(activation_memory_budget=1.0):
        torch.manual_seed(1)
        expected = torch.autograd.grad(compiler()(loss)(x), blocks.parameters)
    with functorch_config.patch(activation_memory_budget=0.5):
        torch.manual_seed(1)
        gradients = torch.autograd.grad(compiler()(loss)(x), blocks.parameters)
    assert error(gradients, [t.double() for t in expected]) < 1e-5


def test_dithering_with_a_budget() -> None:
    """The gradients with a budget of 1, where nothing random is recomputed."""
    blocks = Blocks()
    act = partial(functional.bias_gelu, save="4bit", dither=True)
    with functorch_config.patch(activation_memory_budget=1.0):
        expected = blocks.gradients(act, compiler())
    with functorch_config.patch(activation_memory_budget=0.5):
        gradients = blocks.gradients(act, compiler())
    assert error(gradients, [t.double() for t in expected]) < 1e-5


def is_ours(op: torch._ops.OpOverload) -> bool:
    return op.namespace == "gelu_kernels"


def is_random(op: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


SAVED: dict[str, Callable[[torch._ops.OpOverload], bool]] = {
    "nothing": lambda op: False,
    "everything": lambda op: True,
    "products": lambda op: op is torch.ops.aten.mm.default,
    "ours": is_ours,
    "torch's": lambda op: not is_ours(op),
    "torch's random": lambda op: is_random(op) and not is_ours(op),
    "all but random": lambda op: not is_random(op),
}


@each(act=FORMS, saved=SAVED.values())
def test_selective_checkpoint(act: Act, saved: Callable[[torch._ops.OpOverload], bool]) -> None:
    """Between torch's random operators, which keep their masks too."""
    x, bias = torch.randn(64, 32), torch.randn(32)
    weight = (torch.randn(32, 32) / 6).requires_grad_()
    masks = []

    def block(x: Tensor) -> Tensor:
        before = torch.rand_like(x) < 0.5
        hidden = act((x * before) @ weight, bias)
        after = torch.rand_like(hidden) < 0.5
        masks.append((before, hidden.detach() != 0, after))
        return hidden * after

    def policy(
        context: object, op: torch._ops.OpOverload, *args: object, **kwargs: object
    ) -> CheckpointPolicy:
        choice = CheckpointPolicy
        return choice.MUST_SAVE if saved(op) else choice.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    (gradient,) = torch.autograd.grad(y.square().sum(), weight)
    before, mask, after = masks[0]
    double = weight.detach().double().requires_grad_()
    hidden = FORMS[act]((x * before).double() @ double, bias.double())
    y = torch.where(mask & after, hidden, 0)
    (expected,) = torch.autograd.grad(y.square().sum(), double)
    assert error([gradient], [expected]) < bound(act)


def test_compiled_selective_checkpoint() -> None:
    blocks = Blocks()

    def policy(
        context: object, op: torch._ops.OpOverload, *args: object, **kwargs: object
    ) -> CheckpointPolicy:
        return CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)

    def checkpointed(loss: Callable) -> Callable:
        run = partial(checkpoint, loss, use_reentrant=False, context_fn=contexts)
        return compiler()(run)

    gradients = blocks.gradients(bias_gelu_dropout, checkpointed)
    assert error(gradients, blocks.expected(bias_gelu_dropout)) < 1e-5


def test_the_seed_alone_is_saved() -> None:
    """8 bytes, and neither the state of the generator nor the mask."""
    saved = []

    def partition(*args: object, **kwargs: object) -> tuple[torch.fx.GraphModule, ...]:
        forward, backward = min_cut_rematerialization_partition(*args, **kwargs)
        saved.extend(n.meta["val"] for n in backward.graph.find_nodes(op="placeholder"))
        return forward, backward

    compile_nothing = aot_autograd(fw_compiler=boxed_nop, partition_fn=partition)
    with functorch_config.patch(activation_memory_budget=0.5):
        Blocks().gradients(bias_gelu_dropout, compiler(compile_nothing))
    assert [t.nbytes for t in saved if not t.is_floating_point()] == [8, 8, 8]
