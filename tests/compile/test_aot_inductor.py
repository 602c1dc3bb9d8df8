"""Packages of AOTInductor, as examples/aot_inductor.py makes them: from Python and from C++."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor, nn

from gelu_kernels import reference
from gelu_kernels.compile import disable_fusion, enable_fusion
from tests import ROOT
from tests.calls import AsModule
from tests.everything import Everything, everything

EXAMPLE = ROOT / "examples" / "aot_inductor.py"
spec = importlib.util.spec_from_file_location("aot_inductor", EXAMPLE)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

close = {"rtol": 1e-5, "atol": 1e-6}  # of sums in float32 against float64


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["operators", "fused"],
)
def fused(request: pytest.FixtureRequest) -> Iterator[bool]:
    if request.param:
        enable_fusion()
    yield request.param
    disable_fusion()


@pytest.fixture(scope="module")
def layers() -> nn.Module:
    torch.manual_seed(0)
    return example.model().eval()


@pytest.fixture(scope="module")
def package(fused: bool, layers: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example.package(layers, tmp_path_factory.mktemp("package") / "model.pt2")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    return example.compile_program(tmp_path_factory.mktemp("program") / "program")


def expected(layers: nn.Module, x: Tensor) -> Tensor:
    hidden, linear, softplus = layers
    weight, bias = (t.detach().double() for t in hidden.parameters())
    y = reference.gelu(nn.functional.linear(x.double(), weight, bias), "tanh")
    weight, bias = (t.detach().double() for t in linear.parameters())
    return softplus(nn.functional.linear(y, weight, bias))


def test_from_python(package: Path, layers: nn.Module) -> None:
    loaded = torch._inductor.aoti_load_package(str(package))
    for rows in (1, 3, 200):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(loaded(x).double(), expected(layers, x), **close)


@pytest.mark.slow
def test_from_cpp(package: Path, program: Path, layers: nn.Module) -> None:
    y = example.run_program(program, package)
    x = torch.arange(-4, 4, 0.5).view(2, 8)
    torch.testing.assert_close(y.double(), expected(layers, x), **close)


def test_what_a_package_calls(package: Path, fused: bool) -> None:
    with ZipFile(package) as files:
        texts = [files.read(name) for name in files.namelist() if name.endswith((".cpp", ".json"))]
    assert any(b"gelu_kernels" in text for text in texts) != fused


def test_the_documented_lines_are_in_the_program() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "guide" / "compile.md").read_text()
    lines = page.partition("```cpp\n")[2].partition("```")[0].splitlines()
    assert len(lines) == 3
    assert all(line in example.SOURCE.read_text() for line in lines)


@pytest.mark.slow
def test_every_public_operator(tmp_path: Path) -> None:
    whole = Everything("cpu")
    exported = torch.export.export(AsModule(everything), tuple(whole.tensors))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "f.pt2"))
    whole.check(torch._inductor.aoti_load_package(path), has_gradients=False)
