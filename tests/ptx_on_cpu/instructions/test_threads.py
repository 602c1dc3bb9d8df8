"""Branches, exchanges between threads, and the faults that the machine finds."""

import ctypes
import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests import ptx_on_cpu
from tests.cases import each
from tests.ptx_on_cpu.instructions.kernels import launch, module

EACH = "mad.wide.u32 %rd18, %r0, 4, %rd{}; {}.global.b32 "  # number of a thread
LOAD, STORE = EACH.format(0, "ld") + "%r1, [%rd18];", EACH.format(1, "st") + "[%rd18], %r3;"


def values(t: Tensor, kind: str) -> list[int]:
    return [x % 2**32 if kind == "u32" else x for x in t.tolist()]


@each(mode=["bfly", "idx", "up", "down"], b=[0, 1, 5, 16, 31])
def test_lanes_of_a_warp_exchange_numbers(mode: str, b: int) -> None:
    for clamp in (0x1F, 0x181F, 0x1C1F) if mode != "up" else (0, 0x1800):
        out = torch.full((64,), -1, dtype=torch.int32)
        shuffle = f"shfl.sync.{mode}.b32 %r3, %r0, {b}, {clamp}, -1;"
        launch(module(shuffle + STORE, 2), [out, out], threads=64)
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


MEMBERS = "and.b32 %r2, %r0, 16; shl.b32 %r2, 0xffff, %r2;"  # the half of a warp


def test_halves_of_a_warp_reduce_numbers() -> None:
    votes = torch.tensor([[1] * 16, [0] * 16, [0] * 15 + [1], [1] * 15 + [0]]).int().flatten()
    numbers = torch.randint(-(2**31), 2**31, (64,)).int()
    vote = "setp.ne.s32 %p1, %r1, 0; vote.sync.all.pred %p2, %p1, %r2; selp.b32 %r3, 1, 0, %p2;"
    for kind, reduction, given, choose in (
        ("u32", "redux.sync.max.u32 %r3, %r1, %r2;", numbers, max),
        ("s32", "redux.sync.max.s32 %r3, %r1, %r2;", numbers, max),
        ("s32", "redux.sync.add.s32 %r3, %r1, %r2;", numbers >> 5, sum),
        ("u32", vote, votes, min),
    ):
        out = torch.zeros_like(given)
        launch(module(LOAD + MEMBERS + reduction + STORE, 2), [given, out], threads=64)
        expected = [choose(values(half, kind)) for half in given.split(16) for _ in range(16)]
        assert values(out, kind) == expected, reduction


@each(kind=["u32", "s32"], order=["", "gpu.relaxed."])
def test_atomic_maxima(kind: str, order: str) -> None:
    """Every thread updates one of four numbers, and sees what the thread before made."""
    given = torch.randint(-(2**31), 2**31, (300,)).int()
    first = torch.tensor([0, -1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    address = LOAD + "and.b32 %r2, %r0, 3; mad.wide.u32 %rd19, %r2, 4, %rd{};"
    without, updated, before = first.clone(), first.clone(), torch.zeros_like(given)
    body = address.format(1) + f"red.global.{order}max.{kind} [%rd19], %r1;"
    launch(module(body, 2), [given, without], threads=300)
    body = address.format(2) + f"atom.global.{order}max.{kind} %r3, [%rd19], %r1;" + STORE
    launch(module(body, 3), [given, before, updated], threads=300)
    groups = [values(torch.cat([first[k : k + 1], given[k::4]]), kind) for k in range(4)]
    assert values(updated, kind) == [max(group) for group in groups]
    assert torch.equal(without, updated)
    for k, group in enumerate(groups):
        assert values(before[k::4], kind) == [max(group[: n + 1]) for n in range(75)]


# Each block writes its number; the last one to count, in a variable of the module, adds them all.
LAST_BLOCK = """
.global .align 4 .b8 counter[4];
""" + module(
    """
mov.u32 %r1, %ctaid.x;
mad.wide.u32 %rd19, %r1, 4, %rd0;
setp.ne.u32 %p1, %r0, 7;
@%p1 bra WRITTEN;
st.global.b32 [%rd19], %r1;
WRITTEN:
bar.sync 0;
mov.u64 %rd18, counter;
mov.u32 %r2, 0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra COUNTED;
atom.acq_rel.gpu.inc.u32 %r2, [%rd18], 4;
st.shared.b32 [memory], %r2;
COUNTED:
bar.sync 0;
ld.shared.b32 %r2, [memory];
setp.ne.u32 %p1, %r2, 4;
@%p1 bra END;
mov.u32 %r3, 0;
mov.u32 %r4, 0;
AGAIN:
mad.wide.u32 %rd19, %r4, 4, %rd0;
ld.global.b32 %r5, [%rd19];
add.u32 %r3, %r3, %r5;
add.u32 %r4, %r4, 1;
setp.ne.u32 %p1, %r4, 5;
@%p1 bra AGAIN;
mad.wide.u32 %rd19, %r0, 4, %rd1;
st.global.b32 [%rd19], %r3;
END:
""",
    2,
)


def test_the_last_block_reads_what_all_wrote() -> None:
    for _ in range(2):
        partial, out = torch.zeros(5, dtype=torch.int32), torch.zeros(300, dtype=torch.int32)
        launch(LAST_BLOCK, [partial, out], threads=300, blocks=5)
        assert out.tolist() == [10] * 300


@each(
    change=[
        ("atom.acq_rel", "atom.relaxed", "racecheck: global memory is read after block 0 wrote it"),
        ("WRITTEN:\nbar.sync 0;", "WRITTEN:", "racecheck: global memory is read after block 0"),
        ("[%rd18], 4;", "[%rd18], 5;", "statecheck: a launch leaves a variable changed"),
        ("mad.wide.u32 %rd19, %r1, 4, %rd0;", "mov.u64 %rd19, %rd0;", "written after block 0"),
    ]
)
def test_blocks_that_are_not_in_order(change: tuple[str, str, str]) -> None:
    before, after, found = change
    partial, out = torch.zeros(5, dtype=torch.int32), torch.zeros(300, dtype=torch.int32)
    with pytest.raises(ptx_on_cpu.Fault, match=found):
        launch(LAST_BLOCK.replace(before, after), [partial, out], threads=300, blocks=5)


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
.reg .b32 y<2>;
.reg .b64 x0;
mov.b32 y0, 7;
mov.b64 x0, {y0, %r1};
mov.b64 {y0, y1}, x0;
mad.wide.u32 %rd19, %r0, 8, %rd0;
st.global.v2.b32 [%rd19], {y0, y1};
}
"""
    launch(module(body, 1), [out])
    assert out.tolist() == [[7, n + 2] for n in range(32)]


@each(bits=[8, 16, 32, 64], count=[1, 2, 4])
def test_vectors_through_shared_memory(bits: int, count: int) -> None:
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
bar.sync 0;
ld.shared::cta.{kind} {vector}, [%r2]; st.global.{kind} [%rd3], {vector};
"""
    given = torch.randint(0, 256, (32, size), dtype=torch.uint8)
    out = torch.zeros_like(given)
    launch(module(body, 2, shared=1024), [given, out])
    assert torch.equal(out, given.view(16, 2, size).flip(1).view(32, size))


@each(layout=["", ".trans"])
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


PLACE = "mov.u32 %r9, memory; shl.b32 %r1, %r0, 4; add.u32 %r1, %r1, %r9;"
BEGIN = "cp.async.cg.shared.global [%r1], [%rd{}], 16;"
COMMIT, WAIT = "cp.async.commit_group;", "cp.async.wait_group {};"
READ = "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];"


def test_copies_arrive_in_groups() -> None:
    """The second copy is in a group of its own, to where the first was read."""
    given, out = torch.arange(2 * 32 * 4).int(), torch.zeros(2, 128, dtype=torch.int32)
    write = "mad.wide.u32 %rd19, %r0, 16, %rd1; st.global.v4.b32 [%rd19{}], {{%r4, %r5, %r6, %r7}};"
    first = PLACE + "mad.wide.u32 %rd18, %r0, 16, %rd0;" + BEGIN.format(18) + COMMIT + COMMIT
    second = "add.u64 %rd18, %rd18, 512;" + BEGIN.format(18) + COMMIT
    body = first + WAIT.format(1) + READ + write.format("")
    body += second + WAIT.format(0) + READ + write.format("+512")
    launch(module(body, 2, shared=512), [given, out])
    assert torch.equal(out.flatten(), given)


def test_a_copy_that_reads_nothing_is_of_zeros() -> None:
    """Lanes from 16 on read nothing; their addresses are beyond the tensor."""
    given, out = torch.arange(1, 65).int(), torch.ones(128, dtype=torch.int32)
    some = "setp.lt.u32 %p1, %r0, 16; selp.b32 %r2, 16, 0, %p1;"
    copy = PLACE + some + "mad.wide.u32 %rd18, %r0, 16, %rd0;"
    copy += BEGIN.format(18).replace("16;", "0x10, %r2;") + COMMIT + WAIT.format(0) + READ
    write = "mad.wide.u32 %rd19, %r0, 16, %rd1; st.global.v4.b32 [%rd19], {%r4, %r5, %r6, %r7};"
    launch(module(copy + write, 2, shared=512), [given, out])
    assert torch.equal(out, torch.cat([given, torch.zeros_like(given)]))


# Faults


def fault(body: str, tensors: Sequence[Tensor] = ()) -> str:
    with pytest.raises(ptx_on_cpu.Fault) as caught:
        launch(module(body, len(tensors), shared=1024), tensors, threads=64)
    return str(caught.value)


SHARED = "mov.u32 %r9, memory; shl.b32 %r1, %r0, 2; add.u32 %r1, %r1, %r9;"
EXCHANGE = SHARED + "st.shared.u32 [%r1], %r0; {} xor.b32 %r2, %r1, 4; ld.shared.u32 %r3, [%r2];"
LAST = "setp.eq.u32 %p1, %r0, 63; @%p1 bra "
TO = "mad.wide.u32 %rd19, %r0, {}, %rd0; st.global.{} [%rd19{}], {};"
BEYOND = r"memcheck: 4 bytes at .* an allocation of 252 bytes ends 0 bytes before.*"

COPY = PLACE + BEGIN.format(0)

OTHER = torch.zeros(64)

# What 64 threads do with 63 numbers, and the fault.
FAULTS = {
    TO.format(4, "u32", "", "%r0"): BEYOND
    + re.escape("thread 63 of block (0, 0, 0): st.global.u32 [%rd19], %r0"),
    TO.format(16, "v2.u32", "+4", "{%r0, %r0}"): "memcheck: 8 bytes at .* are misaligned",
    f"mov.u64 %rd1, {OTHER.data_ptr()}; st.global.u32 [%rd1], %r0;":
        "memcheck: .*not in the memory that the launch was given",
    SHARED + "ld.shared.u32 %r2, [%r1];": "initcheck: byte 0 ",
    SHARED + "st.shared.u32 [%r1+800], %r0;":
        "memcheck: 4 bytes at 0x400 are not among the 1024 of shared memory",
    EXCHANGE.format(""): "racecheck: byte 4 of shared memory is read after thread 1 wrote it",
    SHARED + "st.shared.u32 [%r9], %r0;": "racecheck: .* is written after thread 0 wrote it",
    EXCHANGE.format("bar.sync 0;") + "st.shared.u32 [%r1], %r0;":
        "racecheck: .* is written after thread 1 read it",
    **dict.fromkeys(
        [
            COPY + COMMIT + READ,
            COPY + COMMIT + WAIT.format(1) + READ,
            COPY + WAIT.format(0) + READ,
            COPY + "st.shared.b32 [%r1], %r0;",
            COPY + COPY,
        ],
        "racecheck: byte 0 of shared memory is accessed before a wait for the copy to it",
    ),
    COPY + COMMIT + WAIT.format(0) + "xor.b32 %r1, %r1, 16;" + READ:
        "racecheck: byte 16 of shared memory is read after thread 1 wrote it",
    COPY.replace("16;", "16, 8;"): "a copy reads all of its bytes or none",
    EXCHANGE.replace("%r1, 4;", "%r1, 128;").format("bar.warp.sync -1;"):
        "racecheck: byte 128 of shared memory is read after thread 32 wrote it",
    "setp.eq.u32 %p1, %r0, 5; @%p1 bra END; bar.warp.sync -1; END:":
        "synccheck: lane 5 of the warp should take part",
    "bar.warp.sync 1;": "the machine knows no barrier of some lanes",
    LAST + "END; bar.sync 0; END:": "synccheck: thread 63 has ended, others wait at a barrier",
    LAST + "B; bar.sync 0; bra END; B: bar.sync 0; END:":
        "synccheck: thread 63 waits at another barrier than others",
    "setp.eq.u32 %p1, %r0, 5; @%p1 bra END; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; END:":
        "synccheck: lane 5 of the warp should take part",
}  # fmt: skip


@each(body=FAULTS)
def test_a_fault_is_found(body: str) -> None:
    assert re.match(FAULTS[body], fault(body, [torch.zeros(63)]))


@each(barrier=["bar.sync 0;", "bar.warp.sync -1;"])
def test_an_exchange_behind_a_barrier_is_no_fault(barrier: str) -> None:
    """Nor is a number that all lanes have read, and one writes behind the next barrier."""
    all_read = "ld.shared.u32 %r3, [%r4];"
    write = "setp.ne.u32 %p1, %r4, %r1; @%p1 bra END; st.shared.u32 [%r1], %r0; END:"
    first_of_warp = "and.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r9;"
    body = EXCHANGE.format(barrier) + first_of_warp + all_read + barrier + write
    launch(module(body, 0, shared=1024), [], 64)


def test_a_tensor_that_was_freed() -> None:
    t = torch.zeros(2**16, dtype=torch.int32)
    (kernel,) = ptx_on_cpu.load(module(TO.format(4, "u32", "", "%r0"), 1)).values()
    value = ctypes.c_uint64(t.data_ptr())
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    del t
    with pytest.raises(ptx_on_cpu.Fault, match="memcheck: "):
        kernel.launch((1, 1, 1), (32, 1, 1), 0, ctypes.addressof(pointers))


def test_what_the_machine_does_not_take() -> None:
    local = "st.local.b32 [%r0], %r1;"
    for body in ("frobnicate.b32 %r1, %r0;", "bar.sync 1;", "bar.sync 0, 32;", local):
        with pytest.raises(ptx_on_cpu.UnknownOpcode, match=re.escape(body[:-1])):
            launch(module(body, 0), [])
    with pytest.raises(ValueError, match="%rd0 has 8 bytes, not 4"):
        launch(module("add.u32 %r1, %r0, %rd0;", 1), [torch.zeros(1)])
    with pytest.raises(ptx_on_cpu.Fault, match="512 threads in a block of k, which is for 256"):
        launch(module("", 0, most=256), [], threads=512)
