"""Executes the PTX of nvcc and Triton on a CPU, on the memory of CPU tensors.

Each instruction runs for many threads at once, in vectorised loops (``machine/``). Every access is
checked against the tensors that were passed to the launch, every byte of shared memory records who
touched it since the last barrier, and all threads must reach a barrier. The special function unit
errs by as much as NVIDIA documents. README.md says more.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from weakref import finalize

from tests.ptx_on_cpu import machine, parse
from tests.ptx_on_cpu.assemble import Program, UnknownOpcode, assemble
from tests.ptx_on_cpu.machine import Error, only_ends, special_function_unit

__all__ = ["Error", "Fault", "Kernel", "UnknownOpcode", "changed", "load", "only_ends"]
__all__ += ["special_function_unit", "record_allocations"]

Change = Callable[[str], str]
_change: Change | None = None
_ran: "dict[Kernel, None]" = {}


class Fault(Exception):
    """A failed check. The message is one line that begins with the name of the check."""


def record_allocations() -> None:
    """Records every tensor that is allocated from now on. Kernels may touch no other memory."""
    machine.library()


class Kernel:
    def __init__(self, found: re.Match, module: str) -> None:
        self.name = found[1]
        self._found, self._module = found, module

    @property
    def text(self) -> str:
        return self._found[0]

    @property
    def entry(self) -> parse.Entry:
        return _entry(self)

    @property
    def program(self) -> Program:
        return _program(self)

    @cached_property
    def parameters(self) -> list[int]:
        """Sizes in bytes."""
        return [parameter.size for parameter in self.entry.parameters]

    @cached_property
    def _threads(self) -> tuple[int, bool]:
        """The largest block, and whether a block may not be smaller."""
        return self.entry.most_threads, self.entry.exact_threads

    @cached_property
    def _handle(self) -> int:
        handle = machine.load(self.program)
        finalize(self, machine.library().ptx_forget, handle)
        return handle

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        parameters: int,
        is_dependent: bool = False,
    ) -> None:
        """Runs the kernel to its end. ``parameters`` is the address of an array of pointers to the
        parameters' values, ``shared`` the size of dynamic shared memory. If ``is_dependent``, the
        previous kernel may still run until ``griddepcontrol.wait``."""
        kernel = self
        if _change and (text := _change(self.text)) != self.text:
            (entry,) = parse.entries(text).values()
            kernel = Kernel(entry, self._module)
        else:
            _ran[self] = None
        kernel._launch((*grid, *block), shared, parameters, is_dependent)

    def _launch(
        self, shape: tuple[int, ...], shared: int, parameters: int, is_dependent: bool
    ) -> None:
        threads = math.prod(shape[3:])
        most, exact = self._threads
        if threads > most or (exact and threads != most):
            raise Fault(f"launch: {threads} threads in a block of {self.name}, which is for {most}")
        text, where = machine.launch(self._handle, shape, shared, parameters, is_dependent)
        if text:
            raise Fault(f"{text}: {self._place(*where)}")

    def _place(self, instruction: int, thread: int, *block: int) -> str:
        statement = self.entry.statements[self.program.instructions[instruction].statement]
        return f"{self.source(statement)}, thread {thread} of block {block}: {statement}"

    def source(self, statement: parse.Statement) -> str:
        """The file and line that it was compiled from."""
        file, line = statement.place
        return f"{parse.files(self._module).get(file, self.name)}:{line}"

    def executed(self) -> list[int]:
        """How often each statement was executed."""
        counts = [0] * len(self.entry.statements)
        if "_handle" in vars(self):
            found = machine.executed(self._handle, len(self.program.instructions))
            for i, count in zip(self.program.instructions, found, strict=True):
                counts[i.statement] = max(counts[i.statement], int(count))
        return counts


# Only for the latest kernels: a process runs thousands, and each takes 0.8 MB parsed.
@lru_cache(maxsize=8)
def _entry(kernel: Kernel) -> parse.Entry:
    return parse.entry(kernel._found)


@lru_cache(maxsize=8)
def _program(kernel: Kernel) -> Program:
    shared, variables = (parse.variables(kernel._module, at) for at in ("shared", "global"))
    return assemble(kernel.entry, shared, variables, machine.widths)


def kernels_that_ran() -> list[Kernel]:
    return list(_ran)


def load(text: str) -> dict[str, Kernel]:
    """The kernels of a module, by name. Each is parsed when it is first launched."""
    return {name: Kernel(found, text) for name, found in parse.entries(text).items()}


@contextmanager
def changed(change: Change) -> Iterator[None]:
    """Kernels run with their text changed, as if the compiler had made an error."""
    global _change
    _change = change
    try:
        yield
    finally:
        _change = None
