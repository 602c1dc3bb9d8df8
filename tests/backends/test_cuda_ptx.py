"""The CUDA kernels' PTX beyond test_same_bits.py: for any error that a GPU's special function unit
may make, far apart in memory, and beyond its end. It runs on a CPU here (see tests/ptx_on_cpu).
"""

from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.types import IN_ROW_MAJOR_ORDER, Extent
from tests import bits, ptx_on_cpu
from tests.backends.same_bits import EACH_FUNCTION, NUMBERS, each_family
from tests.calls import CORE_CALLS, DTYPES, Call, Results, normal
from tests.devices import PTX, kernels_for
from tests.oracles import oracle, soi_oracle
from tests.ptx_on_cpu import Error, cuda, cuda_build, only_ends, special_function_unit

ops = torch.ops.gelu_kernels


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


def are_same(results: Results, expected: Results) -> bool:
    return all(bits.differing(y, e) == 0 for y, e in zip(results, expected, strict=True))


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


@each_family(
    [case for case in NUMBERS if case[0].takes_gate and case[2] != torch.float64],
    lambda *case: case in EACH_FUNCTION,
    # bfloat16 values alone take a power from the unit.
    lambda call, gate, dtype: call == CORE_CALLS[0] and dtype == torch.bfloat16,
    backends=PTX,
)
def test_errors_of_the_special_function_unit_change_nothing(
    backend: str, cases: list[tuple[Call, str, torch.dtype]]
) -> None:
    """A quotient is correctly rounded for any estimate of the reciprocal; bfloat16 values are for
    any power as well. Of 16 bits, every eighth input is looked at for each error."""
    made = lru_cache(len(DTYPES))(bits.of_any_numbers)
    failures = []
    for call, gate, dtype in cases:
        tensors = made(call, dtype)
        rows = tensors[list(call.tensors).index(call.leading)].size(0)
        for at, unit in enumerate(UNITS):
            some = rows_of(call, tensors, slice(at % 8, rows, 8))
            expected = call(*some, gate=gate)
            with special_function_unit(*unit), kernels_for(backend):
                results = call(*some, gate=gate)
            if not are_same(results, expected):
                failures.append(f"{call}, {gate}, {dtype}, {unit}")
    assert not failures, failures


# Triton's kernels estimate in 16 bits alone.
@pytest.mark.parametrize(
    ("backend", "dtype"), [("cuda_ptx", torch.float32), ("triton_ptx", torch.float16)]
)
def test_no_mask_needs_an_exact_estimate(backend: str, dtype: torch.dtype) -> None:
    """Of numbers whose 2^16 F(x) is about within 6 of the first half of their word, where an
    estimate that is wrong by more than the kernel allows for decides what the second half has
    to."""
    seed, index = 7, np.arange(2**14)
    first = soi_oracle.halves(seed, index, 0).astype(np.float64)
    words = (first + np.random.default_rng(0).uniform(-6, 6, len(index))) * 2.0**16
    for gate in oracle.GATES:
        x = soi_oracle.quantile(gate, np.clip(words, 2.0**8, 2.0**32 - 2.0**8)).to(dtype)
        expected = ops.soi_forward(x, None, torch.tensor(seed), gate)
        for unit in UNITS:
            with special_function_unit(*unit), kernels_for(backend):
                results = ops.soi_forward(x, None, torch.tensor(seed), gate)
            assert are_same(results, expected), (gate, unit)


def test_no_bfloat16_value_needs_an_exact_power() -> None:
    """Of all inputs: near 2^-126 x/2 is a tie, which a last place of 2^15 would turn."""
    every_input = oracle.every_16_bit_input(torch.bfloat16)
    in_elements = torch.stack([every_input, every_input], dim=1)[:, 0]
    for gate, x in product(oracle.GATES, (every_input, in_elements)):
        expected = ops.gate_forward(x, None, gate)
        for unit in UNITS:
            with special_function_unit(*unit), cuda.enabled():
                y = ops.gate_forward(x, None, gate)
            assert bits.differing(y, expected) == 0, (gate, x.stride(), unit)


def test_larger_errors_would_be_seen() -> None:
    x = oracle.every_16_bit_input(torch.bfloat16)
    expected = ops.gate_forward(x, None, "normal")
    with special_function_unit(Error.UP, Error.UP, scale=2**12), cuda.enabled():
        y = ops.gate_forward(x, None, "normal")
    assert (y != expected)[x.isfinite()].any()


# The code for one architecture alone


def test_code_for_sm_100() -> None:
    assert "fma.rn.f32x2" in cuda_build.ptx_of("cuda_glu_forward", "sm_100")
    assert "fma.rn.f32.bf16" in cuda_build.ptx_of("cuda_quantized_forward", "sm_100")


# Offsets beyond 2^31, in memory that is reserved and hardly touched


APART = 2**30


def check_far_apart(call: Call, shape: tuple[int, int], strides: tuple[int, int]) -> None:
    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return random(*shape)
        t = torch.empty(3 * APART + 2 * max(shape), dtype=torch.bfloat16)
        return t.as_strided(shape, strides).copy_(random(*shape))

    tensors = call.inputs(shape, make)
    expected = call(*tensors)
    with cuda.enabled():
        assert are_same(call(*tensors), expected), (call, shape)


def test_rows_far_apart() -> None:
    """The last is 6 GB from the first. In vectors, and in elements."""
    for call, columns in product(CORE_CALLS, (512, 302)):
        check_far_apart(call, (4, columns), (APART, 1))


def test_columns_far_apart() -> None:
    """Halves are apart anyhow."""
    for call in (call for call in CORE_CALLS if not call.op.halves):
        check_far_apart(call, (300, 4), (1, APART))


def large_inputs(call: Call, rows: int, columns: int, offset: int) -> list[Tensor]:
    """Of numbers in the first and the last two rows, `offset` elements into their memory."""

    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return random(*shape)
        t = torch.empty(offset + shape[0] * shape[1], dtype=torch.bfloat16)[offset:].view(shape)
        t[:2], t[-2:] = random(2, shape[1]), random(2, shape[1])
        return t

    def make_bits(extent: Extent) -> Tensor:
        bytes_of_row = columns * IN_ROW_MAJOR_ORDER[extent] // 8
        t = torch.empty(rows * bytes_of_row, dtype=torch.uint8)
        ends = 2 * bytes_of_row
        t[:ends], t[-ends:] = torch.randint(256, (2, ends), dtype=torch.uint8)
        return t

    return [
        make_bits(e) if e in IN_ROW_MAJOR_ORDER else call.input(name, (rows, columns), make)
        for name, e in call.tensors.items()
    ]


def check_more_than_two_to_the_31(call: Call, columns: int, offset: int) -> None:
    rows = 2**31 // columns + 8
    tensors = large_inputs(call, rows, columns, offset)
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
                assert torch.equal(result[bytes_], e), (call, name)
            elif extent in HAS_ROWS:
                assert bits.differing(result[end], e) == 0, (call, name)


def test_more_than_two_to_the_31_elements() -> None:
    """Only the first and the last blocks of a launch run. In vectors, and in elements."""
    for call in CORE_CALLS:
        check_more_than_two_to_the_31(call, columns=1024, offset=0)
        check_more_than_two_to_the_31(call, columns=1000, offset=1)


# Memory: a storage that ends before its tensor does


def test_an_overrun_is_caught() -> None:
    """In whole vectors, in the last of a row, and among single elements."""
    for size, offset in ((512, 0), (33, 0), (33, 1)):
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
