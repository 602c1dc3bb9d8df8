"""``python -m gelu_kernels`` prints how the package was built and which devices it runs on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from gelu_kernels import _C, __version__, backend, library


def processor() -> str:
    """The processor's model name. On Linux ``platform`` does not know it."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def gpu(index: int) -> str:
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)}, compute capability {major}.{minor}"


def main() -> None:
    sections = {
        "versions": {
            "gelu_kernels": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "build": {**_C.build_info(), "operators": library.find() / library.OPERATORS},
        "kernels for a GPU": {
            "AMD" if torch.version.hip else "NVIDIA": backend.for_nvidia(),
            "Intel": "triton",
            "triton": installed_version("triton"),
        },
        "hardware": {
            "processor": processor(),
            "torch's CPU kernels": torch.backends.cpu.get_cpu_capability(),
            "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
            **{f"cuda:{i}": gpu(i) for i in range(torch.cuda.device_count())},
        },
    }
    width = max(len(key) for section in sections.values() for key in section)
    for title, section in sections.items():
        print(title)
        for key, value in section.items():
            print(f"  {key:{width}}  {value}")


if __name__ == "__main__":
    main()
