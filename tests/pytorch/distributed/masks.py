"""The SOI map and dropout: the ranks together draw the mask of the whole tensor."""

import itertools
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import grad
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional
from gelu_kernels.distributed.tensor_parallel import ColwiseParallel, RowwiseParallel
from gelu_kernels.nn import SOIMap
from tests.oracles import soi_oracle
from tests.pytorch.distributed.ranks import (
    S0,
    S1,
    S2,
    SHAPE,
    R,
    assert_close,
    check,
    distributed,
    drawn_mask,
    first_seed,
    grid,
    leaf,
    line,
    on_line,
    random,
    seed_each_rank,
)


@check
def soi_map_of_other_shapes() -> None:
    for shape in ((), (1,), (0,), (3,), (1, 9), (2, 0, 3), (1, 5, 6), (3, 1, 17), (2, 3, 4, 5)):
        x = random(*shape)
        expected = soi_oracle.select(drawn_mask(x), x)
        for placements in itertools.product([R, *map(Shard, range(x.ndim))], repeat=2):
            seed_each_rank()
            part = leaf(distributed(x, grid(), list(placements)))
            y = functional.soi_map(part)
            assert y.shape == x.shape
            assert torch.equal(y.full_tensor(), expected), (shape, placements)
            (dx,) = grad(y, part, part.detach())
            assert torch.equal(dx.full_tensor(), expected), (shape, placements)


@check
def soi_map_with_a_number() -> None:
    """A number, and the parameter that is not given, are replicated."""
    x, two = random(*SHAPE), torch.tensor(2.0, dtype=torch.float64)
    expected = soi_oracle.select(drawn_mask(x, loc=0 * two, scale=two), x)
    for p in (R, S0, S1, S2):
        part = distributed(x, line(), [p])
        seed_each_rank()
        with CommDebugMode() as communication:
            y = functional.soi_map(part, scale=2.0)
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        assert y.placements == (p,)
        assert torch.equal(y.full_tensor(), expected)


@check
def soi_map_is_linear_for_its_mask() -> None:
    """In double backward, and when activation checkpointing draws the mask again."""
    x, dy, ddx = (random(*SHAPE, seed=i) for i in (0, 2, 3))
    bias = random(SHAPE[-1], seed=1)
    select = partial(soi_oracle.select, drawn_mask(x, bias))
    for p in (R, S0, S1, S2):
        seed_each_rank()
        part, part_dy, part_bias = map(leaf, on_line(p, x, dy, bias))
        y = checkpoint(functional.bias_soi_map, part, part_bias, use_reentrant=False)
        dx, dbias = grad(y, (part, part_bias), part_dy, create_graph=True)
        assert_close([dx, dbias], [select(dy), select(dy).sum((0, 1))])
        (ddy,) = grad((dx, dbias), part_dy, (*on_line(p, ddx), dbias.detach()))
        assert_close(ddy, select(ddx + dbias.full_tensor()))


@check
def soi_map_of_plain_parts() -> None:
    """docs/guide/distributed.md for DDP and FSDP, whose activations are plain tensors."""
    x, rank, ranks = random(8, 3), dist.get_rank(), dist.get_world_size()
    expected = soi_oracle.select(drawn_mask(x), x).chunk(ranks)[rank]
    seed_each_rank()
    local = leaf(x.chunk(ranks)[rank])
    y = SOIMap()(DTensor.from_local(local, line(), [S0])).to_local()
    assert torch.equal(y, expected)
    y.backward(torch.ones_like(y))
    assert torch.equal(local.grad, (expected != 0).double())


@check
def soi_map_in_tensor_parallelism() -> None:
    x = random(4, 3, 8)
    for first, last in (
        (ColwiseParallel(use_local_output=False), RowwiseParallel()),
        (
            RowwiseParallel(input_layouts=R, use_local_output=False),
            ColwiseParallel(input_layouts=R, output_layouts=R),
        ),
    ):
        torch.manual_seed(0)
        up, down = nn.Linear(8, 12, dtype=torch.float64), nn.Linear(12, 8, dtype=torch.float64)
        hidden = up(x)
        expected = down(soi_oracle.select(drawn_mask(hidden), hidden))
        network = nn.Sequential(up, SOIMap(), down)
        parallelize_module(network, line(), {"0": first, "2": last})
        seed_each_rank()
        assert_close(network(x), expected)


@check
def dropout_draws_the_mask_of_the_whole() -> None:
    """Forward and backward, with the mask drawn again by a checkpoint; second derivatives."""
    x, up, dy = (random(*SHAPE, seed=i) for i in range(3))
    bias = random(SHAPE[-1], seed=3)
    mask = soi_oracle.not_dropped(SHAPE, first_seed(), 0.25)

    def of_bias(x: Tensor, bias: Tensor) -> Tensor:
        return soi_oracle.select(mask, gelu(x + bias)) / 0.75

    def of_up(x: Tensor, up: Tensor) -> Tensor:
        return soi_oracle.select(mask, gelu(x) * up) / 0.75

    for p in (R, S0, S1, S2):
        part_x, part_dy = on_line(p, x, dy)
        for function, formula, operands in (
            (functional.bias_gelu_dropout, of_bias, (x, bias)),
            (functional.glu_dropout, of_up, (x, up)),
        ):
            whole, parts = list(map(leaf, operands)), list(map(leaf, on_line(p, *operands)))
            y = formula(*whole)
            seed_each_rank()
            part_y = checkpoint(partial(function, p=0.25), *parts, use_reentrant=False)
            assert part_y.placements == (p,)
            assert_close(part_y, y)
            found = grad(part_y, parts, part_dy, create_graph=True)
            expected = grad(y, whole, dy, create_graph=True)
            assert_close(found, expected)
            assert_close(grad(found[0], parts[:1], part_x), grad(expected[0], whole[:1], x))


@check
def dropout_of_halves() -> None:
    """The last dimension is gathered where it is cut; other cuts stay."""
    both, dy = random(4, 3, 16), random(4, 3, 8, seed=1)
    mask = soi_oracle.not_dropped(dy.shape, first_seed(), 0.25)
    whole = leaf(both)
    x, up = whole.chunk(2, -1)
    y = soi_oracle.select(mask, gelu(x) * up) / 0.75
    expected = grad(y, whole, dy)
    for placements in itertools.product([R, S0, S1, S2], repeat=2):
        part = leaf(distributed(both, grid(), list(placements)))
        seed_each_rank()
        part_y = functional.glu_dropout(part, p=0.25)
        assert_close(part_y, y)
        assert_close(grad(part_y, part, distributed(dy, grid(), part_y.placements)), expected)
