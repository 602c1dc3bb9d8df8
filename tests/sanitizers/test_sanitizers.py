"""The CPU's operators, and the machine that executes PTX in the tests, under the sanitizers of g++:
no access beyond a tensor, nothing undefined, no race; and a planted fault of each kind is found.

A build takes minutes.
"""

from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest

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


def assert_found(result: CompletedProcess, report: str, place: str) -> None:
    """The report, and a source among the frames of its stacks."""
    assert result.returncode != 0, result.stdout
    assert report in result.stdout and place in result.stdout, result.stdout[-20_000:]


PTX_TESTS = [
    f"tests/ptx_on_cpu/instructions/test_{name}.py" for name in ("integers", "floats", "threads")
]


def pytest_of(built: Built, *arguments: str) -> CompletedProcess:
    """A sanitizer's report is in the output, as pytest captures Python's alone."""
    options = ["--quiet", "--capture=sys", "-p", "no:cacheprovider", "-m", "not slow"]
    return built.run("pytest", *options, *arguments)


# Accesses, and what is undefined


@pytest.mark.parametrize("threads", [1, 3])
def test_operators(address: Built, threads: int) -> None:
    assert_clean(
        address.run("tests.sanitizers.sanitize", "--device", "cpu", OMP_NUM_THREADS=str(threads))
    )


def test_machine(address: Built) -> None:
    assert_clean(pytest_of(address, *PTX_TESTS))


@pytest.mark.parametrize(
    ("fault", "report", "place"),
    [
        ("overrun", "AddressSanitizer: heap-buffer-overflow", "csrc/cpu/"),
        ("misaligned", "runtime error: load of misaligned address", "csrc/cpu/loops.cpp"),
        ("machine_overrun", "AddressSanitizer: heap-buffer-overflow", "ptx_on_cpu/machine/"),
        ("machine_undefined", "not a valid value for type", "ptx_on_cpu/machine/"),
    ],
)
def test_a_planted_fault_is_found(address: Built, fault: str, report: str, place: str) -> None:
    assert_found(address.run("tests.sanitizers.planted", fault), report, place)


# Races


@pytest.mark.parametrize(
    "test",
    [
        "processes/test_threads.py::test_the_number_of_threads_changes_nothing",
        "processes/test_threads.py::test_calls_from_many_threads",
        "quantized/test_quantized.py::test_the_number_of_threads_changes_nothing",
    ],
)
def test_operators_race_with_nothing(thread: Built, test: str) -> None:
    """Of the shapes, that with the most pieces of work."""
    assert_clean(pytest_of(thread, f"tests/{test}", "-k", "not (20000 or 3000 or 100003)"))


def test_machine_races_with_nothing(thread: Built) -> None:
    assert_clean(thread.run("tests.sanitizers.planted", "machine_in_threads"))


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ("race_of_threads", "csrc/cpu/loops.cpp"),
        ("race_of_one_call", "csrc/cpu/loops.cpp"),
        ("machine_race", "ptx_on_cpu/machine/block.cpp"),
    ],
)
def test_a_planted_race_is_found(thread: Built, fault: str, place: str) -> None:
    assert_found(thread.run("tests.sanitizers.planted", fault), "ThreadSanitizer: data race", place)
