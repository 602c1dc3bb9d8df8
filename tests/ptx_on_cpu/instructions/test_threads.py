"""The machine that executes PTX in the tests: branches, exchanges between threads, and the faults
that it finds.
"""

import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests import ptx_on_cpu
from tests.ptx_on_cpu.instructions.kernels import launch, module

# Threads


def test_lanes_of_a_warp_exchange_numbers() -> None:
    for mode, b in product(["bfly", "idx", "up", "down"], [0, 1, 5, 16, 31]):
        for clamp in (0x1F, 0x181F, 0x1C1F) if mode != "up" else (0, 0x1800):
            out = torch.full((64,), -1, dtype=torch.int32)
            text = module(
                f"shfl.sync.{mode}.b32 %r1, %r0, {b}, {clamp}, -1;"
                "mad.wide.u32 %rd19, %r0, 4, %rd0; st.global.u32 [%rd19], %r1;",
                1,
            )
            launch(text, [out], threads=64)
            segment = clamp >> 8 & 31
            for thread, found in enumerate(out.tolist()):
                lane = thread % 32
                limit = (lane & segment) | (clamp & 31 & ~segment)
                j = {
                    "bfly": lane ^ b, "up": lane - b, "down": lane + b,
                    "idx": (lane & segment) | (b & ~segment),
                }[mode]  # fmt: skip
                is_there = j >= limit if mode == "up" else j <= limit
                assert found == thread - lane + (j if is_there else lane)


def values(t: Tensor, kind: str) -> list[int]:
    return [x % 2**32 if kind == "u32" else x for x in t.tolist()]


EACH = "mad.wide.u32 %rd18, %r0, 4, %rd{}; {}.global.b32 "  # number of a thread


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_lanes_of_a_warp_find_an_extreme(kind: str) -> None:
    """The halves of a warp, each among its members."""
    numbers = torch.randint(-(2**31), 2**31, (64,)).int()
    members = "and.b32 %r2, %r0, 16; shl.b32 %r2, 0xffff, %r2;"
    for name, choose in {"min": min, "max": max}.items():
        out = torch.zeros_like(numbers)
        body = EACH.format(0, "ld") + f"%r1, [%rd18]; {members}"
        body += f"redux.sync.{name}.{kind} %r3, %r1, %r2;" + EACH.format(1, "st") + "[%rd18], %r3;"
        launch(module(body, 2), [numbers, out], threads=64)
        for given, found in zip(numbers.split(16), out.split(16), strict=True):
            assert values(found, kind) == [choose(values(given, kind))] * 16


@pytest.mark.parametrize(
    ("numbers", "least", "greatest"),
    [
        ([1.0, -2.0, 5.5], -2.0, 5.5),
        ([0.0, -0.0], -0.0, 0.0),
        ([3.0, math.nan, -1.0], -1.0, 3.0),
        ([-math.nan], math.nan, math.nan),
    ],
)
def test_lanes_of_a_warp_find_an_extreme_float(
    numbers: list[float], least: float, greatest: float
) -> None:
    has_nan = any(map(math.isnan, numbers))
    given = torch.tensor((numbers * 32)[:32])
    for name, expected in {"min": least, "max": greatest}.items():
        for suffix in ("", ".NaN"):
            out = torch.zeros(32)
            body = EACH.format(0, "ld") + "%r1, [%rd18];"
            body += f"redux.sync.{name}{suffix}.f32 %r3, %r1, -1;"
            launch(module(body + EACH.format(1, "st") + "[%rd18], %r3;", 2), [given, out])
            y = math.nan if has_nan and suffix else expected
            bits = 0x7FFFFFFF if math.isnan(y) else torch.tensor(y).view(torch.int32)
            assert (out.view(torch.int32) == bits).all()


def test_lanes_of_a_warp_vote() -> None:
    """The halves of a warp, each among its members."""
    numbers = torch.tensor([[1] * 16, [0] * 16, [0] * 15 + [1], [1] * 15 + [0]]).int().flatten()
    members = "and.b32 %r2, %r0, 16; shl.b32 %r2, 0xffff, %r2;"
    for name, choose in {"any": max, "all": min}.items():
        out = torch.zeros_like(numbers)
        body = EACH.format(0, "ld") + f"%r1, [%rd18]; {members} setp.ne.s32 %p1, %r1, 0;"
        body += f"vote.sync.{name}.pred %p2, %p1, %r2; selp.b32 %r3, 1, 0, %p2;"
        launch(module(body + EACH.format(1, "st") + "[%rd18], %r3;", 2), [numbers, out], threads=64)
        assert out[::16].tolist() == [choose(half.tolist()) for half in numbers.split(16)]


@pytest.mark.parametrize("order", ["", "gpu.relaxed.", "gpu.acq_rel."])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_atomic_updates(kind: str, order: str) -> None:
    """Every thread updates one of four numbers."""
    given = torch.randint(-(2**31), 2**31, (300,)).int()
    first = torch.tensor([0, -1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    operations = {"max": max, "min": min, "add": lambda group: sum(group) % 2**32}
    for name, operation in operations.items():
        if (name, kind) == ("add", "s32"):
            continue
        groups = [values(torch.cat([first[k : k + 1], given[k::4]]), kind) for k in range(4)]
        body = EACH.format(0, "ld") + "%r1, [%rd18];"
        body += "and.b32 %r2, %r0, 3; mad.wide.u32 %rd19, %r2, 4, %rd1;"
        body += f"{{}}.global.{order}{name}.{kind} {{}}[%rd19], %r1;"
        without, updated, before = first.clone(), first.clone(), torch.zeros_like(given)
        launch(module(body.format("red", ""), 2), [given, without], threads=300)
        body = body.format("atom", "%r3, ") + EACH.format(2, "st") + "[%rd18], %r3;"
        launch(module(body, 3), [given, updated, before], threads=300)
        assert values(updated, kind) == [operation(group) for group in groups]
        assert torch.equal(without, updated)
        for k in range(4):  # a thread sees what the thread before made
            seen = [operation(groups[k][: n + 1]) for n in range(75)]
            assert values(before[k::4], kind) == seen


def test_branches_part_and_meet() -> None:
    """Each thread goes round a loop as often as its number says."""
    out = torch.zeros(300, dtype=torch.int32)
    body = """
mov.u32 %r1, 0;
mov.u32 %r2, %r0;
setp.eq.u32 %p1, %r2, 0;
@%p1 bra DONE;
AGAIN:
add.u32 %r1, %r1, %r2;
sub.u32 %r2, %r2, 1;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra AGAIN;
DONE:
and.b32 %r3, %r0, 1;
setp.eq.u32 %p2, %r3, 0;
@!%p2 add.u32 %r1, %r1, 1000000;
mad.wide.u32 %rd19, %r0, 4, %rd0;
st.global.u32 [%rd19], %r1;
"""
    launch(module(body, 1), [out], threads=300)
    assert out.tolist() == [n * (n + 1) // 2 + n % 2 * 1000000 for n in range(300)]


def test_a_scope_has_its_own_registers() -> None:
    """As inline assembly has, whose closing brace may begin a line."""
    out = torch.zeros(32, 2, dtype=torch.int32)
    body = """
{
.reg .b32 x<2>;
add.u32 x0, %r0, 1;
add.u32 x1, x0, 1;
mov.b32 %r1, x1;
}
{
.reg .b32 x<2>, y;
mov.b32 y, 7;
mov.b64 %rd1, {y, %r1};
mov.b64 {x0, x1}, %rd1;
mad.wide.u32 %rd19, %r0, 8, %rd0;
st.global.v2.b32 [%rd19], {x0, x1};
}
"""
    launch(module(body, 1), [out])
    assert out.tolist() == [[7, n + 2] for n in range(32)]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_vectors_through_shared_memory(count: int, bits: int) -> None:
    """Of the neighbour, from a load that is for constants."""
    size = count * bits // 8
    register = {8: "%rs", 16: "%rs", 32: "%r1", 64: "%rd1"}[bits]
    names = ", ".join(f"{register}{k}" for k in range(1, count + 1))
    kind = f"{f'v{count}.' if count > 1 else ''}u{bits}"
    vector = f"{{{names}}}" if count > 1 else names
    body = f"""
mov.u32 %r9, memory; mad.lo.u32 %r1, %r0, {size}, %r9; xor.b32 %r2, %r0, 1;
mad.lo.u32 %r2, %r2, {size}, %r9; mad.wide.u32 %rd2, %r0, {size}, %rd0;
mad.wide.u32 %rd3, %r0, {size}, %rd1;
ld.global.nc.{kind} {vector}, [%rd2]; st.shared.{kind} [%r1], {vector};
bar.warp.sync -1;
ld.shared.{kind} {vector}, [%r2]; st.global.{kind} [%rd3], {vector};
"""
    given = torch.randint(0, 256, (32, size), dtype=torch.uint8)
    out = torch.zeros_like(given)
    launch(module(body, 2, shared=1024), [given, out])
    assert torch.equal(out, given.view(16, 2, size).flip(1).view(32, size))


@pytest.mark.parametrize("layout", ["", ".trans"])
def test_matrices_of_a_warp(layout: str) -> None:
    """Row r of matrix m is at the address of lane 8 m + r; a lane has two neighbours in a row or
    column."""
    row_of_lane = "shl.b32 %r1, %r0, 4; mov.u32 %r9, memory; add.u32 %r9, %r9, %r1;"
    row_of_lane += "mad.wide.u32 %rd18, %r0, 16, %rd0; mad.wide.u32 %rd19, %r0, 16, %rd1;"
    words = "{%r4, %r5, %r6, %r7}"
    matrix = f"matrix.sync.aligned.m8n8.x4{layout}.shared.b16"
    rows = torch.arange(256, dtype=torch.int16).view(4, 8, 8)
    of_lanes = (rows.mT if layout else rows).reshape(4, 32, 2).transpose(0, 1).contiguous()
    load = row_of_lane + f"ld.global.v4.b32 {words}, [%rd18]; st.shared.v4.b32 [%r9], {words};"
    load += f"bar.sync 0; ld{matrix} {words}, [%r9]; st.global.v4.b32 [%rd19], {words};"
    store = row_of_lane + f"ld.global.v4.b32 {words}, [%rd18]; st{matrix} [%r9], {words};"
    store += f"bar.sync 0; ld.shared.v4.b32 {words}, [%r9]; st.global.v4.b32 [%rd19], {words};"
    for body, given, expected in ((load, rows, of_lanes), (store, of_lanes, rows)):
        out = torch.zeros(256, dtype=torch.int16)
        launch(module(body, 2, shared=512), [given.clone(), out])
        assert torch.equal(out, expected.flatten())


# Faults

STORE = "mad.wide.u32 %rd19, %r0, {}, %rd0; st.global.{} [%rd19{}], {};"


def fault(body: str, tensors: Sequence[Tensor] = (), threads: int = 64, shared: int = 1024) -> str:
    with pytest.raises(ptx_on_cpu.Fault) as caught:
        launch(module(body, len(tensors), shared=shared), tensors, threads)
    return str(caught.value)


def test_an_access_beyond_a_tensor() -> None:
    t = torch.zeros(63, dtype=torch.int32)
    message = fault(STORE.format(4, "u32", "", "%r0"), [t])
    assert message.startswith("memcheck: 4 bytes at ")
    assert "an allocation of 252 bytes ends 0 bytes before" in message
    assert "thread 63 of block (0, 0, 0): st.global.u32 [%rd19], %r0" in message


def test_a_misaligned_vector() -> None:
    t = torch.zeros(1024, dtype=torch.int32)
    message = fault(STORE.format(16, "v2.u32", "+4", "{%r0, %r0}"), [t])
    assert message.startswith("memcheck: 8 bytes at ") and "are misaligned" in message


def test_memory_of_no_tensor() -> None:
    other = torch.zeros(64, dtype=torch.int32)
    body = f"mov.u64 %rd1, {other.data_ptr()}; st.global.u32 [%rd1], %r0;"
    assert "not in the memory that the launch was given" in fault(body, [torch.zeros(1)])


def test_a_tensor_that_was_freed() -> None:
    t = torch.zeros(2**16, dtype=torch.int32)
    text = module(STORE.format(4, "u32", "", "%r0"), 1)
    (kernel,) = ptx_on_cpu.load(text).values()
    value = ctypes.c_uint64(t.data_ptr())
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    del t
    with pytest.raises(ptx_on_cpu.Fault, match="memcheck: "):
        kernel.launch((1, 1, 1), (32, 1, 1), 0, ctypes.addressof(pointers))


SHARED = "mov.u32 %r9, memory; shl.b32 %r1, %r0, 2; add.u32 %r1, %r1, %r9;"


def test_shared_memory_that_was_not_written() -> None:
    assert fault(SHARED + "ld.shared.u32 %r2, [%r1];").startswith("initcheck: byte 0 ")


def test_shared_memory_has_an_end() -> None:
    message = fault(SHARED + "st.shared.u32 [%r1+800], %r0;")
    assert message.startswith("memcheck: 4 bytes at 0x400 are not among the 1024 of shared memory")


EXCHANGE = (
    SHARED
    + """
st.shared.u32 [%r1], %r0;
{}
xor.b32 %r2, %r1, 4;
ld.shared.u32 %r3, [%r2];
"""
)


def test_a_race_is_found() -> None:
    launch(module(EXCHANGE.format("bar.sync 0;"), 0, shared=1024), [], 64)
    assert fault(EXCHANGE.format("")).startswith("racecheck: byte 4 of shared memory is read after")
    every_thread_writes = SHARED + "st.shared.u32 [%r9], %r0;"
    assert "is written after thread 0 wrote it" in fault(every_thread_writes)
    read_then_write = EXCHANGE.format("bar.sync 0;") + "st.shared.u32 [%r1], %r0;"
    assert "is written after thread 1 read it" in fault(read_then_write)


HALF = "shr.u32 %r5, %r0, 6; add.u32 %r6, %r5, 1;"  # of 128 threads, and its barrier


def test_a_barrier_for_some_threads() -> None:
    """Each half of a block goes round a loop as often as it likes."""
    loop = """
mov.u32 %r8, %r0;
shl.b32 %r7, %r5, 2;
AGAIN:
st.shared.u32 [%r1], %r8;
bar.sync %r6, 64;
xor.b32 %r2, %r1, 252;
ld.shared.u32 %r8, [%r2];
barrier.sync %r6, 64;
add.u32 %r8, %r8, 1000;
sub.u32 %r7, %r7, 1;
setp.ge.s32 %p1, %r7, 0;
@%p1 bra AGAIN;
mad.wide.u32 %rd19, %r0, 4, %rd0; st.global.u32 [%rd19], %r8;
"""
    out = torch.zeros(128, dtype=torch.int32)
    launch(module(SHARED + HALF + loop, 1, shared=1024), [out], threads=128)
    assert out.tolist() == [(n ^ 63) + (1000 if n < 64 else 5000) for n in range(128)]


def test_a_race_beside_a_barrier_for_some_threads() -> None:
    exchange = SHARED + HALF + "st.shared.u32 [%r1], %r0; {} xor.b32 %r2, %r1, {};"
    exchange += "ld.shared.u32 %r3, [%r2];"
    for barrier, nearest, within, beyond in (
        ("bar.sync %r6, 64;", "thread 64", 252, 256),
        ("bar.warp.sync -1;", "thread 32", 124, 128),
    ):
        launch(module(exchange.format(barrier, within), 0, shared=1024), [], 128)
        message = fault(exchange.format(barrier, beyond), threads=128)
        assert message.startswith("racecheck: ") and f"is read after {nearest} wrote it" in message


def test_what_a_warp_has_seen_it_shows_at_the_next_barrier() -> None:
    """The first meets the second, and then the second the third, which overwrites the bytes that
    the first has written and read."""
    setup = SHARED + "setp.lt.u32 %p1, %r0, 32; setp.ge.u32 %p3, %r0, 64; setp.eq.u32 %p4, %r0, 0;"
    setup += "setp.eq.u32 %p5, %r0, 64; @%p4 st.shared.u32 [%r9], 5; @%p1 bar.warp.sync -1;"
    read, meet = "@%p1 ld.shared.u32 %r3, [%r9];", "@!%p3 bar.sync 1, 64;"
    last = "@!%p1 bar.sync 2, 64; @%p5 ld.shared.u32 %r3, [%r9]; @%p5 st.shared.u32 [%r9], 6;"
    launch(module(setup + read + meet + last, 0, shared=1024), [], 96)
    assert "is read after thread 0 wrote it" in fault(setup + read + last, threads=96)
    for reads in (read, read.replace("@%p1", "@!%p3")):  # the first, or the second as well
        message = fault(setup + meet + reads + last, threads=96)
        assert "is written after several threads read it" in message


def test_a_barrier_that_cannot_be_passed() -> None:
    for body, message in (
        ("bar.sync 1, 96;", "thread 0 waits at a barrier for more threads than there are"),
        ("bar.sync 1, 32;", "thread 32 is one too many at a barrier"),
        ("bar.sync 1, 40;", "thread 0 waits at a barrier for a part of a warp"),
        ("bar.sync 16;", "thread 0 waits at barrier 16 of 16"),
        ("and.b32 %r1, %r0, 1; bar.sync %r1, 32;",
         "thread 0 waits at a barrier that not all of a warp have reached"),
        ("shr.u32 %r1, %r0, 5; bar.sync %r1;", "thread 32 waits at another barrier than thread 0"),
    ):  # fmt: skip
        assert fault(body).startswith(f"synccheck: {message}"), body


def test_a_barrier_that_some_threads_do_not_reach() -> None:
    skip = "setp.eq.u32 %p1, %r0, 63; @%p1 bra END; bar.sync 0; END:"
    assert fault(skip).startswith("synccheck: thread 63 has ended, others wait at a barrier")
    two = "setp.eq.u32 %p1, %r0, 63; @%p1 bra B; bar.sync 0; bra END; B: bar.sync 0; END:"
    assert fault(two).startswith("synccheck: thread 63 waits at another barrier than thread 0")


def test_a_lane_that_has_left_its_warp() -> None:
    body = "setp.eq.u32 %p1, %r0, 5; @%p1 bra END; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; END:"
    assert fault(body).startswith("synccheck: lane 5 of the warp should take part")


def test_an_unknown_opcode() -> None:
    with pytest.raises(ptx_on_cpu.UnknownOpcode, match="does not know frobnicate.b32 %r1, %r0"):
        launch(module("frobnicate.b32 %r1, %r0;", 0), [])


def test_a_register_of_another_width() -> None:
    with pytest.raises(ValueError, match="%rd0 has 8 bytes, not 4"):
        launch(module("add.u32 %r1, %r0, %rd0;", 1), [torch.zeros(1)])


def test_too_many_threads() -> None:
    with pytest.raises(ptx_on_cpu.Fault, match="512 threads in a block of k, which is for 256"):
        launch(module("", 0, most=256), [], threads=512)


@pytest.mark.slow
def test_the_same_without_vectors() -> None:
    """A multiply-add is a function then, where the processor's baseline has none."""
    tests = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("integers", "floats")]
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PTX_VECTORS": "off"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
