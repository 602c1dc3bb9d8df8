"""What `import gelu_kernels` costs a program that has imported torch."""

import subprocess
import sys

IMPORT = """
import sys, time
import torch
before = set(sys.modules)
start = time.process_time()
import gelu_kernels
print(time.process_time() - start)
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


def import_once() -> tuple[float, list[str]]:
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    seconds, modules = result.stdout.strip().split("\n")
    return float(seconds), modules.split()


def test_importing_is_quick() -> None:
    """Under a tenth of a second of a processor, in one of five processes: others are busy."""
    assert any(import_once()[0] < 0.1 for _ in range(5))


def test_nothing_heavy_is_imported() -> None:
    _, modules = import_once()
    assert "gelu_kernels.functional" in modules
    assert not [name for name in modules if name.startswith((*HEAVY, "gelu_kernels.compile."))]
