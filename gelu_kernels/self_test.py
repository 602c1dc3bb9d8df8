"""Tests operators with a torch newer than the one that they were built for.

library.py runs the source of this file in a separate process, with the operators' folder as its
argument.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

import torch
from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    return x * torch.erfc(-x / 2**0.5) / 2


def check(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def main(folder: str) -> None:
    torch.ops.load_library(f"{folder}/libgelu_kernels.so")
    spec = PathFinder.find_spec("_C", [folder])
    assert spec is not None and spec.loader is not None
    binding = module_from_spec(spec)
    spec.loader.exec_module(binding)
    ops = torch.ops.gelu_kernels

    x = torch.linspace(-4, 4, 24, dtype=torch.float64).view(4, 6).requires_grad_()
    bias = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
    expected = gelu(x + bias)
    for y in (
        binding.fused_bias_gelu(x, bias, "none", None, None),
        ops.fused_bias_gelu(x, bias),
        torch.func.vmap(ops.fused_bias_gelu, (0, None))(x, bias),
    ):
        check(y, expected)
        for of in (x, bias):
            first = [torch.autograd.grad(z.sum(), of, create_graph=True)[0] for z in (y, expected)]
            check(*first)
            check(*(torch.autograd.grad(z.sum(), x, retain_graph=True)[0] for z in first))
    check(torch.func.jvp(ops.fused_gelu, (x,), (x,))[1], torch.func.jvp(gelu, (x,), (x,))[1])
    check(binding.fused_glu(x, None, "normal", None, 0.0, None), gelu(x[:, :3]) * x[:, 3:])

    generator = torch.Generator().manual_seed(0)
    y = binding.soi_map(x, "normal", None, None, generator)
    assert ((y == x) | (y == 0)).all() and generator.get_state().ne(
        torch.Generator().manual_seed(0).get_state()
    ).any()
    mxfp8 = "normal", torch.float8_e4m3fn, "BlockWise1x32", None, "row", None, "NO_SWIZZLE"
    data, *_ = binding.quantized_gate(torch.full((1, 32), 100.0), None, *mxfp8, False, None)
    assert data.dtype == torch.float8_e4m3fn and (data.float() == 384).all()
    try:
        ops.fused_gelu(x.long())
    except TypeError:
        pass
    else:
        raise AssertionError("no error for integers")


if __name__ == "__main__":
    main(sys.argv[1])
