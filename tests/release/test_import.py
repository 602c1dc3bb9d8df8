"""What `import gelu_kernels` brings into a program that has imported torch."""

import subprocess
import sys

IMPORT = """
import sys
import torch
before = set(sys.modules)
import gelu_kernels
print(*sorted(set(sys.modules) - before))
"""


def test_only_our_own_modules_are_imported() -> None:
    """Triton, SymPy and what torch loads when it needs it take a tenth of a second or more each."""
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    modules = result.stdout.split()
    assert "gelu_kernels.functional" in modules
    assert not [name for name in modules if name.split(".")[0] != "gelu_kernels"]
    assert not [name for name in modules if name.startswith("gelu_kernels.compile.")]
