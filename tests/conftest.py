"""Fixtures that all tests share."""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils.cpp_extension import get_cxx_compiler

from tests import ROOT, ptx_on_cpu
from tests.calls import GATES
from tests.devices import DEVICES, kernels_for

# Inductor keeps vector code under a key without ATEN_CPU_CAPABILITY, and compiles it for another.
CAPABILITY = torch.backends.cpu.get_cpu_capability()
INDUCTOR = ROOT / "build" / f"inductor-{torch.__version__}-{CAPABILITY}"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(INDUCTOR)

if "PYTEST_XDIST_WORKER" in os.environ:  # one worker for each processor
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the programs that tests start


def pytest_configure(config: pytest.Config) -> None:
    """Before a test makes tensors, as PTX on the CPU may touch no other memory. `make gpu` asks for
    a GPU's tests alone, which need not wait for the build of the PTX machine. Beside a wheel there
    may be no compiler for it."""
    if config.option.markexpr != "gpu" and shutil.which(get_cxx_compiler()):
        ptx_on_cpu.record_allocations()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels_for(request.param) as device:
        yield device


@pytest.fixture(params=GATES)
def gate(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # of all devices it would take 3 ms
        torch.default_generator.manual_seed(0)


@pytest.fixture
def thread_count() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many cases the fuzzing ran."""
    found = [report for reports in terminalreporter.stats.values() for report in reports]
    reports = [report for report in found if isinstance(report, pytest.TestReport)]
    cases = sum(n for r in reports for name, n in r.user_properties if name == "fuzz_cases")
    if cases:
        seconds = sum(r.duration for r in reports if "test_fuzz.py" in r.nodeid)
        terminalreporter.write_line(f"fuzzing: {cases} cases in {seconds:.0f} s")
