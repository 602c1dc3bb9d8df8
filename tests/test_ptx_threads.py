"""The machine that executes PTX in the tests: branches, exchanges between threads, and the faults
that it finds.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import ptx_on_cpu
import pytest
import torch
from ptx_kernels import launch, module
from torch import Tensor

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


def test_matrices_of_a_warp() -> None:
    """Row r of matrix m is at the address of lane 8 m + r; a lane has a row's word."""
    body = """
shl.b32 %r1, %r0, 4;
mov.u32 %r9, memory;
add.u32 %r9, %r9, %r1;
shl.b32 %r2, %r0, 2;
st.shared.u32 [%r9], %r2;
add.u32 %r3, %r2, 1; st.shared.u32 [%r9+4], %r3;
add.u32 %r3, %r2, 2; st.shared.u32 [%r9+8], %r3;
add.u32 %r3, %r2, 3; st.shared.u32 [%r9+12], %r3;
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r9];
mad.wide.u32 %rd19, %r0, 16, %rd0;
st.global.v4.u32 [%rd19], {%r4, %r5, %r6, %r7};
"""
    out = torch.zeros(32, 4, dtype=torch.int32)
    launch(module(body, 1, shared=512), [out])
    for lane, matrix in product(range(32), range(4)):
        row, word = lane // 4, lane % 4
        assert out[lane, matrix] == 4 * (8 * matrix + row) + word


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
    tests = [
        str(Path(__file__).with_name(f"test_ptx_{name}.py")) for name in ("integers", "floats")
    ]
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PTX_VECTORS": "off"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
