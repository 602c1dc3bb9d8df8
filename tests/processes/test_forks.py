"""Forked processes, before the first call and after others: the right result."""

from textwrap import dedent

import pytest

from tests.cases import each
from tests.processes.faults import run

pytestmark = pytest.mark.slow

# A forked process has none of its parent's threads. GCC's OpenMP runtime waits for them forever, in
# F.gelu as well as here; with one thread, as a DataLoader's workers have, it does not.
FORKED = """
def check_in_child(threads: int, cases) -> None:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if threads:
                torch.set_num_threads(threads)
            check_all(cases)
            status = 0
        except BaseException as failure:
            print(failure, file=sys.stderr)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


@each(threads=[0, 1])
def test_fork_before_use(threads: int) -> None:
    """With as many threads as before, or with one."""
    run(f"{FORKED}\ncases = prepared(SMALL)\ncheck_in_child({threads}, cases)\ncheck_all(cases)")


def test_fork_after_use() -> None:
    """Twice, and from a child; the parent goes on."""
    run(
        FORKED
        + dedent("""
        cases = prepared()
        check_all(cases)
        assert len(os.listdir("/proc/self/task")) > 1
        for _ in range(2):
            check_in_child(1, cases)
            check_all(cases)
        """)
    )


def test_workers_of_a_data_loader() -> None:
    """They are forked, and call the operators."""
    run("""
        from torch.utils.data import DataLoader, Dataset

        class Gates(Dataset):
            def __len__(self) -> int:
                return 16

            def __getitem__(self, i: int) -> Tensor:
                return functional.gelu(torch.linspace(-5, 5, 100_000).double() + i)

        check_all(prepared())
        loader = DataLoader(Gates(), batch_size=4, num_workers=2, multiprocessing_context="fork")
        results = torch.cat(list(loader))
        x = torch.linspace(-5, 5, 100_000).double() + torch.arange(16).double()[:, None]
        torch.testing.assert_close(results, reference.normal(x), **CLOSE)
    """)
