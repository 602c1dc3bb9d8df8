"""Threads and instruction sets change no bit, many threads may call at once, and no more threads
run than were asked for."""

import ast
import os
import subprocess
import sys
import sysconfig
import time
import warnings
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
import torch

from gelu_kernels import _C, reference, replace_activations
from tests import bits
from tests.calls import CORE_CALLS, DTYPES, Call, Shape, normal
from tests.cases import each
from tests.new_process import python
from tests.processes.faults import check_all, prepared, run
from tests.processes.together import together


# With parts for seven threads, for two rows of tiles, for one thread, and with a ragged end.
@pytest.mark.parametrize("shape", [(401, 577), (20_000, 3), (3, 3000), (100_003,)], ids=str)
@each(call=CORE_CALLS)
def test_the_number_of_threads_changes_nothing(call: Call, shape: Shape, thread_count) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        tensors = call.inputs(shape, lambda *s, dtype=dtype: normal(*s, dtype=dtype))
        results = []
        for threads in (2, 3, 5, 16, 1):
            thread_count(threads)
            results.append(call(*tensors))
        *others, expected = results
        assert all(all(map(bits.same, other, expected)) for other in others)


@each(call=CORE_CALLS)
def test_nothing_is_left_unwritten(call: Call, device: str) -> None:
    """A new tensor holds NaN, or the largest integer. On a GPU torch fills it in this mode;
    on a CPU, where our operators do not call torch.empty, the allocator of ptx_on_cpu does."""
    for dtype, shape in ((torch.float32, (37, 1031)), (torch.bfloat16, (700, 3))):
        tensors = call.inputs(shape, lambda *s, d=dtype: normal(*s, dtype=d, device=device))
        expected = call(*tensors)
        torch.use_deterministic_algorithms(True)
        try:
            results = call(*tensors)
        finally:
            torch.use_deterministic_algorithms(False)
        assert not any(t.isnan().any() for t in results if t.is_floating_point())
        assert all(map(bits.same, results, expected))


def test_calls_from_many_threads(device: str) -> None:
    """Forward and backward on shared tensors and on each thread's own."""
    shape = 40, 700
    shared, own = prepared(shape, device), [prepared(shape, device) for _ in range(8)]

    def work(place: int) -> None:
        for _ in range(5):
            check_all([*own[place], *shared])

    together(*(partial(work, place) for place in range(8)))


@pytest.mark.slow
def test_first_calls_at_once() -> None:
    """The first calls of a process, from many threads; each has a generator of its own."""
    run("""
        from functools import partial
        from tests.processes.together import together

        cases = prepared()

        def work(place: int) -> None:
            for _ in range(3):
                check_all(cases[place:] + cases[:place])

        together(*(partial(work, place) for place in range(8)))
    """)


class SlowToDerive(type):
    """Gives other threads time to look for the class that is being made."""

    def __new__(cls, *arguments: object) -> type:
        time.sleep(0.02)
        return super().__new__(cls, *arguments)


def test_models_replaced_at_once() -> None:
    """Models of one class get one derived class, as if they were replaced one by one."""

    class Layers(torch.nn.Sequential, metaclass=SlowToDerive):
        pass

    x = normal(40, 6)
    models = [Layers(torch.nn.Linear(6, 8), torch.nn.GELU()).double() for _ in range(8)]

    def work(model: Layers) -> None:
        with replace_activations(model, fuse_bias=True):
            derived.append(type(model))
            torch.testing.assert_close(model(x), reference.normal(model[0](x)))

    derived: list[type] = []
    together(*(partial(work, model) for model in models))
    assert len(derived) == 8
    assert len({*derived}) == 1
    assert Layers not in derived
    assert {type(model) for model in models} == {Layers}


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.linear(x))


def test_filters_of_warnings_after_models_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models' sources are parsed with warnings off; the filters are restored afterwards."""
    parse, before = ast.parse, [*warnings.filters]

    def slow(*arguments: object) -> ast.AST:
        time.sleep(0.001 * next(delays))
        return parse(*arguments)

    delays = cycle(range(5))  # they end in another order than they began
    monkeypatch.setattr(ast, "parse", slow)
    together(*(partial(replace_activations, Mlp(), fuse_bias=True) for _ in range(8)))
    assert warnings.filters == before


GIL = """
import sys
import torch

assert not sys._is_gil_enabled()  # else our import could not turn it on
import gelu_kernels

assert not sys._is_gil_enabled()
"""


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="needs a free-threaded Python, such as 3.14t",
)
def test_the_import_leaves_the_gil_off() -> None:
    """Python turns it on, with a warning, for a module that does not declare support for it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    command = [sys.executable, "-W", "error", "-c", GIL]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


OPENMP_RUNTIMES = r"""
import re
import torch
from gelu_kernels import functional

functional.gelu(torch.randn(1_000_000))
with open("/proc/self/maps") as maps:
    print(*set(re.findall(r"\S*/lib[gi]?omp\d*[-.][^\s]*", maps.read())), sep="\n")
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_one_openmp_runtime() -> None:
    """A second one would have threads of its own, which torch.set_num_threads does not reach. In a
    new process, as scikit-learn brings a runtime."""
    runtimes = python(OPENMP_RUNTIMES)
    assert len(runtimes.split()) == 1, runtimes


COUNT_THREADS = """
import os
import torch
from gelu_kernels import functional

x, bias = torch.randn(1000, 1000), torch.randn(1000)


def count(threads):
    torch.set_num_threads(threads)
    functional.gelu(x)
    torch.ops.gelu_kernels.gate_backward_bias(x, x, bias, "normal")
    return len(os.listdir("/proc/self/task"))


one = count(1)
assert count(1) == one
assert count(4) == one + 3, (one, count(4))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_set_num_threads_is_respected() -> None:
    """A new process gains the threads that were asked for."""
    python(COUNT_THREADS)


# Instruction sets: a process uses one

HASHES = """
import torch
from tests import bits
from tests.calls import CORE_CALLS, DTYPES
from gelu_kernels import _C
from tests.quantized.test_quantized import every_result

print(_C.build_info()["cpu_capability"])
for call in CORE_CALLS:
    for dtype in DTYPES:
        torch.manual_seed(0)
        tensors = bits.of_any_numbers(call, dtype)
        for gate in call.gates:
            results = [torch.where(t.isnan(), 0, t) for t in call(*tensors, gate=gate)]
            print(call, gate, dtype, *(hash(bits.patterns(t).numpy().tobytes()) for t in results))
for dtype in (torch.bfloat16, torch.float32):
    for t in every_result(dtype):
        print("quantised", dtype, hash(t.flatten().view(torch.uint8).numpy().tobytes()))
thresholds = _C.soi_thresholds(torch.linspace(-7, 7, 2**20), "normal")
print(hash(thresholds.numpy().tobytes()))
"""


def test_instruction_sets_give_the_same_bits() -> None:
    """For every 16-bit input, and for samples of the wider dtypes."""
    outputs = {}
    for name in _C.build_info()["cpu_capabilities"].split():
        try:
            out = python(HASHES, PYTHONHASHSEED="0", GELU_KERNELS_CPU_CAPABILITY=name)
        except AssertionError as error:
            if "this processor does not have it" in str(error):
                continue
            raise
        used, *outputs[name] = out.splitlines()
        assert used == name
    expected = outputs.pop("default")
    assert len(expected) > len(CORE_CALLS) * len(DTYPES)
    for name, found in outputs.items():
        assert [a for a, b in zip(found, expected, strict=True) if a != b] == [], name
