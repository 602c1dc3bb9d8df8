"""DTensors in inference mode, in compiled graphs and on part of the ranks; errors."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import grad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.functional import gelu

from gelu_kernels import functional
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
    leaf,
    line,
    on_line,
    random,
    seed_each_rank,
)

ops = torch.ops.gelu_kernels


@check
def inference_mode() -> None:
    x = random(*SHAPE)
    with torch.inference_mode():
        part = distributed(x, line(), [S2])
        assert_close(functional.gelu(part), gelu(x))
        seed_each_rank()
        assert_close(functional.soi_map(part), soi_oracle.select(drawn_mask(x), x))


@check
def ranks_outside_the_mesh_have_nothing() -> None:
    members = dist.get_world_size() // 2
    part_of = DeviceMesh("cpu", list(range(members)))
    x, bias = random(*SHAPE), random(SHAPE[-1], seed=1)
    for function, expected in (
        (functional.bias_gelu, gelu(x + bias)),
        (functional.bias_soi_map, soi_oracle.select(drawn_mask(x, bias), x + bias)),
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
def compiled() -> None:
    """The graphs are the same on all ranks, as torch.compile's cache assumes."""
    x, bias = random(8, 8), random(8, seed=1)
    graphs = []

    def keep(module: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    def function(x: Tensor, bias: Tensor) -> Tensor:
        return functional.soi_map(functional.bias_gelu(x, bias))

    y = gelu(x + bias)
    mask = drawn_mask(y)
    whole = leaf(x)
    (dx,) = grad(gelu(whole + bias), whole, mask.double())
    backend = aot_autograd(fw_compiler=keep)
    for p in (S0, S1):
        seed_each_rank()
        part = leaf(distributed(x, line(), [p]))
        part_bias = distributed(bias, line(), [S0 if p == S1 else R])
        part_y = torch.compile(function, fullgraph=True, backend=backend)(part, part_bias)
        assert_close(part_y, soi_oracle.select(mask, y))
        (part_dx,) = grad(part_y, part, distributed(torch.ones_like(x), line(), [p]))
        assert_close(part_dx, dx)
    assert len(graphs) == 4  # two forward, two backward
    of_all = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, graphs)
    assert all(of_one == graphs for of_one in of_all)


def uneven() -> DTensor:
    """The parts have 0, 2, 4, ... rows, which torch.chunk does not make."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shape = (ranks * (ranks - 1), 3)
    return DTensor.from_local(random(2 * rank, 3), line(), [S0], shape=shape, stride=(3, 1))


@check
def errors_name_operator_and_argument() -> None:
    x, bias = random(*SHAPE), random(SHAPE[-1])
    part, part_bias = on_line(S0, x, bias)
    other = DeviceMesh("cpu", list(reversed(range(dist.get_world_size()))))
    other_bias = distributed(bias, other, [R])
    other_dy = distributed(x, other, [S0])
    zero, short = torch.tensor(0), distributed(random(3), line(), [R])
    d_zero = distributed(zero, line(), [R])
    zeros = distributed(torch.zeros(27, dtype=torch.uint8), line(), [S0])
    y, mask = ops.soi_forward(part, None, zero, "normal")
    bias_gelu, bias_soi_map = functional.bias_gelu, functional.bias_soi_map
    soi_forward, soi_backward = ops.soi_forward, ops.soi_backward
    soi_cdf = ops.soi_cdf_forward
    numbers_are_0 = "offset, row_length and row_stride must be 0"
    for error, operator, message, call in (
        (RuntimeError, "gate_forward", ".*mixed torch.Tensor", lambda: bias_gelu(part, bias)),
        (RuntimeError, "gate_forward", ".*mesh", lambda: bias_gelu(part, other_bias)),
        (ValueError, r"bias_gelu\(\)", "bias must be as long", lambda: bias_gelu(part, short)),
        (TypeError, "soi_forward", "bias must be a DTensor", lambda: bias_soi_map(part, bias)),
        (TypeError, "soi_forward", "x must be a DTensor", lambda: bias_soi_map(x, part_bias)),
        (
            TypeError, "soi_forward", "x must be a DTensor",
            lambda: soi_forward(x, None, d_zero, "normal"),
        ),
        (
            ValueError, "soi_forward", "bias must be on the mesh",
            lambda: bias_soi_map(part, other_bias),
        ),
        (
            ValueError, "soi_forward", numbers_are_0,
            lambda: soi_forward(part, None, zero, "normal", 3),
        ),
        (
            ValueError, "soi_forward", "x must be cut as torch.chunk",
            lambda: functional.soi_map(uneven()),
        ),
        (
            TypeError, "soi_cdf_forward", "loc must be a DTensor",
            lambda: soi_cdf(part, bias, part_bias, zero, "normal"),
        ),
        (
            ValueError, "soi_cdf_forward", numbers_are_0,
            lambda: soi_cdf(part, part_bias, part_bias, zero, "normal", 0, 3),
        ),
        (
            ValueError, r"soi_map\(\)", "gate must be",
            lambda: functional.soi_map(part, gate="nonsense"),
        ),
        (
            ValueError, "soi_backward", "mask must be on the mesh",
            lambda: soi_backward(other_dy, mask),
        ),
        (
            TypeError, "soi_backward", "mask must be a DTensor",
            lambda: soi_backward(part, mask.to_local()),
        ),
        (ValueError, "soi_backward", "mask must be a result", lambda: soi_backward(part, zeros)),
        (
            TypeError, "soi_backward_bias", "dy must be a DTensor",
            lambda: ops.soi_backward_bias(x, mask),
        ),
    ):  # fmt: skip
        with pytest.raises(error, match=f"(?s){operator}:? ?{message}"):
            call()
