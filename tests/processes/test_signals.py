"""Signals in the middle of calls: the right result, or the interrupt, and nothing lost."""

import pytest

from tests.processes.faults import run

pytestmark = pytest.mark.slow


def test_a_signal_every_millisecond() -> None:
    """The Python handler allocates, and calls an operator itself."""
    run("""
        cases, count, is_inside = prepared(), 0, False
        inner, expected = prepared(SMALL)[0]

        def handler(*_: object) -> None:
            global count, is_inside
            if not is_inside:
                is_inside = True
                check(inner, expected)
                count += 1
                is_inside = False

        # The first call of assert_close imports DTensor. A handler must not import it once more in
        # the middle, as torch then registers it twice.
        check_all(cases)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            check_all(cases)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert count > 100, count
    """)


def test_interrupts() -> None:
    """SIGINT in the middle of a long call: KeyboardInterrupt when it returns, the inputs unchanged,
    and the next call right."""
    run("""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job may ignore it
        x = torch.linspace(-5, 5, 2**23).double()
        before, cases, interrupts = x.clone(), prepared(), 0
        expected = reference.normal(x)
        for _ in range(20):
            timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                while True:
                    y = functional.gelu(x)
            except KeyboardInterrupt:
                interrupts += 1
            timer.join()
            assert torch.equal(x, before)
            torch.testing.assert_close(functional.gelu(x), expected, **CLOSE)
        assert interrupts == 20
        check_all(cases)
    """)
