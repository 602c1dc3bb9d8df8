"""What test_distributed.py has each rank of a torchrun check; rank 0 prints the outcomes as JSON.

Whole tensors are the same on all ranks. What a rank computes of its own parts is compared with
PyTorch's GELU of the whole in float64, and with soi_oracle.py for masks.
"""

import itertools
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache, partial

import pytest
import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import grad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.functional import gelu, silu
from torch.nn.parallel import DistributedDataParallel
from torch.special import ndtr
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests import ROOT, bits
from tests.calls import CORE_CALLS, PUBLIC_CALLS, SEED, Call, Sample
from tests.oracles import soi_oracle

sys.path.insert(0, str(ROOT / "examples"))
import transformer

from gelu_kernels import functional
from gelu_kernels.distributed.tensor_parallel import ColwiseParallel, RowwiseParallel
from gelu_kernels.nn import MLP as OurMLP
from gelu_kernels.nn import CDFGate, GateLinear, GLULinear, LinearGELU, SOIMap
from gelu_kernels.operators.types import Extent

ops = torch.ops.gelu_kernels
R, P, S0, S1, S2 = Replicate(), Partial(), Shard(0), Shard(1), Shard(2)
SHAPE = (5, 6, 7)  # no dimension divides into 4, the first leaves a rank of 4 without any

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


@cache
def mesh(*shape: int) -> DeviceMesh:
    names = ("dp", "tp")[-len(shape) :]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def line() -> DeviceMesh:
    return mesh(dist.get_world_size())


def grid() -> DeviceMesh:
    return mesh(2, dist.get_world_size() // 2)


def distributed(whole: Tensor, mesh: DeviceMesh, placements: list[Placement]) -> DTensor:
    """As placed. A pending sum has parts that no other rank has."""
    for i, p in enumerate(placements):
        if p.is_partial():
            weights = [3.0, -1.0, 0.5, 0.25][: mesh.size(i)]
            weight = weights[mesh.get_local_rank(i)] / sum(weights)
            whole = whole * weight * (mesh.size(i) if p.is_partial("avg") else 1)
    placed = [R if p.is_partial() else p for p in placements]
    local = distribute_tensor(whole, mesh, placed, src_data_rank=None).to_local()
    return DTensor.from_local(
        local, mesh, placements, shape=whole.shape, stride=whole.stride()
    ).detach()


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """To the rounding of sums of some hundred terms in float64."""
    actual = actual.full_tensor() if isinstance(actual, DTensor) else actual
    error = (actual.detach() - expected.detach()).abs().max()
    assert error <= 1e-13 * max(expected.detach().abs().max(), 1), float(error)


def meshes_and_placements() -> Iterator[tuple[DeviceMesh, list[Placement]]]:
    for p in (R, P, S0, S1, S2):
        yield line(), [p]
    if dist.get_world_size() == 4:
        for pair in ((S0, S2), (S1, S2), (S2, S0), (S0, S0), (R, S2), (P, S1), (S2, P)):
            yield grid(), list(pair)


def leaf(t: Tensor) -> Tensor:
    return t.detach().requires_grad_()


Choice = dict[str, list[Placement]]


def choices(call: Call, mesh: DeviceMesh, of_x: list[Placement]) -> Iterator[Choice]:
    """Placements of the tensors, and of dy, beside one of x: alike, pending, or cut elsewhere."""
    for others in (of_x, [P] * mesh.ndim, [S1] * mesh.ndim):
        of_tensors = {name: beside(name, extent, others) for name, extent in call.tensors.items()}
        yield {"dy": others, **of_tensors, "x": of_x}
    if "bias" in call.tensors:
        yield dict.fromkeys(("x", "dy", *call.tensors), of_x) | {"bias": [S0] * mesh.ndim}


def beside(name: str, extent: Extent, others: list[Placement]) -> list[Placement]:
    """A tensor's placements, for those of the matrices. loc and scale are no sums that are pending:
    the parts of a scale may not be negative."""
    match extent:
        case Extent.NUMBER:
            return [R] * len(others)
        case Extent.ROWS:
            return [R if p == S2 else p for p in others]
        case Extent.COLUMNS:
            pending = P if name == "bias" else R
            return [S0 if p == S2 else pending if p == P else R for p in others]
    return others


def parts_of(sample: Sample, mesh: DeviceMesh, choice: Choice) -> list[Tensor]:
    return [
        leaf(distributed(t, mesh, choice[name])) if t.is_floating_point() else t
        for name, t in sample.named().items()
    ]


@check
def public_operators_and_their_gradients():
    for call in PUBLIC_CALLS:
        torch.manual_seed(0)
        sample = call.sample(SHAPE, gate=call.gates[-1])
        whole = sample.leaves()
        (y,) = sample.expected(*whole)
        dy = random(*SHAPE, seed=1)
        gradients = grad(y, whole, dy)
        for mesh, of_x in meshes_and_placements():
            for choice in choices(call, mesh, of_x):
                parts = parts_of(sample, mesh, choice)
                seed_each_rank()
                (part_y,) = call(*parts, gate=sample.gate)
                assert_close(part_y, y)
                found = grad(part_y, parts, distributed(dy, mesh, choice["dy"]))
                for part, expected in zip(found, gradients, strict=True):
                    assert_close(part, expected)


@check
def core_operators():
    """The calls without a mask or a code, which only a forward pass on the same mesh makes."""
    for call in CORE_CALLS:
        if {"mask", "code"} & call.tensors.keys():
            continue
        torch.manual_seed(0)
        sample = call.sample(SHAPE)
        expected = sample.expected()
        for mesh, of_x in meshes_and_placements():
            for choice in choices(call, mesh, of_x):
                results = call(*(t.detach() for t in parts_of(sample, mesh, choice)))
                for part, whole in zip(results, expected, strict=True):
                    if part.is_floating_point():
                        assert_close(part, whole)


@check
def coded_derivatives():
    """Nearest codes and random ones: the gradients of one process, to the order of a sum."""
    x, bias, dy = (random(*SHAPE, seed=i) for i in range(3))
    bias = bias[0, 0]

    def results(x, bias, dy, save, seed):
        x, bias = leaf(x), leaf(bias)
        y = ops.fused_bias_gelu(x, bias, save=save, seed=seed)
        return y, *grad(y, (x, bias), dy)

    for save, seed in itertools.product(("8bit", "4bit"), (None, torch.tensor(5))):
        whole = results(x, bias, dy, save, seed)
        for mesh, of_x in meshes_and_placements():
            of_bias = [S0 if p == S2 else R for p in of_x]
            placements = of_x, of_bias, of_x
            tensors = (
                distributed(t, mesh, p) for t, p in zip((x, bias, dy), placements, strict=True)
            )
            for part, expected in zip(results(*tensors, save, seed), whole, strict=True):
                assert_close(part, expected)


@check
def second_derivatives():
    x, bias, dy, ddx = (random(*SHAPE, seed=i) for i in range(4))
    bias = bias[0, 0]

    def derivatives(x, bias, dy, ddx, bias_gelu):
        x, bias, dy = leaf(x), leaf(bias), leaf(dy)
        (dx,) = grad(bias_gelu(x, bias), x, dy, create_graph=True)
        return grad(dx, (dy, x, bias), ddx)

    whole = derivatives(x, bias, dy, ddx, lambda x, bias: gelu(x + bias))
    for mesh, of_x in meshes_and_placements():
        of_bias = [S0 if p == S2 else R for p in of_x]
        for of_dy, of_ddx in ((of_x, of_x), ([P] * mesh.ndim, of_x), (of_x, [P] * mesh.ndim)):
            placements = of_x, of_bias, of_dy, of_ddx
            tensors = (
                distributed(t, mesh, p) for t, p in zip((x, bias, dy, ddx), placements, strict=True)
            )
            for part, expected in zip(
                derivatives(*tensors, functional.bias_gelu), whole, strict=True
            ):
                assert_close(part, expected)


@check
def each_rank_computes_its_own_part():
    """Without communication, wherever that is possible; as placed as torch's own GELU."""
    bias_of = {R: R, S0: R, S1: R, S2: S0}
    dbias_of = {R: R, S0: P, S1: P, S2: S0}
    x, bias, dy = random(4, 4, 4), random(4), random(4, 4, 4)
    for p in (R, S0, S1, S2):
        parts = [distributed(x, line(), [p]), distributed(bias, line(), [bias_of[p]])]
        parts = [leaf(t) for t in parts]
        for p_dy in [p, P] if p == R else [p]:
            part_dy = distributed(dy, line(), [p_dy])
            for function in (functional.bias_gelu, functional.bias_soi_map):
                # which does not count the broadcast of a seed
                with CommDebugMode() as communication:
                    y = function(*parts)
                    dx, dbias = grad(y, parts, part_dy)
                assert communication.get_total_counts() == 0, communication.get_comm_counts()
                assert y.placements == (p,)
                assert dx.placements == (p_dy,)
                assert dbias.placements == (P if p_dy == P else dbias_of[p],)
    for p in (R, S0, S1, S2, P):
        part = distributed(x, line(), [p])
        with CommDebugMode() as communication:
            y = functional.gelu(part)
        assert communication.get_total_counts() == (p == P)
        assert y.placements == gelu(part).placements, p


@check
def mean_may_stay_pending():
    x, dy = random(4, 8), random(4, 8, seed=1)
    whole = leaf(x)
    (dx,) = grad(gelu(whole), whole, dy)
    part = leaf(distributed(x, line(), [R]))
    mean = distributed(dy, line(), [Partial("avg")])
    (part_dx,) = grad(functional.gelu(part), part, mean)
    assert part_dx.placements == (Partial("avg"),)
    assert_close(part_dx, dx)
    # On another dimension of the mesh dbias may be a sum: with a bias the mean is reduced first.
    kept = soi_oracle.kept(x, None, first_seed(), "normal")
    bias = leaf(distributed(torch.zeros(8, dtype=torch.float64), line(), [R]))
    for function, expected in (
        (functional.bias_gelu, dx),
        (functional.bias_soi_map, soi_oracle.select(kept, dy)),
    ):
        seed_each_rank()
        part_dx, part_dbias = grad(function(part, bias), (part, bias), mean)
        assert_close(part_dx, expected)
        assert_close(part_dbias, expected.sum(0))


@check
def quantized_operators():
    """Without communication where a rank's rows are whole blocks, and the same bits anyhow."""
    ranks = dist.get_world_size()
    choices = [
        {"scaling": "TensorWise", "scale": torch.ones(())},
        {"scaling": "RowWise"},
        {"scaling": "BlockWise1x128"},
        {"along": "both"},
        {"along": "row", "swizzle": "SWIZZLE_32_4_4"},
        {"along": "both", "swizzle": "SWIZZLE_32_4_4"},
    ]
    for rows, chosen in itertools.product((32, 128 * ranks), choices):
        x, dy = (random(rows, 128, seed=i).float() for i in range(2))
        bias = random(128, seed=2).float()
        is_mx = "scaling" not in chosen
        whole = [functional.quantized_gate(x, bias, **chosen)]
        parts = [distributed(x, line(), [S0]), distributed(bias, line(), [R])]
        placed = dict(chosen)
        if "scale" in chosen:
            placed["scale"] = distributed(chosen["scale"], line(), [R])
        with CommDebugMode() as communication:
            found = [functional.quantized_gate(*parts, **placed)]
            if is_mx:
                part_dy = distributed(dy, line(), [S0])
                found.append(functional.quantized_gate_backward(part_dy, *parts, **placed))
        # A rank's part of 32 rows is less than a block; swizzled scales of columns need the whole.
        has_parts = not is_mx or (rows > 32 and chosen != choices[-1])
        assert (communication.get_total_counts() == 0) == has_parts, chosen
        if is_mx:
            whole.append(functional.quantized_gate_backward(dy, x, bias, **chosen))
        for part, expected in zip(tree_leaves(found), tree_leaves(whole), strict=True):
            (placement,) = part.placements
            if placement.is_partial():
                torch.testing.assert_close(part.full_tensor(), expected)  # a sum, or a maximum
                continue
            if placement.is_shard():  # gloo does not gather eight bits
                expected = expected.chunk(ranks, placement.dim)[dist.get_rank()]
            assert bits.same(part.to_local(), expected), chosen


# The SOI map. The ranks have seeds of their own; the seed of the first counts.


def first_seed() -> int:
    generator = torch.Generator().manual_seed(SEED)
    return int(torch.empty((), dtype=torch.long).random_(2**63 - 1, generator=generator))


def seed_each_rank() -> None:
    torch.manual_seed(SEED + dist.get_rank())


@check
def soi_map_of_other_shapes():
    for shape in ((), (1,), (0,), (3,), (1, 9), (2, 0, 3), (1, 5, 6), (3, 1, 17), (2, 3, 4, 5)):
        x = random(*shape)
        kept = soi_oracle.kept(x, None, first_seed(), "normal")
        for placements in itertools.product([R, *map(Shard, range(x.ndim))], repeat=2):
            seed_each_rank()
            part = leaf(distributed(x, grid(), list(placements)))
            y = functional.soi_map(part)
            assert y.shape == x.shape
            assert torch.equal(y.full_tensor(), soi_oracle.select(kept, x)), (shape, placements)
            (dx,) = grad(y, part, part.detach())
            assert torch.equal(dx.full_tensor(), soi_oracle.select(kept, x))


@check
def soi_map_with_a_number():
    """A number, and the other parameter that is not given, are replicated."""
    x, two = random(*SHAPE), torch.tensor(2.0, dtype=torch.float64)
    kept = soi_oracle.kept(x, None, first_seed(), "normal", loc=0 * two, scale=two)
    for p in (R, S0, S1, S2):
        part = distributed(x, line(), [p])
        seed_each_rank()
        with CommDebugMode() as communication:
            y = functional.soi_map(part, scale=2.0)
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        assert y.placements == (p,)
        assert torch.equal(y.full_tensor(), soi_oracle.select(kept, x))


@check
def soi_map_is_linear_for_its_mask():
    """Double backward, and activation checkpointing, which draws the mask again."""
    x, bias, dy, ddx = (random(*SHAPE, seed=i) for i in range(4))
    bias = bias[0, 0]
    kept = soi_oracle.kept(x, bias, first_seed(), "normal")
    for p in (R, S0, S1, S2):
        seed_each_rank()
        part, part_dy = (leaf(distributed(t, line(), [p])) for t in (x, dy))
        part_bias = leaf(distributed(bias, line(), [S0 if p == S2 else R]))
        y = checkpoint(functional.bias_soi_map, part, part_bias, use_reentrant=False)
        dx, dbias = grad(y, (part, part_bias), part_dy, create_graph=True)
        assert_close(dx, soi_oracle.select(kept, dy))
        assert_close(dbias, soi_oracle.select(kept, dy).sum((0, 1)))
        (ddy,) = grad((dx, dbias), part_dy, (distributed(ddx, line(), [p]), dbias.detach()))
        assert_close(ddy, soi_oracle.select(kept, ddx + dbias.full_tensor()))


@check
def soi_map_of_plain_parts():
    """The recipe of docs/distributed.md for DDP and FSDP, whose activations are plain tensors."""
    x = random(8, 3)
    kept = soi_oracle.kept(x, None, first_seed(), "normal")
    seed_each_rank()
    local = leaf(x.chunk(dist.get_world_size())[dist.get_rank()])
    y = SOIMap()(DTensor.from_local(local, line(), [S0])).to_local()
    expected = soi_oracle.select(kept, x).chunk(dist.get_world_size())[dist.get_rank()]
    assert torch.equal(y, expected)
    y.backward(torch.ones_like(y))
    assert torch.equal(local.grad, (expected != 0).double())


@check
def soi_map_in_tensor_parallelism():
    x = random(4, 3, 8)
    for first, last in (
        (ColwiseParallel(use_local_output=False), RowwiseParallel()),
        (
            RowwiseParallel(input_layouts=R, use_local_output=False),
            ColwiseParallel(input_layouts=R, output_layouts=R),
        ),
    ):
        torch.manual_seed(0)
        linear = [nn.Linear(8, 12, dtype=torch.float64), nn.Linear(12, 8, dtype=torch.float64)]
        hidden = linear[0](x)
        kept = soi_oracle.kept(hidden, None, first_seed(), "normal")
        expected = linear[1](soi_oracle.select(kept, hidden))
        network = nn.Sequential(linear[0], SOIMap(), linear[1])
        parallelize_module(network, line(), {"0": first, "2": last})
        seed_each_rank()
        assert_close(network(x), expected)


@check
def dropout_draws_the_mask_of_the_whole():
    """Forward and backward, and again from a checkpoint; a second derivative."""
    tensors = x, up, dy = [random(*SHAPE, seed=i) for i in range(3)]
    bias = random(SHAPE[-1], seed=3)
    m = soi_oracle.not_dropped(SHAPE, first_seed(), 0.25)

    def of_bias(x: Tensor, bias: Tensor) -> Tensor:
        return soi_oracle.select(m, gelu(x + bias)) / 0.75

    def of_up(x: Tensor, up: Tensor) -> Tensor:
        return soi_oracle.select(m, gelu(x) * up) / 0.75

    for p in (R, S0, S1, S2):
        part_x, part_up, part_dy = (distributed(t, line(), [p]) for t in tensors)
        part_bias = distributed(bias, line(), [S0 if p == S2 else R])
        for function, formula, operands, parts in (
            (functional.bias_gelu_dropout, of_bias, (x, bias), (part_x, part_bias)),
            (functional.glu_dropout, of_up, (x, up), (part_x, part_up)),
        ):
            whole, own = list(map(leaf, operands)), list(map(leaf, parts))
            y = formula(*whole)
            seed_each_rank()
            part_y = checkpoint(partial(function, p=0.25), *own, use_reentrant=False)
            assert part_y.placements == (p,)
            assert_close(part_y, y)
            found = grad(part_y, own, part_dy, create_graph=True)
            expected = grad(y, whole, dy, create_graph=True)
            for one, other in zip(found, expected, strict=True):
                assert_close(one, other)
            (found,) = grad(found[0], own[:1], part_x)
            (expected,) = grad(expected[0], whole[:1], x)
            assert_close(found, expected)


@check
def dropout_of_halves():
    """A cut of the last dimension is taken back; others stay."""
    both, dy = random(4, 3, 16), random(4, 3, 8, seed=1)
    m = soi_oracle.not_dropped(dy.shape, first_seed(), 0.25)
    whole = leaf(both)
    x, up = whole.chunk(2, -1)
    y = soi_oracle.select(m, gelu(x) * up) / 0.75
    (dx,) = grad(y, whole, dy)
    for placements in itertools.product([R, S0, S1, S2], repeat=2):
        part = leaf(distributed(both, grid(), list(placements)))
        seed_each_rank()
        part_y = functional.glu_dropout(part, p=0.25)
        assert_close(part_y, y)
        (part_dx,) = grad(part_y, part, distributed(dy, grid(), part_y.placements))
        assert_close(part_dx, dx)


# Networks


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = LinearGELU(8, 12, dtype=torch.float64)
        self.down = nn.Linear(12, 8, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))


class TorchMLP(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(gelu(nn.functional.linear(x, self.up.weight, self.up.bias)))


class Recomputing(OurMLP):
    def __init__(self) -> None:
        super().__init__(8, 12, dtype=torch.float64)


class TorchRecomputing(Recomputing):
    def forward(self, x: Tensor) -> Tensor:
        hidden = gelu(self.up(x))
        return nn.functional.linear(hidden, self.down.weight, self.down.bias)


class RecomputingGLU(OurMLP):
    def __init__(self) -> None:
        super().__init__(8, 12, gate="logistic", glu=True, dtype=torch.float64)


class TorchRecomputingGLU(RecomputingGLU):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return nn.functional.linear(silu(gate) * up, self.down.weight, self.down.bias)


class AfterGate(nn.Module):
    """Of the layers that keep no result of a gate, on one process; with `plain`, in torch."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        self.plain = plain
        self.up = nn.Linear(8, 12, bias=False, dtype=torch.float64)
        self.middle = GateLinear(12, 8, dtype=torch.float64, gate_bias=True)
        self.first = nn.Linear(8, 12, dtype=torch.float64)
        self.second = nn.Linear(8, 12, dtype=torch.float64)
        self.down = GLULinear(12, 8, dtype=torch.float64)
        nn.init.normal_(self.middle.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        up, middle, down = self.up(x), self.middle, self.down
        if self.plain:
            hidden = gelu(up + middle.gate_bias)
            y = nn.functional.linear(hidden, middle.weight, middle.bias)
            hidden = gelu(self.first(y)) * self.second(y)
            return nn.functional.linear(hidden, down.weight, down.bias)
        y = middle(up)
        return down(self.first(y), self.second(y))


class Learnt(nn.Module):
    """Gates with a loc and a scale for all, and for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, dtype=torch.float64)
        self.one = CDFGate(loc=0.1, scale=2.0, dtype=torch.float64)
        self.each = CDFGate(loc=-0.1, scale=1.5, num_parameters=8, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.each(self.linear(self.one(x)))


class TorchLearnt(Learnt):
    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x * ndtr((x - self.one.loc) / self.one.scale))
        return x * ndtr((x - self.each.loc) / self.each.scale)


def steps(network: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The losses and the last gradients."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    losses = []
    for x, y in batches:
        loss = (network(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.grad for p in network.parameters())]


def build(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def batches() -> list[tuple[Tensor, Tensor]]:
    return [(random(8, 3, 8, seed=i), random(8, 3, 8, seed=i + 1)) for i in range(0, 8, 2)]


def my_batches(mesh: DeviceMesh) -> list[tuple[Tensor, Tensor]]:
    return [
        tuple(t.chunk(mesh.size())[mesh.get_local_rank()] for t in batch) for batch in batches()
    ]


def assert_trains_as_one_process(
    network: nn.Module, data: DeviceMesh | None, alone: Callable[[], nn.Module] = TorchMLP
) -> None:
    """`data` is the mesh over whose ranks the batches are divided."""
    expected = steps(build(alone), batches())
    losses, *gradients = steps(network, my_batches(data) if data else batches())
    if data:
        dist.all_reduce(losses, group=data.get_group())
        losses /= data.size()
    for actual, of_one_process in zip([losses, *gradients], expected, strict=True):
        assert_close(actual, of_one_process)


TENSOR_PARALLEL = {"up": ColwiseParallel(), "down": RowwiseParallel()}


@check
def distributed_data_parallel():
    assert_trains_as_one_process(DistributedDataParallel(build(MLP)), line())


@check
def fully_sharded():
    network = build(MLP)
    for layer in (network.up, network.down, network):
        fully_shard(layer, mesh=line())
    assert_trains_as_one_process(network, line())


@check
def fully_sharded_numbers():
    """A vector of one element is divided too: the first rank has it."""
    network = build(Learnt)
    for layer in (network.one, network.each, network):
        fully_shard(layer, mesh=line())
    assert network.one.loc.to_local().numel() == (dist.get_rank() == 0)
    assert_trains_as_one_process(network, line(), TorchLearnt)


@check
def numbers_that_are_dtensors():
    """Without FSDP, which gathers them: replicated, or on the first rank alone."""
    x, dy = random(4, 3, 8), random(4, 3, 8, seed=1)
    whole = build(TorchLearnt)
    expected = grad(whole(x), [*whole.parameters()], dy)
    for p in (R, S0):
        network = build(Learnt)
        for module in network.modules():
            for name, t in list(module.named_parameters(recurse=False)):
                part = distributed(t.detach(), line(), [p if module is network.one else R])
                setattr(module, name, nn.Parameter(part))
        y = network(distributed(x, line(), [S0]))
        found = grad(y, [*network.parameters()], distributed(dy, line(), [S0]))
        for part, of_one_process in zip(found, expected, strict=True):
            assert_close(part, of_one_process)


@check
def deferred_initialisation():
    """The recipe of FSDP2: memory and first values after the parameters are divided."""

    def make() -> nn.Module:
        return nn.Sequential(Learnt(), GateLinear(8, 8, gate_bias=True), OurMLP(8, 8))

    with torch.device("meta"):
        network = make()
    fully_shard(network, mesh=line())
    network.to_empty(device="cpu")
    for t in network.parameters():
        nn.init.constant_(t, torch.nan)
    for module in network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for t, of_one_process in zip(network.parameters(), make().parameters(), strict=True):
        numbers = t.full_tensor()
        if of_one_process.min() == of_one_process.max():
            assert torch.equal(numbers, of_one_process)
        else:  # nn.Linear draws from (-b, b) for b = 1/sqrt(8).
            assert ((numbers != 0) & (numbers.abs() <= 8**-0.5)).all()


@check
def tensor_parallel():
    network = parallelize_module(build(MLP), line(), TENSOR_PARALLEL)
    assert network.up.bias.placements == (S0,)
    assert_trains_as_one_process(network, None)


@check
def tensor_parallel_by_rows():
    """LinearGELU with the inputs divided: its product is pending when the bias comes to it."""
    plan = {"up": RowwiseParallel(input_layouts=R), "down": ColwiseParallel(output_layouts=R)}
    assert_trains_as_one_process(parallelize_module(build(MLP), line(), plan), None)


@check
def sharded_and_tensor_parallel():
    network = parallelize_module(build(MLP), grid()["tp"], TENSOR_PARALLEL)
    fully_shard(network, mesh=grid()["dp"])
    assert_trains_as_one_process(network, grid()["dp"])


@check
def recomputing_networks():
    for kind, alone in (
        (Recomputing, TorchRecomputing),
        (RecomputingGLU, TorchRecomputingGLU),
    ):
        network = build(kind)
        for layer in (network.up, network.down, network):
            fully_shard(layer, mesh=line())
        assert_trains_as_one_process(network, line(), alone)
    network = parallelize_module(build(Recomputing), line(), TENSOR_PARALLEL)
    assert network.down.weight.placements == (S1,)
    assert_trains_as_one_process(network, None, TorchRecomputing)
    network = parallelize_module(build(Recomputing), grid()["tp"], TENSOR_PARALLEL)
    fully_shard(network, mesh=grid()["dp"])
    assert_trains_as_one_process(network, grid()["dp"], TorchRecomputing)


@check
def layers_after_a_gate_are_tensor_parallel():
    colwise, rowwise = ColwiseParallel(), RowwiseParallel()
    plan = {"up": colwise, "first": colwise, "second": colwise, "middle": rowwise, "down": rowwise}
    network = parallelize_module(build(AfterGate), line(), plan)
    assert network.middle.weight.placements == network.down.weight.placements == (S1,)
    assert_trains_as_one_process(network, None, partial(AfterGate, plain=True))


@check
def weight_gradients():
    """Without communication where rows are cut, or columns of either, or a sum is pending."""
    x, up, dy = random(4, 6, 8), random(4, 6, 8, seed=1), random(4, 6, 12, seed=2)
    gate_bias = random(8, seed=3)
    expected_gate = dy.flatten(0, 1).t() @ gelu(x + gate_bias).flatten(0, 1)
    expected_glu = dy.flatten(0, 1).t() @ (gelu(x) * up).flatten(0, 1)
    for of_dy, of_x, of_dweight in (
        (R, R, R), (S0, S0, P), (S1, S1, P), (S2, R, S0), (R, S2, S1), (P, R, P)
    ):  # fmt: skip
        part_dy, part_x, part_up = (
            distributed(t, line(), [p]) for t, p in ((dy, of_dy), (x, of_x), (up, of_x))
        )
        part_bias = distributed(gate_bias, line(), [S0 if of_x == S2 else R])
        with CommDebugMode() as communication:
            of_gate = ops.gate_linear_backward_weight(part_dy, part_x, part_bias, "normal")
            of_glu = ops.glu_linear_backward_weight(part_dy, part_x, part_up, "normal")
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        assert of_gate.placements == of_glu.placements == (of_dweight,)
        assert_close(of_gate, expected_gate)
        assert_close(of_glu, expected_glu)


@check
def example_trains_as_one_process():
    names, ranks = ("", "data", "tensor"), dist.get_world_size()
    alone = init_device_mesh("cpu", (ranks, 1, 1), mesh_dim_names=names)["data", "tensor"]
    together = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=names[1:])
    images, labels = transformer.load_digits(return_X_y=True)
    transformer.load_digits = lambda return_X_y: (images[:512], labels[:512])  # two steps
    for soi in (False, True):
        (loss,) = transformer.train(together, 1, soi, torch.float64)
        if dist.get_rank() == 0:
            (expected,) = transformer.train(alone, 1, soi, torch.float64)
            assert abs(loss - expected) <= 1e-12 * expected, (loss, expected)


# The rest


@check
def inference_mode():
    x = random(*SHAPE)
    kept = soi_oracle.kept(x, None, first_seed(), "normal")
    with torch.inference_mode():
        part = distributed(x, line(), [S2])
        assert_close(functional.gelu(part), gelu(x))
        seed_each_rank()
        assert_close(functional.soi_map(part), soi_oracle.select(kept, x))


@check
def ranks_outside_the_mesh_have_nothing():
    members = dist.get_world_size() // 2
    part_of = DeviceMesh("cpu", list(range(members)))
    x, bias = random(*SHAPE), random(SHAPE[-1], seed=1)
    kept = soi_oracle.kept(x, bias, first_seed(), "normal")
    for function, expected in (
        (functional.bias_gelu, gelu(x + bias)),
        (functional.bias_soi_map, soi_oracle.select(kept, x + bias)),
    ):
        seed_each_rank()
        parts = leaf(distributed(x, part_of, [S0])), leaf(distributed(bias, part_of, [R]))
        y = function(*parts)
        dx, dbias = grad(y, parts, distributed(x, part_of, [S0]))
        assert y.shape == dx.shape == x.shape and dbias.shape == bias.shape
        if dist.get_rank() >= members:
            assert y.to_local().numel() == dx.to_local().numel() == dbias.to_local().numel() == 0
        else:
            assert_close(y, expected)


@check
def compiled():
    """The graphs are the same on all ranks, as torch.compile's cache takes them to be."""
    x, bias = random(8, 8), random(8, seed=1)
    graphs = []

    def keep(module: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    def function(x: Tensor, bias: Tensor) -> Tensor:
        return functional.soi_map(functional.bias_gelu(x, bias))

    y = gelu(x + bias)
    kept = soi_oracle.kept(y, None, first_seed(), "normal")
    whole = leaf(x)
    (dx,) = grad(gelu(whole + bias), whole, kept.double())
    backend = aot_autograd(fw_compiler=keep)
    for p in (S0, S1):
        seed_each_rank()
        part = leaf(distributed(x, line(), [p]))
        part_bias = distributed(bias, line(), [S0 if p == S1 else R])
        part_y = torch.compile(function, fullgraph=True, backend=backend)(part, part_bias)
        assert_close(part_y, soi_oracle.select(kept, y))
        (part_dx,) = grad(part_y, part, distributed(torch.ones_like(x), line(), [p]))
        assert_close(part_dx, dx)
    assert len(graphs) == 4  # two forward, two backward
    of_all = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, graphs)
    assert all(of_one == graphs for of_one in of_all)


@check
def errors_name_operator_and_argument():
    x, bias = random(*SHAPE), random(SHAPE[-1])
    part = distributed(x, line(), [S0])
    part_bias = distributed(bias, line(), [R])
    other = DeviceMesh("cpu", list(reversed(range(dist.get_world_size()))))
    other_bias = distributed(bias, other, [R])
    other_dy = distributed(x, other, [S0])
    y, mask = ops.soi_forward(part, None, torch.tensor(0), "normal")

    zeros = distributed(torch.zeros(27, dtype=torch.uint8), line(), [S0])
    zero = torch.tensor(0)
    d_zero = distributed(zero, line(), [R])
    short = distributed(random(3), line(), [R])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    uneven = DTensor.from_local(
        random(2 * rank, 3), line(), [S0], shape=(ranks * (ranks - 1), 3), stride=(3, 1)
    )
    bias_gelu, bias_soi_map, soi_map = (
        functional.bias_gelu, functional.bias_soi_map, functional.soi_map
    )  # fmt: skip
    backward, backward_bias = ops.soi_backward, ops.soi_backward_bias
    for error, message, call in (
        (RuntimeError, "gate_forward.*mixed torch.Tensor", lambda: bias_gelu(part, bias)),
        (RuntimeError, "gate_forward.*mesh", lambda: bias_gelu(part, other_bias)),
        (ValueError, "fused_bias_gelu: bias must be as long", lambda: bias_gelu(part, short)),
        (TypeError, "soi_forward: bias must be a DTensor", lambda: bias_soi_map(part, bias)),
        (TypeError, "soi_forward: x must be a DTensor", lambda: bias_soi_map(x, part_bias)),
        (
            TypeError,
            "soi_forward: x must be a DTensor",
            lambda: ops.soi_forward(x, None, d_zero, "normal"),
        ),
        (
            ValueError,
            "soi_forward: bias must be on the mesh",
            lambda: bias_soi_map(part, other_bias),
        ),
        (
            ValueError,
            "soi_forward: offset, row_length and row_stride must be 0",
            lambda: ops.soi_forward(part, None, zero, "normal", 3),
        ),
        (ValueError, "soi_forward: x must be cut as torch.chunk", lambda: soi_map(uneven)),
        (
            TypeError,
            "soi_cdf_forward: loc must be a DTensor",
            lambda: ops.soi_cdf_forward(part, bias, part_bias, zero, "normal"),
        ),
        (
            ValueError,
            "soi_cdf_forward: offset, row_length and row_stride must be 0",
            lambda: ops.soi_cdf_forward(part, part_bias, part_bias, zero, "normal", 0, 3),
        ),
        (ValueError, "soi_map: gate must be", lambda: soi_map(part, gate="nonsense")),
        (ValueError, "soi_backward: mask must be on the mesh", lambda: backward(other_dy, mask)),
        (TypeError, "soi_backward: mask must be a DT", lambda: backward(part, mask.to_local())),
        (ValueError, "soi_backward: mask must be a result", lambda: backward(part, zeros)),
        (TypeError, "soi_backward_bias: dy must be a DTensor", lambda: backward_bias(x, mask)),
    ):
        with pytest.raises(error, match=f"(?s){message}"):
            call()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    report = dist.new_group()  # which a check that fails on one rank does not confuse
    outcomes = {}
    for name in sys.argv[1:] or CHECKS:
        failure = None
        try:
            CHECKS[name]()
        except (Exception, pytest.fail.Exception):
            failure = traceback.format_exc()
        of_all = [None] * dist.get_world_size()
        dist.all_gather_object(of_all, failure, group=report)
        failures = [f"rank {rank}: {f}" for rank, f in enumerate(of_all) if f]
        outcomes[name] = "\n".join(failures)
        if 0 < len(failures) < dist.get_world_size():
            break  # the ranks are no longer at the same place
    if dist.get_rank() == 0:
        print(json.dumps(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
