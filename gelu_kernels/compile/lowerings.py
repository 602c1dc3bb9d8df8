"""The core operators of the gates as Inductor loops.

gate_backward_bias is not included: its single pass computes both gradients, and sums in an order
that does not depend on the number of threads.
"""

from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir, lowering, virtualized
from torch._inductor.virtualized import OpsValue

from gelu_kernels import formulas
from gelu_kernels.compile import arithmetic
from gelu_kernels.compile.arithmetic import Real

# In 16 bits, F(-a) and D(a) are exp2 of a polynomial, or a quotient of two: one exp2 in all.
PRECISIONS = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "exp2_fp16",
    torch.bfloat16: "exp2_bf16",
}


def _map(
    order: str,
    gate: str,
    factors: Sequence[ir.TensorBox],
    x: ir.TensorBox,
    bias: ir.TensorBox | None,
) -> ir.TensorBox:
    """The product of the factors and a gate's function of x + bias, not rounded to 16 bits."""
    dtype = torch.float64 if x.get_dtype() == torch.float64 else torch.float32
    precision = PRECISIONS[dtype if order == "second_derivative" else x.get_dtype()]
    functions = formulas.of(gate, arithmetic)
    function, constants = getattr(functions, order), functions.constants[precision]
    of_factors = [factor.make_loader() for factor in factors]
    of_x, of_bias = x.make_loader(), None if bias is None else bias.make_loader()

    def element(index: Sequence) -> OpsValue:
        def load(loader: Callable, index: Sequence) -> Real:
            return Real(virtualized.ops.to_dtype(loader(index), dtype), dtype)

        total = load(of_x, index)
        if of_bias:
            total = total + load(of_bias, index[-1:])
        result = function(total, constants)
        if of_factors:
            first, *others = (load(factor, index) for factor in of_factors)
            for factor in others:
                first = first * factor
            result = first * result
        return result.value

    return ir.Pointwise.create(
        device=x.get_device(), dtype=dtype, inner_fn=element, ranges=x.get_size()
    )


def gate_forward(x: ir.TensorBox, bias: ir.TensorBox | None, gate: str) -> ir.TensorBox:
    return lowering.to_dtype(_map("value", gate, (), x, bias), x.get_dtype())


def gate_backward(
    dy: ir.TensorBox, x: ir.TensorBox, bias: ir.TensorBox | None, gate: str
) -> ir.TensorBox:
    return lowering.to_dtype(_map("derivative", gate, (dy,), x, bias), x.get_dtype())


def gate_double_backward(
    ddx: ir.TensorBox, dy: ir.TensorBox, x: ir.TensorBox, bias: ir.TensorBox | None, gate: str
) -> ir.TensorBox:
    return lowering.to_dtype(_map("second_derivative", gate, (ddx, dy), x, bias), x.get_dtype())


LOWERINGS = {
    getattr(torch.ops.gelu_kernels, function.__name__).default: function
    for function in (gate_forward, gate_backward, gate_double_backward)
}


def register() -> None:
    for op, function in LOWERINGS.items():
        lowering.register_lowering(op, type_promotion_kind=None)(function)
        # After Inductor has compiled a call of an operator without a lowering, it requires the
        # operands to be in memory with their eager strides.
        lowering.needs_realized_inputs.discard(op)
        lowering._maybe_layout_constraints.pop(op, None)


def unregister() -> None:
    """Without a lowering Inductor calls the operator itself."""
    for op in LOWERINGS:
        lowering.lowerings.pop(op, None)
