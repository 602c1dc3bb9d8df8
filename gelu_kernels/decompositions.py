"""Decomposes the operators into ATen, for programs that run without this package."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload

from gelu_kernels.aten import core
from gelu_kernels.operators.table import CORE, LINEAR, OTHERS, PUBLIC, QUANTIZED
from gelu_kernels.operators.types import Operator

# Families without a form in ATen operators, and what to use instead.
REMEDIES = {
    "soi": "it draws random numbers: call model.eval() before torch.export.export, or "
    "use functional.gate, the mean of the SOI map",
    "dropout": "it draws random numbers: call model.eval() before torch.export.export, or pass "
    "training=False",
    "coded": "it keeps a code for backward: leave save= out where gradients are exported",
    "quantized": "its results are in eight bits: export the function that is not quantised, and "
    "let the target's tools quantise",
}


def decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Decomposition table from the operators of this package to ATen operators, for export.

    For ``torch.export.ExportedProgram.run_decompositions``, and for other functions that take a
    table: ``make_fx``, AOTAutograd. The decomposed program has no operator of this package. It runs
    where the package is not installed, and ``torch.onnx.export`` translates it: see
    docs/guide/compile.md.

    Returns:
        A new dictionary from operators to functions. Public operators decompose into core
        operators, as in eager mode, and core operators into ATen operators. Passed to
        ``run_decompositions``, it leaves ATen operators as they are; to decompose them too,
        ``update`` a ``torch.export.default_decompositions()`` with it.

    Raises (while a program is decomposed):
        NotImplementedError: an operator has no decomposition: the SOI map, dropout in training,
            FP8 and MXFP8 results, and in exported gradients the codes of ``save=``. The message
            says what to do.

    Accuracy: that of ATen's operators, in float32 (float64 for float64), rounded once. A gate has
    an error of at most 4 eps abs(x), and its derivative of 8 eps, where the kernels' errors are
    relative to the result. gelu(-inf) is NaN, as for ``torch.nn.functional.gelu``.

    >>> from gelu_kernels import nn
    >>> program = torch.export.export(nn.GELU(), (torch.ones(3),))
    >>> program = program.run_decompositions(decompositions())
    >>> [node.target for node in program.graph.nodes if node.op == "call_function"]
    [<OpOverload(op='aten.gelu', overload='default')>]
    """
    table = {op.overload: _core(op) for op in (*CORE, *QUANTIZED)}
    for op in LINEAR:
        table[op.overload] = _composition(op, DispatchKey.CompositeExplicitAutograd)
    for op in (*PUBLIC, *OTHERS):
        table[op.overload] = _composition(op, DispatchKey.CompositeImplicitAutograd)
    return table | {torch.ops.gelu_kernels.draw_seed.default: _no_seed}


def _core(op: Operator) -> Callable[..., object]:
    if op.family in REMEDIES:
        return partial(_refuse, op)
    return getattr(core, op.name)


def _refuse(op: Operator, *arguments: object, **named: object) -> None:
    raise NotImplementedError(
        f"gelu_kernels::{op.name} has no decomposition into ATen operators, as "
        f"{REMEDIES[op.family]}"
    )


def _composition(op: Operator, key: DispatchKey) -> Callable[..., object]:
    """The composition in csrc/ops, which also checks the arguments."""
    # OpOverload.decompose would call this function again: torch.export registers it there.
    return partial(op.overload._op_dk, key)


def _no_seed(x: Tensor) -> Tensor:
    """Operators that use a seed have no decomposition; with dither=True inference draws one too."""
    return torch.zeros((), dtype=torch.int64, device=x.device)
