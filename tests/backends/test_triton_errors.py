"""What a user is told where the Triton kernels cannot be had."""

import runpy
import shutil
import sys
from importlib.util import find_spec
from unittest import mock

import pytest
import torch

from gelu_kernels import backend
from tests import stub_driver

HAS_CUDA = backend._has_cuda()

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def call_operator() -> None:
    torch.ops.gelu_kernels.gate_forward(torch.zeros(3), None, "normal")


def error(program: str, **variables: str) -> str:
    result = stub_driver.run("-c", program, **variables)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stderr.rpartition("Traceback")[2]  # not of what it was raised from


# The choice of a backend


def test_unknown_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GELU_KERNELS_BACKEND", "opencl")
    with pytest.raises(ImportError, match="_BACKEND must be 'cuda' or 'triton', got 'opencl'"):
        backend.for_nvidia()


@pytest.mark.parametrize("built", ["not built", "12.9"])
def test_choice(built: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend._C, "build_info", lambda: {"cuda": built})
    monkeypatch.setattr(backend, "find_spec", lambda name: name)
    monkeypatch.delenv("GELU_KERNELS_BACKEND", raising=False)
    default = "triton" if built == "not built" else "cuda"
    assert backend.for_nvidia() == default
    for wanted in ("", "cuda", "triton"):
        monkeypatch.setenv("GELU_KERNELS_BACKEND", wanted)
        if wanted == "cuda" and built == "not built":
            with pytest.raises(ImportError, match="_BACKEND is 'cuda', but .* without nvcc"):
                backend.for_nvidia()
        else:
            assert backend.for_nvidia() == (wanted or default)


@needs_triton
def test_the_backend_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `python -m gelu_kernels`."""
    default = "cuda" if HAS_CUDA else "triton"
    for wanted, expected in {"": default, default: default, "triton": "triton"}.items():
        monkeypatch.setenv("GELU_KERNELS_BACKEND", wanted)
        monkeypatch.delitem(sys.modules, "gelu_kernels.__main__", raising=False)  # runpy would warn
        runpy.run_module("gelu_kernels", run_name="__main__")
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["AMD" if torch.version.hip else "NVIDIA", expected] in lines, wanted


# Triton absent

ABSENT = "import sys; sys.modules['triton'] = None; import gelu_kernels"
CALL_ON_CPU = """
import torch
from tests.triton_operators import registered
with registered("CPU"):
    torch.ops.gelu_kernels.gate_forward(torch.zeros(3), None, "normal")
"""


def test_import_without_triton() -> None:
    message = error(ABSENT, GELU_KERNELS_BACKEND="triton")
    assert "ImportError: GELU_KERNELS_BACKEND is 'triton', but Triton is not installed" in message


def test_call_without_triton() -> None:
    message = error(ABSENT + CALL_ON_CPU)
    assert "RuntimeError: gelu_kernels::gate_forward: " in message
    assert "triton" in message and "Install triton" in message


# Triton without a kernel. Nothing is loaded yet for these architectures.


@needs_triton
@needs_gcc
def test_no_driver() -> None:
    from triton.backends import backends

    no_kernel = pytest.raises(RuntimeError, match="has no kernel for this GPU: 0 active drivers")
    with stub_driver.enabled(arch=31), mock.patch.dict(backends, clear=True), no_kernel as caught:
        call_operator()
    assert str(caught.value).startswith("gelu_kernels::gate_forward: Triton ")


@needs_triton
@needs_gcc
def test_unsupported_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia.compiler import CUDABackend

    target = r"GPUTarget\(backend='cuda', arch=30, warp_size=32\)"
    with stub_driver.enabled(arch=30) as state:
        monkeypatch.setattr(state.triton.compiler, "make_cubin", CUDABackend.make_cubin)  # ptxas
        with pytest.raises(
            RuntimeError, match=f"has no kernel for {target}: (?s:.*)sm_30"
        ) as caught:
            call_operator()
    assert str(caught.value).startswith("gelu_kernels::gate_forward: Triton ")


ON_STUB = """
import torch
from tests import stub_driver
with stub_driver.enabled() as state:
    torch.ops.gelu_kernels.gate_forward(torch.zeros(3), None, "normal")
    assert len(state.launches) == 1
from triton import knobs
print(knobs.cache.dir)
"""


@needs_triton
@needs_gcc
def test_home_that_cannot_be_written(tmp_path) -> None:
    """Triton's cache is a temporary folder then, which goes with the process."""
    result = stub_driver.run(
        "-c", ON_STUB, HOME="/dev/null", TMPDIR=str(tmp_path), TRITON_CACHE_DIR=""
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(tmp_path / "gelu_kernels-"))
    assert list(tmp_path.glob("gelu_kernels-*")) == []
