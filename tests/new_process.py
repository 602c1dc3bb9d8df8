"""Runs Python in a new process."""

import os
import subprocess
import sys


def python(script: str, **environment: str) -> str:
    """The output of a script that runs in a new process and must succeed."""
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout
