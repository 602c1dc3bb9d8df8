"""The table of operators says of each what a schema cannot, and each has all its kernels."""

import inspect

import pytest
import torch
from torch import Tensor

from gelu_kernels import _C, backend, functional
from gelu_kernels.operators.table import CORE, LINEAR, OTHERS, PUBLIC, QUANTIZED
from gelu_kernels.operators.types import Operator
from tests.calls import CALLS, CORE_CALLS, Call, normal

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
core_operators = pytest.mark.parametrize("op", (*CORE, *QUANTIZED), ids=lambda op: op.name)
WITH_LINEAR, QUANTISING = (
    {op.name for op in OTHERS if op.family == family} for family in ("linear", "quantized")
)


def test_every_operator_is_in_the_table() -> None:
    prefix = "gelu_kernels::"
    names = torch._C._dispatch_get_all_op_names()
    defined = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    # The operator of a part of a DTensor is defined with the rules for DTensor.
    listed = {op.name for op in (*CORE, *PUBLIC, *QUANTIZED, *LINEAR, *OTHERS)}
    assert defined - {"draw_shard", "draw_seed", "random_seed"} == listed


def test_every_core_operator_is_of_a_public_one() -> None:
    """Or differentiates one that is."""
    used = {name for row in PUBLIC for name in (row.forward, row.backward)}
    kept = {op.name for op in CORE if op.family == "coded"}  # of all that take save=
    assert {op.name for op in CORE} - used <= {"gate_double_backward", *kept}


def test_every_function_is_of_a_public_operator() -> None:
    functions = {name for name, _ in inspect.getmembers(functional, inspect.isfunction)}
    quantising = {name for name in functions if "quantize" in name}
    listed = {name for row in PUBLIC for name in row.functions}
    assert functions - quantising == listed | WITH_LINEAR
    assert quantising >= QUANTISING


@core_operators
@pytest.mark.parametrize("key", ["CPU", "Meta", "Autograd", "FuncTorchBatched"])
def test_kernels(op: Operator, key: str) -> None:
    assert has_kernel(f"gelu_kernels::{op.name}", key)


@core_operators
@pytest.mark.skipif("cuda" not in _C.build_info(), reason="needs a build with nvcc")
def test_cuda_kernels(op: Operator) -> None:
    assert has_kernel(f"gelu_kernels::{op.name}", "CUDA")


@core_operators
def test_triton_kernels(op: Operator) -> None:
    assert op.name in backend.TRITON


@pytest.mark.parametrize("op", (*CORE, *QUANTIZED, *LINEAR), ids=lambda op: op.name)
def test_rules_for_dtensor(op: Operator) -> None:
    from torch.distributed.tensor import DTensor

    propagator = DTensor._op_dispatcher.sharding_propagator
    has_strategy = op.overload in propagator.op_strategy_funcs
    assert has_strategy or op.overload in rules_that_dispatch()


def rules_that_dispatch() -> set:
    from torch._library.simple_registry import singleton

    found = set()
    for op in CORE:
        entry = singleton.find(f"gelu_kernels::{op.name}")
        if entry.torch_dispatch_rules._data:
            found.add(op.overload)
    return found


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("y", [(6,), (3, 4), (2, 3, 4)], ids=str)
def test_extents(call: Call, y: tuple[int, ...]) -> None:
    results = call(*call.inputs(y, normal))
    for extent, result in zip(call.op.outputs.values(), results, strict=True):
        assert result.shape == extent.shape(y)


@pytest.mark.parametrize("call", CORE_CALLS, ids=str)
def test_what_it_is_linear_in(call: Call) -> None:
    """And in no other."""
    one, other = (call.inputs((5, 6), normal) for _ in range(2))
    for place, name in enumerate(call.tensors):
        if name not in call.floating:
            continue

        def at(t: Tensor, place: int = place) -> tuple[Tensor, ...]:
            results = call(*one[:place], t, *one[place + 1 :])
            return tuple(t for t in results if t.is_floating_point())

        total = at(one[place] + 2 * other[place])
        parts = zip(at(one[place]), at(other[place]), strict=True)
        is_linear = all(
            torch.allclose(whole, a + 2 * b, rtol=1e-9)
            for whole, (a, b) in zip(total, parts, strict=True)
        )
        assert is_linear == (name in call.op.linear(call.numbers)), name


@pytest.mark.parametrize("call", CORE_CALLS, ids=str)
def test_bytes_moved(call: Call) -> None:
    """Of each tensor that it reads and writes, once, but for one number."""
    y = (16, 8)
    tensors = call.inputs(y, lambda *s: normal(*s, dtype=torch.float32))
    moved = sum(t.nbytes for t in (*tensors, *call(*tensors)) if t.dim() > 0)
    absent = tuple(name for name in call.op.inputs if name not in call.tensors)
    assert call.op.bytes_moved(y, 4, absent) == moved
