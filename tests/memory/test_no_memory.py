"""Memory that runs out: an error, nothing lost, and the next call right."""

from textwrap import dedent

import pytest

from tests.cases import each
from tests.processes.faults import run

pytestmark = pytest.mark.slow

LIMITED = """
def used() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def limited(room: int) -> None:
    \"\"\"The process may map `room` more bytes.\"\"\"
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used() + room if room else hard, hard))
"""


@each(dtype=["float64", "bfloat16"])
def test_no_memory_for_a_result(dtype: str) -> None:
    """Every operator by both routes, and its gradients, with room for no result, one or two. The
    threads start before: GCC's OpenMP runtime ends a process that has no memory for a new thread,
    in F.gelu as well."""
    out = run(
        LIMITED
        + dedent(f"""
        small = prepared(SMALL)
        check_all(small)
        shape = (2**10, 2**11)
        nbytes = 2**21 * torch.{dtype}.itemsize
        errors = 0

        def make(*shape: int) -> Tensor:
            return torch.full(shape, 0.5, dtype=torch.{dtype})

        def attempt(f) -> bool:
            try:
                f()
            except (RuntimeError, MemoryError) as error:
                assert "memory" in str(error) or isinstance(error, MemoryError), error
                return True
            return False

        for call in CALLS:
            tensors = call.inputs(shape, make)
            before = [t.clone() for t in tensors]
            failed = 0
            for route in (call.function(), call.operator()):
                for room in (0.5, 1.5, 2.5):
                    limited(int(room * nbytes))
                    failed += attempt(lambda: route(*tensors))
                    limited(0)
                    assert all(map(torch.equal, tensors, before)), call
            assert failed > 0, call
            errors += failed
            if call in PUBLIC_CALLS:
                leaves = [t.requires_grad_() if t.is_floating_point() else t for t in tensors]
                (y,) = call(*leaves)
                dy = torch.ones((), dtype=y.dtype).expand_as(y)
                limited(nbytes // 2)
                failed = attempt(lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))
                limited(0)
                assert failed, call
                assert all(map(torch.equal, tensors, before)), call
                torch.autograd.grad(y, leaves, dy)
                errors += 1
            check_all(small)
        print(errors)
        """)
    )
    assert int(out) > 100


def test_no_memory_for_anything() -> None:
    """The heap is full except for a few pieces: an allocation may fail anywhere."""
    out = run(
        LIMITED
        + dedent("""
        cases = prepared(SMALL)
        check_all(cases)
        errors, pieces = 0, [None] * 1_000_000

        def fill() -> int:
            count = 0
            for size in (4096, 512, 64):
                try:
                    while True:
                        pieces[count] = bytes(size)
                        count += 1
                except MemoryError:
                    pass
            return count

        for sample, expected in cases:
            leaves = sample.leaves()
            function = sample.call.function(sample.gate)
            before = [t.detach().clone() for t in leaves]
            for left in range(0, 400, 10):
                limited(1)
                count = fill()
                for place in range(max(0, count - left), count):
                    pieces[place] = None
                try:
                    (y,) = [function(*leaves)]
                    torch.autograd.grad(y, leaves, y)
                except (RuntimeError, MemoryError):
                    errors += 1
                for place in range(count):
                    pieces[place] = None
                limited(0)
                assert all(map(torch.equal, leaves, before))
                check(sample, expected)
        print(errors)
        """)
    )
    assert int(out) > 10
