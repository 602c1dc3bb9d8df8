"""Faults for the sanitizers to find: ``python -m tests.sanitizers.planted NAME``."""

import ctypes
import sys

import torch
from torch import Tensor

from tests import cpp_library, ptx_on_cpu
from tests.processes.together import together
from tests.ptx_on_cpu.instructions.kernels import module
from tests.sanitizers.built import HERE
from tests.sanitizers.sanitize import overlong

# The library of operators


def forward(x: Tensor) -> Tensor:
    return torch.ops.gelu_kernels.gate_forward(x, None, "normal")


def overrun() -> None:
    forward(overlong("cpu"))


def misaligned() -> None:
    """Undefined in C++, though the processor reads it."""
    forward(torch.frombuffer(bytearray(4005), dtype=torch.float32, offset=1))


def race_of_threads() -> None:
    """One reads a tensor while another writes it."""
    x = torch.randn(2**20)

    def write() -> None:
        for _ in range(20):
            ctypes.memset(x.data_ptr(), 0, x.nbytes)

    def read() -> None:
        for _ in range(20):
            forward(x)

    together(read, write)


def race_of_one_call() -> None:
    """The threads of one call, whose results and partial sums all lie in the same memory."""
    dy, x, bias = torch.randn(1000, 700), torch.randn(1000, 700), torch.randn(700)
    with cpp_library.build_folder("one_place") as folder:
        source = HERE / "one_place.cpp"
        built = cpp_library.compile_and_load("one_place", [source], folder, cpp_library.WARNINGS)
    built.allocate_in_one_place()
    torch.set_num_threads(4)
    torch.ops.gelu_kernels.gate_backward_bias(dy, x, bias, "normal")


# The machine that executes PTX

BODY = "mad.wide.u32 %rd19, %r0, 4, %rd0; ld.global.u32 %r1, [%rd19];"
BODY += "shl.b32 %r2, %r1, 5; st.global.u32 [%rd19], %r2;"


def kernel(body: str = BODY) -> ptx_on_cpu.Kernel:
    (loaded,) = ptx_on_cpu.load(module(body, 1)).values()
    return loaded


def launch(kernel: ptx_on_cpu.Kernel, blocks: int = 1) -> None:
    t = torch.zeros(512, dtype=torch.int32)
    value = ctypes.c_uint64(t.data_ptr())
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    kernel.launch((blocks, 1, 1), (512, 1, 1), 0, ctypes.addressof(pointers))


def machine_overrun() -> None:
    """Its registers do not all fit into the memory that they are given."""
    damaged = kernel()
    damaged.program.columns.register_bytes -= 64
    launch(damaged)


def machine_undefined() -> None:
    """A predicate that no instruction has set is neither true nor false."""
    launch(kernel("@%p1 " + BODY))


def machine_race() -> None:
    """Two launches at a time count what one kernel executes."""
    shared = kernel()
    launch(shared)
    together(*[lambda: launch(shared, 200)] * 2)


def machine_in_threads() -> None:
    """No fault: each has a kernel of its own."""

    def own() -> None:
        for _ in range(3):
            launch(kernel(), 50)

    together(*[own] * 4)


if __name__ == "__main__":
    ptx_on_cpu.record_allocations()
    globals()[sys.argv[1]]()
