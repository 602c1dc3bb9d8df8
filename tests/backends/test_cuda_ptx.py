"""The CUDA kernels' PTX beyond test_same_bits.py: for any error that a GPU's special function unit
may make, far apart in memory, and beyond its end. It runs on a CPU here (see tests/ptx_on_cpu).
"""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.types import IN_ROW_MAJOR_ORDER, Extent
from tests import bits, ptx_on_cpu
from tests.calls import CORE_CALLS, Call, Results, normal
from tests.devices import PTX, kernels_for
from tests.oracles import oracle, soi_oracle, sweeps
from tests.ptx_on_cpu import Error, cuda, cuda_build, only_ends, special_function_unit

ops = torch.ops.gelu_kernels
every_core_call = pytest.mark.parametrize("call", CORE_CALLS, ids=str)


def random(*shape: int) -> Tensor:
    return normal(*shape, dtype=torch.bfloat16)


HAS_ROWS = Extent.ELEMENTS, Extent.HALVES, Extent.ROWS


def rows_of(call: Call, tensors: list[Tensor], part: slice) -> list[Tensor]:
    """Of the tensors that have rows, and as much of a mask or a code as these need."""
    named = dict(zip(call.tensors, tensors, strict=True))
    found = {n: t[part].clone() if call.tensors[n] in HAS_ROWS else t for n, t in named.items()}
    for name, extent in call.tensors.items():
        if extent in IN_ROW_MAJOR_ORDER:
            bytes_ = -(-found["dy"].numel() * IN_ROW_MAJOR_ORDER[extent] // 8)
            is_end = part.start is not None and part.start < 0
            found[name] = found[name][-bytes_:] if is_end else found[name][:bytes_]
    return list(found.values())


def assert_same(results: Results, expected: Results) -> None:
    for y, e in zip(results, expected, strict=True):
        assert bits.differing(y, e) == 0


def test_the_cpu_kernels_come_back() -> None:
    x = torch.randn(100)
    before = cuda.launches()
    with cuda.enabled():
        ops.gate_forward(x, None, "normal")
    ops.gate_forward(x, None, "normal")
    assert cuda.launches() == before + 1


# The special function unit

EXTREMES = list(product([Error.NONE, Error.UP, Error.DOWN], repeat=2))
UNITS = [(*errors, 0) for errors in EXTREMES] + [(Error.RANDOM, Error.RANDOM, 1)]


CASES = [
    pytest.param(*case, marks=() if is_quick else pytest.mark.slow)
    for backend in PTX
    for call in CORE_CALLS
    if call.takes_gate
    for case in product([backend], [call], call.gates, [torch.float32, *sweeps.HALF])
    # bfloat16 values alone take a power from the unit.
    for is_quick in [backend == "cuda_ptx" or (call == CORE_CALLS[0] and case[3] == torch.bfloat16)]
]


@pytest.mark.parametrize("backend, call, gate, dtype", CASES, ids=str)
def test_errors_of_the_special_function_unit_change_nothing(
    backend: str, call: Call, gate: str, dtype: torch.dtype
) -> None:
    """A quotient is correctly rounded for any estimate of the reciprocal; bfloat16 values are for
    any power as well. Of 16 bits, every eighth input is looked at for each error."""
    tensors = bits.of_any_numbers(call, dtype)
    rows = tensors[list(call.tensors).index(call.leading)].size(0)
    for at, (exp2, reciprocal, seed) in enumerate(UNITS):
        some = rows_of(call, tensors, slice(at % 8, rows, 8))
        expected = call(*some, gate=gate)
        with special_function_unit(exp2, reciprocal, seed), kernels_for(backend):
            assert_same(call(*some, gate=gate), expected)


@pytest.mark.parametrize("gate", oracle.GATES)
def test_no_mask_needs_an_exact_estimate(gate: str) -> None:
    """Of numbers whose 2^16 F(x) is within 6 of the first half of their word, where an estimate
    that is wrong by more than the kernel allows for decides what the second half has to."""
    seed, index = 7, np.arange(2**14)
    first = soi_oracle.halves(seed, index, 0).astype(np.float64)
    words = (first + np.random.default_rng(0).uniform(-6, 6, len(index))) * 2.0**16
    x = soi_oracle.quantile(gate, np.clip(words, 2.0**8, 2.0**32 - 2.0**8))
    expected = ops.soi_forward(x, None, torch.tensor(seed), gate)
    for unit in UNITS:
        with special_function_unit(*unit), cuda.enabled():
            assert_same(ops.soi_forward(x, None, torch.tensor(seed), gate), expected)


@pytest.mark.parametrize("gate", oracle.GATES)
@pytest.mark.parametrize("layout", ["vectors", "elements"])
def test_no_bfloat16_value_needs_an_exact_power(gate: str, layout: str) -> None:
    """Of all inputs: near 2^-126 x/2 is a tie, which a last place of 2^15 would turn."""
    x = oracle.every_16_bit_input(torch.bfloat16)
    if layout == "elements":
        x = torch.stack([x, x], dim=1)[:, 0]
    expected = ops.gate_forward(x, None, gate)
    for unit in UNITS:
        with special_function_unit(*unit), cuda.enabled():
            assert_same((ops.gate_forward(x, None, gate),), (expected,))


def test_larger_errors_would_be_seen() -> None:
    x = oracle.every_16_bit_input(torch.bfloat16)
    expected = ops.gate_forward(x, None, "normal")
    with special_function_unit(Error.UP, Error.UP, scale=2**12), cuda.enabled():
        y = ops.gate_forward(x, None, "normal")
    assert (y != expected)[x.isfinite()].any()


# The code for one architecture alone


@pytest.mark.parametrize(
    "file, instruction",
    [("cuda_glu_forward", "fma.rn.f32x2"), ("cuda_quantized_forward", "fma.rn.f32.bf16")],
)
def test_code_for_sm_100(file: str, instruction: str) -> None:
    assert instruction in cuda_build.ptx_of(file, "sm_100")


# Offsets beyond 2^31, in memory that is reserved and hardly touched


@pytest.mark.parametrize("columns", [512, 302], ids=["vectors", "elements"])
@every_core_call
def test_rows_far_apart(call: Call, columns: int) -> None:
    """The last is 6 GB from the first."""

    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return random(*shape)
        t = torch.empty(3 * 2**30 + 2 * columns, dtype=torch.bfloat16)
        return t.as_strided(shape, (2**30, 1)).copy_(random(*shape))

    tensors = call.inputs((4, columns), make)
    expected = call(*tensors)
    with cuda.enabled():
        assert_same(call(*tensors), expected)


@every_core_call
def test_columns_far_apart(call: Call) -> None:
    if call.op.halves:
        pytest.skip("halves are apart anyhow")

    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return random(*shape)
        t = torch.empty(3 * 2**30 + 300, dtype=torch.bfloat16)
        return t.as_strided(shape, (1, 2**30)).copy_(random(*shape))

    tensors = call.inputs((300, 4), make)
    expected = call(*tensors)
    with cuda.enabled():
        assert_same(call(*tensors), expected)


@pytest.mark.parametrize("columns", [1024, 1000], ids=["vectors", "elements"])
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "misaligned"])
@every_core_call
def test_more_than_two_to_the_31_elements(call: Call, columns: int, offset: int) -> None:
    """Only the first and the last blocks of a launch run."""
    rows = 2**31 // columns + 8

    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return random(*shape)
        t = torch.empty(offset + shape[0] * shape[1], dtype=torch.bfloat16)[offset:].view(shape)
        t[:2], t[-2:] = random(2, shape[1]), random(2, shape[1])
        return t

    def bytes_of_rows(extent: Extent, rows: int) -> int:
        return rows * columns * IN_ROW_MAJOR_ORDER[extent] // 8

    def make_bits(extent: Extent) -> Tensor:
        t, ends = (
            torch.empty(bytes_of_rows(extent, rows), dtype=torch.uint8),
            bytes_of_rows(extent, 2),
        )
        t[:ends], t[-ends:] = torch.randint(256, (2, ends), dtype=torch.uint8)
        return t

    tensors = [
        make_bits(e) if e in IN_ROW_MAJOR_ORDER else call.input(name, (rows, columns), make)
        for name, e in call.tensors.items()
    ]
    with cuda.enabled(), only_ends(16):
        results = call(*tensors)
    for end in (slice(2), slice(-2, None)):
        parts = rows_of(call, tensors, end)
        place = (rows - 2) * columns if end.stop is None else 0
        if "seed" in call.tensors:
            expected = call.op.overload(*call.arguments(*parts)[0], place)
        else:
            expected = call(*parts)
        for name, result, e in zip(call.op.outputs, results, expected, strict=True):
            extent = call.op.outputs[name]
            if extent in IN_ROW_MAJOR_ORDER:
                bytes_ = slice(e.numel()) if end.stop == 2 else slice(-e.numel(), None)
                assert torch.equal(result[bytes_], e)
            elif extent in HAS_ROWS:
                assert bits.differing(result[end], e) == 0, name


# Memory: a storage that ends before its tensor does


@pytest.mark.parametrize("size, offset", [(512, 0), (33, 0), (33, 1)])
def test_an_overrun_is_caught(size: int, offset: int) -> None:
    """In whole vectors, in the last of a row, and among single elements."""
    storage = torch.randn(size + offset)
    x = storage[offset:]
    storage.untyped_storage().resize_(storage.nbytes - 4)
    with cuda.enabled(), pytest.raises(torch.AcceleratorError, match="memcheck: "):
        ops.gate_forward(x, None, "normal")


def test_the_error_of_a_launch_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever made of it what called the operator."""

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ptx_on_cpu.Kernel, "launch", broken)
    failed = pytest.raises(torch.AcceleratorError, match="ZeroDivisionError")
    with pytest.raises(ZeroDivisionError), cuda.enabled(), failed:
        ops.gate_forward(torch.randn(3), None, "normal")
