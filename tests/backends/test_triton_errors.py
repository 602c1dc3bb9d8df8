"""What a user is told where the Triton kernels cannot be had."""

import shutil
import textwrap
from importlib.util import find_spec

import pytest
import torch

from gelu_kernels import backend
from tests import stub_driver

HAS_CUDA = backend._has_cuda()

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

CALL = "torch.ops.gelu_kernels.gate_forward(torch.zeros(3), None, 'normal')"

ABSENT = "import sys; sys.modules['triton'] = None; import gelu_kernels"

ON_CPU = f"""
import torch
from tests.triton_operators import registered
with registered("CPU"):
    {CALL}
"""

WITHOUT_DRIVER = "from triton.backends import backends; backends.clear()"

WITH_PTXAS = """
from triton.backends.nvidia.compiler import CUDABackend
state.triton.compiler.make_cubin = CUDABackend.make_cubin
"""


def on_stub(arch: int, first: str = "") -> str:
    lines = f"{first}\n{CALL}\nassert len(state.launches) == 1"
    start = f"import torch\nfrom tests import stub_driver\nwith stub_driver.enabled(arch={arch}) as state:\n"
    return start + textwrap.indent(lines, "    ")


def error(*arguments: str, **variables: str) -> str:
    result = stub_driver.run(*arguments, **variables)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stderr.rpartition("Traceback")[2]  # not of what it was raised from


# The choice of a backend


def test_unknown_backend(monkeypatch):
    monkeypatch.setenv("GELU_KERNELS_BACKEND", "opencl")
    with pytest.raises(ImportError, match="_BACKEND must be 'cuda' or 'triton', got 'opencl'"):
        backend.for_nvidia()


@pytest.mark.parametrize("built", ["not built", "12.9"])
@pytest.mark.parametrize("wanted", ["cuda", "triton", "", None])
def test_choice(wanted, built, monkeypatch):
    monkeypatch.setattr(backend._C, "build_info", lambda: {"cuda": built})
    monkeypatch.setattr(backend, "find_spec", lambda name: name)
    if wanted is None:
        monkeypatch.delenv("GELU_KERNELS_BACKEND", raising=False)
    else:
        monkeypatch.setenv("GELU_KERNELS_BACKEND", wanted)
    if wanted == "cuda" and built == "not built":
        with pytest.raises(ImportError, match="_BACKEND is 'cuda', but .* was built without nvcc"):
            backend.for_nvidia()
    else:
        assert backend.for_nvidia() == (wanted or ("triton" if built == "not built" else "cuda"))


def test_the_choice_is_made_at_import():
    message = error("-c", "import gelu_kernels", GELU_KERNELS_BACKEND="opencl")
    assert "ImportError: GELU_KERNELS_BACKEND must be" in message


@needs_triton
@pytest.mark.parametrize("wanted", ["", "cuda", "triton"])
def test_the_backend_is_reported(wanted):
    if wanted == "cuda" and not HAS_CUDA:
        message = error("-m", "gelu_kernels", GELU_KERNELS_BACKEND=wanted)
        assert "ImportError: GELU_KERNELS_BACKEND is 'cuda'" in message
        return
    result = stub_driver.run("-m", "gelu_kernels", GELU_KERNELS_BACKEND=wanted)
    maker = "AMD" if torch.version.hip else "NVIDIA"
    lines = map(str.split, result.stdout.splitlines())
    (words,) = [words for words in lines if words[:1] == [maker]]
    assert words[1:] == [wanted or ("cuda" if HAS_CUDA else "triton")]


# Triton absent


def test_import_without_triton():
    message = error("-c", ABSENT, GELU_KERNELS_BACKEND="triton")
    assert "ImportError: GELU_KERNELS_BACKEND is 'triton', but Triton is not installed" in message


def test_call_without_triton():
    message = error("-c", ABSENT + ON_CPU)
    assert "RuntimeError: gelu_kernels::gate_forward: " in message
    assert "triton" in message and "Install triton" in message


# Triton without a kernel


@needs_triton
@needs_gcc
def test_no_driver():
    message = error("-c", on_stub(90, WITHOUT_DRIVER))
    assert "RuntimeError: gelu_kernels::gate_forward: Triton " in message
    assert "has no kernel for this GPU: 0 active drivers" in message


@needs_triton
@needs_gcc
def test_unsupported_gpu():
    message = error("-c", on_stub(30, WITH_PTXAS))
    assert "RuntimeError: gelu_kernels::gate_forward: Triton " in message
    assert "has no kernel for GPUTarget(backend='cuda', arch=30, warp_size=32): " in message
    assert "sm_30" in message


@needs_triton
@needs_gcc
def test_home_that_cannot_be_written(tmp_path):
    """Triton's cache is a temporary folder then, which goes with the process."""
    program = on_stub(90) + "\nfrom triton import knobs; print(knobs.cache.dir)"
    result = stub_driver.run(
        "-c", program, HOME="/dev/null", TMPDIR=str(tmp_path), TRITON_CACHE_DIR=""
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(tmp_path / "gelu_kernels-"))
    assert list(tmp_path.glob("gelu_kernels-*")) == []
