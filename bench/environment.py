"""What a measurement was made on."""

import os
import platform
import re
import subprocess
from datetime import date

import torch

from bench.stages import ROOT
from gelu_kernels import _C, __version__
from gelu_kernels.__main__ import installed_version, processor


def answer(*command: str) -> str:
    """What it prints; nothing if it fails."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout.strip()


def nvidia_smi(*names: str) -> dict[str, str]:
    device = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    values = answer("nvidia-smi", device, f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    return dict(zip(names, values.split(", "), strict=True)) if values else {}


def versions() -> dict[str, object]:
    return {
        "gelu_kernels": __version__,
        "torch": torch.__version__,
        "triton": installed_version("triton"),
        "python": platform.python_version(),
        "commit": answer("git", "describe", "--always", "--dirty", "--abbrev=40"),
    }


def cpu() -> dict[str, object]:
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


def describe(device: str) -> dict[str, object]:
    return {
        "date": date.today().isoformat(),
        **(gpu() if device == "cuda" else cpu()),
        "versions": versions(),
    }


def slug(machine: dict[str, object]) -> str:
    """The name of its files: the device and the date."""
    threads = f"{machine['threads']} threads" if "threads" in machine else ""
    name = f"{machine['device']} {threads} {machine['date']}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
