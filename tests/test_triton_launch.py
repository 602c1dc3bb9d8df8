"""Compiled Triton kernels and what the driver is given, on a machine without a GPU.

stub_driver/launches.py has all checks. They run in a process in which Triton does not interpret.
"""

import shutil
from pathlib import Path

import pytest
import stub_driver

CHECKS = Path(stub_driver.__file__).parent / "launches.py"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_launches():
    pytest.importorskip("triton.backends.nvidia")
    result = stub_driver.run("-m", "pytest", "--noconftest", "--quiet", str(CHECKS))
    assert result.returncode == 0, result.stdout + result.stderr
