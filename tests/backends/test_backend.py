"""Which kernels GPUs have, from the build and the GPUs that there are."""

import subprocess
import sys
from collections.abc import Callable
from itertools import product

import pytest
import torch

from gelu_kernels import backend

DEFAULT = ["80-real", "90-real", "100-real", "120"]  # of CMakeLists.txt

# Compute capabilities of devices that have been sold.
DEVICES = [
    *((6, 1), (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0)),
    *((10, 0), (10, 1), (10, 3), (11, 0), (12, 0), (12, 1)),
]


RUNS_ON = {
    "80-real": [(8, 0), (8, 6), (8, 9)],
    "86-real": [(8, 6), (8, 9)],
    "87-real": [(8, 7)],
    "90-real": [(9, 0)],
    "90a-real": [(9, 0)],
    "90a": [(9, 0)],
    "100-real": [(10, 0), (10, 3)],
    "100f-real": [(10, 0), (10, 3)],
    "100f": [(10, 0), (10, 3)],
    "103-real": [(10, 3)],
    "110-real": [(11, 0)],
    "120-real": [(12, 0), (12, 1)],
    "120a-real": [(12, 0)],
    "120": [(12, 0), (12, 1)],
    "100-virtual": DEVICES[9:],
    "75": DEVICES[3:],
    "native": DEVICES,
}


def test_where_code_runs() -> None:
    """PTX also runs on what is still to come."""
    found = {name: [c for c in DEVICES if backend.runs_on(name, c)] for name in RUNS_ON}
    assert found == RUNS_ON
    assert backend.runs_on("120", (13, 0))
    assert not backend.runs_on("120-real", (13, 0))


CHOICES = {
    "all built": (DEFAULT, [(8, 0), (9, 0)], True, "cuda"),
    "none built": (DEFAULT, [(7, 5)], True, "triton"),
    "new": (DEFAULT, [(11, 0)], True, "triton"),
    "left out": (["90-real"], [(8, 0)], True, "triton"),
    "one of two": (DEFAULT, [(9, 0), (7, 5)], True, "triton"),
    "no Triton": (DEFAULT, [(7, 5)], False, "cuda"),
    "too old for Triton": (DEFAULT, [(6, 1)], True, "cuda"),
    "one too old for Triton": (DEFAULT, [(9, 0), (6, 1)], True, "cuda"),
    "no GPU": (DEFAULT, [], True, "cuda"),
}


def test_choice() -> None:
    """Where no kernels would do, those in CUDA C++ stay, as their error names the remedy."""
    found = {case: backend.choose(*given) for case, (*given, _) in CHOICES.items()}
    assert found == {case: expected for case, (*_, expected) in CHOICES.items()}


class Machine:
    """The kernels that the import registers, and the kernels once CUDA is initialised."""

    def __init__(self, patch: Callable[..., None], capability: backend.Capability) -> None:
        self.keys: set[str] = set()
        self.queued: list[tuple[Callable[[], None], object]] = []
        patch(backend, "_library", self)
        patch(backend._C, "build_info", lambda: {"cuda": "13.0.88 for 80-real 90-real"})
        patch(backend, "find_spec", lambda name: name)
        patch(torch.cuda, "device_count", lambda: 1)
        patch(torch.cuda, "get_device_capability", lambda i: self.ask(capability))
        patch(torch.cuda, "is_initialized", lambda: False)
        patch(torch.cuda, "_queued_calls", self.queued)
        self.was_asked = False

    def ask(self, capability: backend.Capability) -> backend.Capability:
        self.was_asked = True
        return capability

    def impl(self, name: str, kernel: object, key: str) -> None:
        assert kernel is backend.TRITON[name]
        self.keys.add(key)

    def initialise(self) -> None:
        for call, _ in self.queued:
            call()


def test_the_gpus_are_asked_for_when_cuda_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, capability in product(["", "cuda", "triton"], [(7, 5), (9, 0)]):
        case = wanted, capability
        monkeypatch.setenv(backend.VARIABLE, wanted)
        machine = Machine(monkeypatch.setattr, capability)
        backend.register()
        assert machine.keys == ({"CUDA", "XPU"} if wanted == "triton" else {"XPU"}), case
        assert not machine.was_asked, case
        machine.initialise()
        has_triton = wanted == "triton" or (wanted == "" and capability == (7, 5))
        assert machine.keys == ({"CUDA", "XPU"} if has_triton else {"XPU"}), case
        assert backend.for_nvidia() == ("triton" if has_triton else "cuda"), case


def test_a_gpu_of_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    """gfx90a has the number of a binary for NVIDIA's."""
    monkeypatch.setenv(backend.VARIABLE, "")
    monkeypatch.setattr(torch.version, "hip", "7.2")
    machine = Machine(monkeypatch.setattr, (9, 0))
    backend.register()
    machine.initialise()
    assert machine.keys == {"CUDA", "XPU"}


REPLACE = """
import torch
import gelu_kernels
from gelu_kernels import backend

torch.cuda.device_count = lambda: 1
torch.cuda.get_device_capability = lambda i: (7, 5)
for call, _ in torch.cuda._queued_calls:
    if call.__module__ == "gelu_kernels.backend":
        call()
for name in backend.TRITON:
    print(torch._C._dispatch_dump(f"gelu_kernels::{name}"))
"""


@pytest.mark.skipif(not backend._has_cuda(), reason="needs a build with nvcc")
@pytest.mark.skipif(backend.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("wanted", ["", "cuda"])
def test_triton_takes_the_place_of_kernels_that_cannot_run(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(backend.VARIABLE, wanted)
    command = [sys.executable, "-W", "error", "-c", REPLACE]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    serving = {}
    for line in result.stdout.splitlines():
        if line.startswith("name: "):
            name = line
        elif line.startswith("CUDA: ") or line.startswith("CUDA["):
            serving.setdefault(name, line)  # of several kernels of a key the first serves
    assert len(serving) == len(backend.TRITON)
    assert all(("backend.py" in line) == (wanted == "") for line in serving.values()), serving
