"""Threads that begin at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def together(*work: Callable[[], None]) -> None:
    """Each in a thread of its own. Raises what one of them raises, when all have ended."""
    barrier = Barrier(len(work))

    def begin(run: Callable[[], None]) -> None:
        barrier.wait()
        run()

    with ThreadPoolExecutor(len(work)) as pool:
        list(pool.map(begin, work))
