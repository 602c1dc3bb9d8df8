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

# Each takes a tenth of a second or more.
HEAVY = (
    "triton",
    "torch._inductor",
    "torch._dynamo",
    "torch.distributed",
    "torch.testing",
    "sympy",
)


def test_nothing_heavy_is_imported() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    modules = result.stdout.split()
    assert "gelu_kernels.functional" in modules
    assert not [name for name in modules if name.startswith((*HEAVY, "gelu_kernels.compile."))]
