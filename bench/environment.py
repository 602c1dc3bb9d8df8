"""Describes the machine of a measurement. For a GPU, gelu_kernels need not be built."""

import json
import os
import platform
import re
import subprocess
import sys
from datetime import date
from importlib.metadata import distributions

import torch

from bench.gpu_report import COMMIT
from bench.runs import ROOT

ARCHIVED = ROOT / ".git_archival.txt"  # `git archive` writes the commit into it


def answer(*command: str) -> str:
    """What the command prints; nothing if it fails."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout.strip()


def nvidia_smi(*names: str) -> dict[str, str]:
    device = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    values = answer("nvidia-smi", device, f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    return dict(zip(names, values.split(", "), strict=True)) if values else {}


def commit() -> str:
    if given := os.environ.get(COMMIT):
        return given
    # Both are named, as the tree may lie inside another repository.
    git = ("git", f"--git-dir={ROOT / '.git'}", f"--work-tree={ROOT}")
    if described := answer(*git, "describe", "--always", "--dirty", "--abbrev=40"):
        return described
    archived = re.search(r"node: ([0-9a-f]{40})", ARCHIVED.read_text() if ARCHIVED.exists() else "")
    return archived[1] if archived else "unknown"


def versions() -> dict[str, str]:
    packages = {
        name: next((found.version for found in distributions(name=name)), "not installed")
        for name in ("triton", "numpy")
    }
    return {
        "torch": torch.__version__,
        **packages,
        "python": platform.python_version(),
        "commit": commit(),
    }


def cpu() -> dict[str, object]:
    from gelu_kernels import _C
    from gelu_kernels.__main__ import processor

    return {
        "device": processor(),
        "threads": torch.get_num_threads(),
        "CPU cores": os.cpu_count(),
        "instruction set": _C.build_info()["cpu_capability"],
        "torch's instruction set": torch.backends.cpu.get_cpu_capability(),
    }


def gpu() -> dict[str, object]:
    device = torch.cuda.get_device_properties(0)
    return {
        "device": device.name,
        "compute capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "memory": device.total_memory,
        "L2": device.L2_cache_size,
        "nvidia-smi": nvidia_smi(
            "driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit"
        ),
        "CPU cores": os.cpu_count(),
        "CUDA of torch": torch.version.cuda,
    }


def dated(machine: dict[str, object]) -> dict[str, object]:
    return {"date": date.today().isoformat(), **machine, "versions": versions()}


def describe(device: str) -> dict[str, object]:
    return dated(gpu() if device == "cuda" else cpu())


def probe(device: str) -> dict[str, object]:
    """What is needed to build for this machine; `device` "cpu" stands for a rehearsal."""
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("make gpu needs an NVIDIA GPU, and torch sees none here")
    from torch.utils.cpp_extension import CUDA_HOME

    found = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    machine = dated(gpu() if device == "cuda" else {"device": "rehearsal"})
    return {
        "machine": machine,
        "architectures": ";".join(f"{major}.{minor}" for major, minor in sorted(found)),
        "toolkit": CUDA_HOME,
    }


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
