"""Errors that a compiler might make, made in the PTX, and the check that finds each."""

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tests import bits, ptx_on_cpu
from tests.calls import CORE_CALLS, normal
from tests.cases import each
from tests.devices import kernels_for

CUDA, TRITON = "cuda_ptx", "triton_ptx"
CALLS = {str(call): call for call in CORE_CALLS}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

Make = Callable[..., Tensor]


def ordinary(dtype: torch.dtype) -> Make:
    return lambda *shape: normal(*shape).to(dtype)


def every_input(*shape: int) -> Tensor:
    return bits.any_numbers(BF16).reshape(shape)


def subnormal(*shape: int) -> Tensor:
    """Of float32, and other numbers."""
    return (2.0 ** torch.linspace(-149, 4, shape[-1])).expand(shape).clone()


def with_nan(*shape: int) -> Tensor:
    x = normal(*shape, dtype=FP32)
    x[..., ::7] = torch.nan
    return x


def far_apart(*shape: int) -> Tensor:
    """The last row is 3 GB from the first."""
    if len(shape) == 1:
        return normal(*shape, dtype=BF16)
    t = torch.empty(3 * 2**29 + shape[1], dtype=BF16)
    return t.as_strided(shape, (2**29, 1)).copy_(normal(*shape))


def change(pattern: str, replacement: str, count: int = 0) -> ptx_on_cpu.Change:
    return partial(re.sub, pattern, replacement, count=count)


ROWS = (40, 512)
MANY_ROWS = (200 * 256, 8)  # more blocks of rows than the last one takes on

# What is changed, the operator, its tensors, the change, and what finds it: other bits than the
# CPU's, or a check of the machine.
CHANGES = {
    "the halves of a pair change places": (
        CUDA, "gate_forward", (128, 512), every_input,
        change(r"(cvt\.rn\.bf16x2\.f32\s+%r\d+), (%f\d+), (%f\d+);", r"\1, \3, \2;"), "bits",
    ),
    "a minimum loses NaN": (
        CUDA, "gate_forward", ROWS, with_nan, change(r"min\.NaN\.f32", "min.f32"), "bits",
    ),
    "ex2 is off by 64 ULP": (
        CUDA, "gate_forward", (128, 512), every_input,
        change(r"(ex2\.approx\.ftz\.f32 (%f\d+), [^;]*;)", r"\1 mul.rn.f32 \2, \2, 0f3F800040;"),
        "bits",
    ),
    "lop3 has another table": (
        CUDA, "gate_forward", (128, 512), every_input,
        change(r"(lop3\.b32 .*), 0xe4;", r"\1, 0xd8;"), "bits",
    ),
    "a thread does not wait for a row": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"cp\.async\.wait_group 3;", "", 1), "racecheck",
    ),
    "a thread waits for a row too few": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"cp\.async\.wait_group 3;", "cp.async.wait_group 4;"), "racecheck",
    ),
    "rows are copied in no group": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"cp\.async\.commit_group;", ""), "racecheck",
    ),
    "a barrier is gone": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32), change(r"bar\.sync\s+0;", ""),
        "racecheck|initcheck",
    ),
    "a barrier of Triton's is gone": (
        TRITON, "gate_backward_bias", ROWS, ordinary(FP32), change(r"bar\.sync\s+0;", "", 1),
        "racecheck|initcheck",
    ),
    "a barrier is for some threads alone": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"bar\.sync\s+0;",
               "{ .reg .pred q; setp.eq.u32 q, %tid.x, 7; @q ret; } bar.sync 0;"),
        "synccheck",
    ),
    "the last block does not acquire what others wrote": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"atom\.acq_rel\.gpu", "atom.relaxed.gpu"), "racecheck",
    ),
    "a block is counted before its threads have written": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"bar\.sync\s+0;(?=((?!bar\.sync)[\s\S])*atom\.acq_rel)", ""), "racecheck",
    ),
    "the count of blocks does not end at 0": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"(atom\.acq_rel\S+ %r\d+, \[%rd\d+\]), %r\d+;", r"\1, -1;"), "statecheck",
    ),
    "an earlier block takes itself for the last": (
        CUDA, "gate_backward_bias", ROWS, ordinary(FP32),
        change(r"(atom\.acq_rel[\s\S]*?setp)\.eq", r"\1.ne"), "bits|racecheck",
    ),
    "the second stage does not wait for the first": (
        CUDA, "gate_backward_bias", MANY_ROWS, ordinary(FP32), change(r"griddepcontrol\.wait;", ""),
        "racecheck",
    ),
    "Triton's second stage does not wait for the first": (
        TRITON, "gate_backward_bias", ROWS, ordinary(FP32), change(r"griddepcontrol\.wait\s*;", ""),
        "racecheck",
    ),
    "some threads do not wait for the first stage": (
        CUDA, "gate_backward_bias", MANY_ROWS, ordinary(FP32),
        change(r"griddepcontrol\.wait;",
               "{ .reg .pred q; setp.ne.u32 q, %tid.x, 7; @q griddepcontrol.wait; }"),
        "racecheck",
    ),
    "a shuffle takes another lane's number": (
        TRITON, "soi_forward", ROWS, ordinary(FP32),
        change(r"(shfl\.sync\.bfly\.b32\s+%r\d+, %r\d+), 1,", r"\1, 3,"), "racecheck",
    ),
    "a vector is shifted by four bytes": (
        CUDA, "gate_forward", ROWS, ordinary(FP32),
        change(r"(ld\.global\.v4\.f32\s+\{[^}]*\}, \[%rd\d+)\]", r"\1+4]"), "memcheck",
    ),
    "a vector of Triton's is shifted by four bytes": (
        TRITON, "gate_forward", ROWS, ordinary(FP32),
        change(r"(ld\.global\.v4\.b32 \{[^}]*\}, \[ %rd\d+ \+) 0 \]", r"\1 4 ]"), "memcheck",
    ),
    "an offset is truncated to 32 bits": (
        CUDA, "gate_forward", (4, 512), far_apart,
        change(r"mul\.wide\.s32\s+(%rd\d+), (%r\d+), (%r\d+);",
               r"{ .reg .b32 low; mul.lo.s32 low, \2, \3; cvt.s64.s32 \1, low; }"),
        "memcheck|bits",
    ),
    "a branch is taken the other way": (
        CUDA, "gate_forward", ROWS, ordinary(FP32), change(r"@(%p\d+) bra", r"@!\1 bra"),
        "memcheck|bits",
    ),
    "no result is stored": (
        CUDA, "gate_forward", ROWS, ordinary(FP32), change(r"st\.global[^;]*;", ""), "bits",
    ),
    "a predicate of Triton's is inverted": (
        TRITON, "gate_forward", (7, 33), ordinary(FP32),
        change(r"@(%p\d+) ld", r"@!\1 ld"), "memcheck|bits",
    ),
    "an fma flushes subnormal numbers": (
        CUDA, "gate_forward", ROWS, subnormal, change(r"fma\.rn\.f32", "fma.rn.ftz.f32"), "bits",
    ),
    "partial sums have another stride": (
        CUDA, "gate_backward_bias", MANY_ROWS, ordinary(FP32),
        change(r"(add_partial_sums[\s\S]*?shl\.b64\s+%rd\d+, %rd\d+), 7;", r"\1, 8;"),
        "memcheck|bits",
    ),
    "a mask of Triton's is one column too long": (
        TRITON, "gate_forward", (1, 1033), ordinary(FP32),
        change(r"setp\.lt\.s64", "setp.le.s64"), "memcheck",
    ),
}  # fmt: skip


@each(name=CHANGES)
def test_a_change_is_found(name: str) -> None:
    backend, operator, shape, make, changed, found_by = CHANGES[name]
    call = CALLS[operator]
    tensors = call.inputs(shape, make)
    expected = call(*tensors)
    touched = []

    def record(text: str) -> str:
        touched.append(changed(text) != text)
        return changed(text)

    with kernels_for(backend):
        unchanged = call(*tensors)
    assert sum(bits.differing(y, e) for y, e in zip(unchanged, expected, strict=True)) == 0
    try:
        with ptx_on_cpu.changed(record), kernels_for(backend):
            results = call(*tensors)
    except RuntimeError as error:
        assert re.search(rf"\b({found_by}): ", str(error)), str(error)
    else:
        assert "bits" in found_by
        assert sum(bits.differing(y, e) for y, e in zip(results, expected, strict=True)) > 0
    assert any(touched)


@each(size=[1, 1000, 2**23])
def test_new_memory_has_no_earlier_numbers(size: int) -> None:
    """A result that a changed kernel does not write cannot be right by chance."""
    torch.ones(size)
    assert torch.empty(size).isnan().all()
