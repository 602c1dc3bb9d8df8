"""``python bench/guard.py SECONDS COMMAND...``: runs a command and leaves no process of it behind.

Shortly before its time is up the command is interrupted, so that it can still report. All of its
processes are killed when it ends, when its time is up, and when the guard's standard input closes:
that is when the process that started the guard has died, however it died.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: orphans below this process become its children
PATIENCE = 10.0  # seconds
# Exit statuses, as timeout(1) and the shell have them.
OUT_OF_TIME, NOT_FOUND, KILLED = 124, 127, 137


def patience(seconds: float) -> float:
    """Between the interrupt and the end of a command's time."""
    return min(PATIENCE, seconds / 4)


def living_descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def send(sent: signal.Signals) -> bool:
    """To all descendants; whether there were any."""
    pids = living_descendants()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)
    return bool(pids)


def wait(process: subprocess.Popen, seconds: float) -> int:
    end = time.monotonic() + seconds
    interrupt = end - patience(seconds)
    interrupted = False
    while process.poll() is None:
        if select.select([sys.stdin], [], [], 0.05)[0]:
            return KILLED
        now = time.monotonic()
        if now >= end:
            return OUT_OF_TIME
        if now >= interrupt and not interrupted:
            interrupted = send(signal.SIGINT)
    status = process.returncode
    return OUT_OF_TIME if interrupted else status if status >= 0 else 128 - status


def main() -> None:
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, lambda number, frame: sys.exit(128 + number))
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(NOT_FOUND)
    try:
        status = wait(process, seconds)
    finally:
        # Until none is left: one may start another while they are killed. A process that waits for
        # a device cannot be killed before it stops waiting.
        end = time.monotonic() + PATIENCE
        while send(signal.SIGKILL) and time.monotonic() < end:
            time.sleep(0.01)
    sys.exit(status)


if __name__ == "__main__":
    main()
