"""The repository for the Hugging Face Hub: its builder's parser takes build.toml, which has all
that CMake compiles, and `kernels` loads the build, which computes what the reference does."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

import gelu_kernels
from gelu_kernels import library
from release.hub import cmake, variant
from tests import ROOT
from tests.cases import each
from tests.cpp_library import WARNINGS

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
kernels = pytest.importorskip("kernels")
from kernels._rust import Backend, Build, Digest, DigestValidationError  # noqa: E402
from kernels.variants import parse_variant, resolve_variant  # noqa: E402

pytestmark = pytest.mark.slow

LOADER = Path(__file__).with_name("load_from_hub.py")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "gelu-kernels"
    command = [sys.executable, "-m", "release.hub", "--output", folder]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def sections(hub: Path) -> dict[str, dict]:
    """Of build.toml, those that compile."""
    return tomllib.loads((hub / "build.toml").read_text())["kernel"]


def sources_and_flags(sections: dict[str, dict], backend: str) -> Iterator[tuple[str, list[str]]]:
    for section in sections.values():
        if section["backend"] == backend:
            for source in section["src"]:
                yield source, section.get("cxx-flags", [])


def build(hub: Path) -> Path:
    return hub / "build" / variant.name()


def test_the_hub_takes_it(hub: Path) -> None:
    assert Build.open(hub).general.backends == [Backend.CPU, Backend.CUDA]


@each(
    error=[
        ("edition = 5", "edition = 6"),
        ('"gelu-kernels"', '"gelu_kernels"'),
        ("cxx-flags", "cpp-flags"),
        ("src = ", "sources = "),
        ('backend = "cpu"', 'backend = "gpu"'),
    ]
)
def test_the_hub_refuses_an_error(error: tuple[str, str], hub: Path, tmp_path: Path) -> None:
    right, wrong = error
    text = (hub / "build.toml").read_text()
    assert right in text
    (tmp_path / "build.toml").write_text(text.replace(right, wrong))
    with pytest.raises(ValueError):
        Build.open(tmp_path)


@each(backend=["cpu", "cuda"])
def test_the_loops_are_compiled_as_by_cmake(
    backend: str, sections: dict[str, dict], tmp_path: Path
) -> None:
    expected = set()
    for entry in cmake.commands(tmp_path):
        command = entry["command"]
        if instruction_set := re.search(r"-DGELU_KERNELS_CAPABILITY=(\w+)", command):
            flags = {*re.findall(r" (-[fm]\S+|--param\S+)", command)} - {"-fPIC"}
            source = f"csrc/cpu/{instruction_set[1]}/{Path(command.split()[-1]).name}"
            expected.add((source, instruction_set[0], *sorted(flags)))
    found = {
        (source, flags[0], *sorted(flags[1:]))
        for source, flags in sources_and_flags(sections, backend)
        if source.endswith("_loops.cpp") or source.endswith("/loops.cpp")
    }
    assert expected and found == expected


@each(backend=["cpu", "cuda"])
def test_every_source_is_compiled_once(backend: str, sections: dict[str, dict]) -> None:
    paths = [path.relative_to(ROOT) for path in (ROOT / "csrc").rglob("*.c[pu]*")]
    for_cuda = "csrc/cuda/", "csrc/ops/device/"
    expected = {
        str(path)
        for path in paths
        if path.suffix in (".cpp", ".cu")
        and path.parts[1] != "python"
        and (backend == "cuda" or not str(path).startswith(for_cuda))
    }
    found = [source for source, _ in sources_and_flags(sections, backend)]
    assert len(found) == len({*found})
    # A source of loops is there for each instruction set, in its folder.
    assert {re.sub("cpu/(baseline|avx2|avx512)/", "cpu/", source) for source in found} == expected


def test_no_file_is_missing(hub: Path) -> None:
    """The builder sees those alone that build.toml names."""
    configuration = tomllib.loads((hub / "build.toml").read_text())
    parts = configuration["torch"], *configuration["kernel"].values()
    named = {source for part in parts for source in part["src"]}
    for source in named:
        text = (hub / source).read_text()
        included = {*re.findall(r'#include "(csrc/.*)"', text)}
        assert included <= named, (source, included - named)
    assert (hub / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each(cuda=[None, "12.8", "13.0"])
def test_the_build_is_found(cuda: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found, decisions = resolve_variant([parse_variant(variant.name())])
    assert found is not None, decisions
    assert found.variant_str == variant.name()
    assert variant.backend() == ("cuda" if cuda else "cpu")


def test_the_digest_is_right(hub: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(build(hub), tmp_path / "build")
    expected = kernels.Metadata.read_from_file(folder / "metadata.json").digest
    expected.validate(Digest.hash_variant(expected.algorithm, folder))
    with (folder / variant.FOLDER / "backend.py").open("a") as file:
        file.write("\n")
    with pytest.raises(DigestValidationError, match="backend.py"):
        expected.validate(Digest.hash_variant(expected.algorithm, folder))


def load(hub: Path, *broken: Path) -> subprocess.CompletedProcess[str]:
    """With -I nothing is imported from the working directory or from PYTHONPATH."""
    return subprocess.run(
        [sys.executable, "-I", LOADER, hub, *broken],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )


def test_it_loads_and_is_right(hub: Path, tmp_path: Path) -> None:
    """After builds that do not load, which leave nothing behind."""
    other_python, other_torch = (
        shutil.copytree(build(hub), tmp_path / other / variant.name())
        for other in ("python", "torch")
    )
    (extension,) = (other_python / variant.FOLDER).glob("torch*/_C.*")
    extension.rename(extension.with_name("_C.cpython-39-x86_64-linux-gnu.so"))
    (operators,) = (other_torch / variant.FOLDER).glob("torch*")
    operators.rename(operators.with_name("torch9.87"))
    result = load(hub, tmp_path / "python", tmp_path / "torch")
    assert result.returncode == 0, result.stderr
    first, second, last = result.stdout.splitlines()
    assert "built for another Python" in first and "_C.cpython-39" in first
    assert "built for torch 9.87" in second and torch.__version__ in second
    assert last == "right"


def test_a_process_has_one(hub: Path) -> None:
    with pytest.raises(ImportError, match=f"{re.escape(gelu_kernels.__file__)} is loaded already"):
        kernels.get_local_kernel(hub)
    assert sys.modules["gelu_kernels"] is gelu_kernels


def test_a_process_has_one_library(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would end the process."""
    monkeypatch.delitem(sys.modules, "gelu_kernels")
    with pytest.raises(ImportError, match="a library of its operators is loaded already"):
        kernels.get_local_kernel(hub)


def test_a_library_of_the_builder_loads_and_is_right(hub: Path, tmp_path: Path) -> None:
    """As the builder makes it: for Python's limited API, in the folder of torch-ext's Python files.
    The installed library stands in for the operators that the builder compiles."""
    folder = shutil.copytree(hub / "torch-ext" / "gelu_kernels", tmp_path / variant.name())
    shutil.copy(build(hub) / "metadata.json", folder)
    operators = Path(gelu_kernels._C.__file__).with_name(library.OPERATORS)
    shutil.copy(operators, folder / variant.FOLDER)
    shutil.copy(library.KERNELS, folder)  # which the operators look for in the folder above
    libraries = Path(torch.__file__).parent / "lib"
    compile_and_link = [
        *(os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", *WARNINGS),
        *("-DPy_LIMITED_API=3", f"-I{hub}", *(f"-isystem{path}" for path in include_paths())),
        *("-o", folder / "_gelu_kernels_cpu_test.abi3.so", hub / "torch-ext" / "torch_binding.cpp"),
        *(folder / variant.FOLDER / operators.name, f"-L{libraries}", "-ltorch_cpu", "-lc10"),
        f"-Wl,-rpath,$ORIGIN/{variant.FOLDER},-rpath-link,{folder}",
    ]
    subprocess.run(compile_and_link, check=True)
    result = load(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "right\n"
