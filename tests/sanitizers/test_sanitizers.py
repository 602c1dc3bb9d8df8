"""The CPU's operators, and the machine that executes PTX in the tests, under the sanitizers of g++:
no access beyond a tensor, nothing undefined, no race; and a planted fault of each kind is found.

A build takes minutes.
"""

from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest

from tests.cases import each
from tests.sanitizers.built import ADDRESS_AND_UNDEFINED, THREAD, Built, Sanitizer

pytestmark = pytest.mark.slow


def built_for(sanitizer: Sanitizer) -> Iterator[Built]:
    if sanitizer.missing:
        pytest.skip(f"needs {sanitizer.missing}")
    with sanitizer.built() as built:
        yield built


@pytest.fixture(scope="module")
def address() -> Iterator[Built]:
    yield from built_for(ADDRESS_AND_UNDEFINED)


@pytest.fixture(scope="module")
def thread() -> Iterator[Built]:
    yield from built_for(THREAD)


def assert_clean(result: CompletedProcess) -> None:
    reports = [line for line in result.stdout.splitlines() if is_report(line)]
    assert result.returncode == 0 and not reports, result.stdout[-20_000:]


def is_report(line: str) -> bool:
    return "ERROR: " in line or "WARNING: ThreadSanitizer" in line or "runtime error: " in line


def assert_found(built: Built, fault: str, report: str, place: str) -> None:
    """The report, and a source among the frames of its stacks."""
    result = built.run("tests.sanitizers.planted", fault)
    assert result.returncode != 0, result.stdout
    assert report in result.stdout and place in result.stdout, result.stdout[-20_000:]


# Accesses, and what is undefined


def test_operators(address: Built) -> None:
    assert_clean(address.run("tests.sanitizers.sanitize", "--device", "cpu", OMP_NUM_THREADS="3"))


def test_machine(address: Built) -> None:
    """A sanitizer's report is in the output, as pytest captures Python's alone."""
    tests = [
        f"tests/ptx_on_cpu/instructions/test_{n}.py" for n in ("integers", "floats", "threads")
    ]
    options = ["--quiet", "--capture=sys", "-p", "no:cacheprovider"]
    assert_clean(address.run("pytest", *options, *tests))


@each(
    planted=[
        ("overrun", "AddressSanitizer: heap-buffer-overflow", "csrc/cpu/"),
        ("misaligned", "runtime error: load of misaligned address", "csrc/cpu/loops.cpp"),
        ("machine_overrun", "AddressSanitizer: heap-buffer-overflow", "ptx_on_cpu/machine/"),
        ("machine_undefined", "not a valid value for type", "ptx_on_cpu/machine/"),
    ]
)
def test_planted_faults_are_found(address: Built, planted: tuple[str, str, str]) -> None:
    assert_found(address, *planted)


# Races


def test_operators_race_with_nothing(thread: Built) -> None:
    assert_clean(thread.run("tests.sanitizers.sanitize", "--device", "cpu", "--races"))


def test_machine_races_with_nothing(thread: Built) -> None:
    assert_clean(thread.run("tests.sanitizers.planted", "machine_in_threads"))


@each(
    planted=[
        ("race_of_threads", "csrc/cpu/loops.cpp"),
        ("race_of_one_call", "csrc/cpu/loops.cpp"),
        ("machine_race", "ptx_on_cpu/machine/block.cpp"),
    ]
)
def test_planted_races_are_found(thread: Built, planted: tuple[str, str]) -> None:
    fault, place = planted
    assert_found(thread, fault, "ThreadSanitizer: data race", place)
