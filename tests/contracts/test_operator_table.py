"""The table of operators says of each what a schema cannot, and each has all its kernels."""

import inspect
from itertools import product

import torch
from torch import Tensor
from torch._library.simple_registry import singleton
from torch.distributed.tensor import DTensor

from gelu_kernels import _C, backend, functional
from gelu_kernels.operators.table import CORE, LINEAR, OTHERS, PUBLIC, QUANTIZED
from gelu_kernels.operators.types import Operator
from tests.calls import CALLS, CORE_CALLS, Call, Shape, normal
from tests.cases import each

WITH_KERNELS = (*CORE, *QUANTIZED)


def test_every_operator_is_in_the_table() -> None:
    prefix = "gelu_kernels::"
    names = torch._C._dispatch_get_all_op_names()
    defined = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    # The operator of a part of a DTensor is defined with the rules for DTensor.
    listed = {op.name for op in (*WITH_KERNELS, *PUBLIC, *LINEAR, *OTHERS)}
    assert defined - {"draw_shard", "draw_seed", "random_seed"} == listed


def test_every_core_operator_is_of_a_public_one() -> None:
    """Or differentiates one that is."""
    used = {name for row in PUBLIC for name in (row.forward, row.backward)}
    kept = {op.name for op in CORE if op.family == "coded"}  # of all that take save=
    assert {op.name for op in CORE} - used <= {"gate_double_backward", *kept}


def test_every_function_is_of_a_public_operator() -> None:
    functions = {name for name, _ in inspect.getmembers(functional, inspect.isfunction)}
    quantising = {name for name in functions if "quantize" in name}
    others = {"linear": set(), "quantized": set()}
    for op in OTHERS:
        others[op.family].add(op.name)
    listed = {name for row in PUBLIC for name in row.functions}
    assert functions - quantising == listed | others["linear"]
    assert quantising >= others["quantized"]


def test_kernels() -> None:
    """For every device and for Triton."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ["CPU", "Meta", "Autograd", "FuncTorchBatched"]
    keys += ["CUDA"] if "cuda" in _C.build_info() else []
    for op, key in product(WITH_KERNELS, keys):
        assert has_kernel(f"gelu_kernels::{op.name}", key), (op.name, key)
    assert {op.name for op in WITH_KERNELS} <= {*backend.TRITON}


def test_rules_for_dtensor() -> None:
    strategies = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs

    def has_rule(op: Operator) -> bool:
        rules = singleton.find(f"gelu_kernels::{op.name}").torch_dispatch_rules
        return op.overload in strategies or bool(rules._data)

    assert not [op.name for op in (*WITH_KERNELS, *LINEAR) if not has_rule(op)]


@each(call=CALLS, y=[(6,), (3, 4), (2, 3, 4)])
def test_extents(call: Call, y: Shape) -> None:
    results = call(*call.inputs(y, normal))
    for extent, result in zip(call.op.outputs.values(), results, strict=True):
        assert result.shape == extent.shape(y)


@each(call=CORE_CALLS)
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


@each(call=CORE_CALLS)
def test_bytes_moved(call: Call) -> None:
    """Of each tensor that it reads and writes, once, but for one number."""
    y = (16, 8)
    tensors = call.inputs(y, lambda *s: normal(*s, dtype=torch.float32))
    moved = sum(t.nbytes for t in (*tensors, *call(*tensors)) if t.dim() > 0)
    absent = tuple(name for name in call.op.inputs if name not in call.tensors)
    assert call.op.bytes_moved(y, 4, absent) == moved
