"""A build as `kernels` loads it: the installed package, in a folder named after its torch, CUDA and
platform."""

import hashlib
import json
import platform
import shutil
from base64 import b64encode
from pathlib import Path

import torch

import gelu_kernels
from gelu_kernels import compatibility

# What build.toml and each build's metadata.json both say.
GENERAL = {
    "name": "gelu-kernels",  # the Hub allows no underscore
    "version": int(gelu_kernels.__version__.split(".")[0]),  # of the interface: the Hub's branch
    "license": "mit",
}
KERNEL = Path(__file__).with_name("kernel.py")
PACKAGE = Path(gelu_kernels.__file__).parent
# In a build. The Hub's builder refuses a folder of the kernel's name, and makes one of its own for
# old releases of `kernels`.
FOLDER = "package"


def backend() -> str:
    """torch's backend, as `kernels` asks for it. Triton may still serve the GPU."""
    return "cuda" if torch.version.cuda else "cpu"


def name() -> str:
    release = "{}{}".format(*compatibility.release(torch.__version__))
    version = f"cu{torch.version.cuda.replace('.', '')}" if torch.version.cuda else "cpu"
    return f"torch{release}-cxx11-{version}-{platform.machine()}-{platform.system().lower()}"


def write_package(folder: Path, *ignored: str) -> None:
    """Copies the package, and the file by which `kernels` imports it."""
    ignore = shutil.ignore_patterns("__pycache__", *ignored)
    shutil.copytree(PACKAGE, folder / FOLDER, ignore=ignore)
    shutil.copy(KERNEL, folder / "__init__.py")


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 digests of its files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).digest()
            found[path.relative_to(folder).as_posix()] = b64encode(digest).decode()
    return found


def write(folder: Path) -> None:
    write_package(folder)
    files = digests(folder)
    content = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    # The CUDA kernels' architectures are not listed: Triton serves all other GPUs.
    metadata = {
        "id": f"_gelu_kernels_{backend()}_{content[:10]}",
        **GENERAL,
        "python-depends": [],
        "backend": {"type": backend()},
        "digest": {"algorithm": "sha256", "files": files},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
