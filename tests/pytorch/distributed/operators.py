"""Every operator and its derivatives on DTensors, for all placements of the arguments."""

import itertools
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import grad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement
from torch.nn.functional import gelu

from gelu_kernels import functional
from gelu_kernels.operators.types import Extent
from tests.calls import CORE_CALLS, PUBLIC_CALLS, Call, Sample
from tests.pytorch.distributed.ranks import (
    S0,
    S1,
    S2,
    SHAPE,
    P,
    R,
    assert_close,
    check,
    distributed,
    grid,
    leaf,
    line,
    of_columns,
    random,
    seed_each_rank,
)

ops = torch.ops.gelu_kernels
Choice = dict[str, list[Placement]]


def meshes_and_placements() -> Iterator[tuple[DeviceMesh, list[Placement]]]:
    for p in (R, P, S0, S1, S2):
        yield line(), [p]
    if dist.get_world_size() == 4:
        for pair in ((S0, S2), (S1, S2), (S2, S0), (S0, S0), (R, S2), (P, S1), (S2, P)):
            yield grid(), list(pair)


def choices(call: Call, mesh: DeviceMesh, of_x: list[Placement]) -> Iterator[Choice]:
    """Placements of dy and the other tensors for one of x: like x, pending, or cut elsewhere."""
    for others in (of_x, [P] * mesh.ndim, [S1] * mesh.ndim):
        of_tensors = {
            name: placements_of(name, extent, others) for name, extent in call.tensors.items()
        }
        yield {"dy": others, **of_tensors, "x": of_x}
    if "bias" in call.tensors:
        yield dict.fromkeys(("x", "dy", *call.tensors), of_x) | {"bias": [S0] * mesh.ndim}


def placements_of(name: str, extent: Extent, of_matrices: list[Placement]) -> list[Placement]:
    """loc and scale are never pending sums: the parts of a scale may not be negative."""
    match extent:
        case Extent.NUMBER:
            return [R] * len(of_matrices)
        case Extent.ROWS:
            return [R if p == S2 else p for p in of_matrices]
        case Extent.COLUMNS:
            pending = P if name == "bias" else R
            return [S0 if p == S2 else pending if p == P else R for p in of_matrices]
    return of_matrices


def parts_of(sample: Sample, mesh: DeviceMesh, choice: Choice) -> list[Tensor]:
    return [
        leaf(distributed(t, mesh, choice[name])) if t.is_floating_point() else t
        for name, t in sample.named().items()
    ]


@check
def public_operators_and_their_gradients() -> None:
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
                assert_close(grad(part_y, parts, distributed(dy, mesh, choice["dy"])), gradients)


@check
def core_operators() -> None:
    """All but those with a mask or a code, which only a forward pass on the same mesh makes."""
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
def coded_derivatives() -> None:
    """Nearest and random codes: one process's gradients, up to the order of a sum."""
    x, bias, dy = random(*SHAPE), random(SHAPE[-1], seed=1), random(*SHAPE, seed=2)

    def results(
        save: str, seed: Tensor | None, x: Tensor, bias: Tensor, dy: Tensor
    ) -> list[Tensor]:
        x, bias = leaf(x), leaf(bias)
        y = ops.fused_bias_gelu(x, bias, save=save, seed=seed)
        return [y, *grad(y, (x, bias), dy)]

    for save, seed in itertools.product(("8bit", "4bit"), (None, torch.tensor(5))):
        of = partial(results, save, seed)
        whole = of(x, bias, dy)
        for mesh, of_x in meshes_and_placements():
            part_bias = distributed(bias, mesh, of_columns(of_x))
            part_x, part_dy = (distributed(t, mesh, of_x) for t in (x, dy))
            assert_close(of(part_x, part_bias, part_dy), whole)


@check
def second_derivatives() -> None:
    x, dy, ddx = (random(*SHAPE, seed=i) for i in (0, 2, 3))
    bias = random(SHAPE[-1], seed=1)

    def derivatives(x, bias, dy, ddx, bias_gelu):
        x, bias, dy = leaf(x), leaf(bias), leaf(dy)
        (dx,) = grad(bias_gelu(x, bias), x, dy, create_graph=True)
        return grad(dx, (dy, x, bias), ddx)

    whole = derivatives(x, bias, dy, ddx, lambda x, bias: gelu(x + bias))
    for mesh, of_x in meshes_and_placements():
        pending = [P] * mesh.ndim
        for of_dy, of_ddx in ((of_x, of_x), (pending, of_x), (of_x, pending)):
            placements = of_x, of_columns(of_x), of_dy, of_ddx
            tensors = map(distributed, (x, bias, dy, ddx), [mesh] * 4, placements)
            assert_close(derivatives(*tensors, functional.bias_gelu), whole)
