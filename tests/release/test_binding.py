"""The Python binding needs no more of Python than its limited API, and what it declares of torch's
objects is what torch's headers for Python say."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from abi3info import DATAS, FUNCTIONS
from abi3info.models import PyVersion, Symbol
from elftools.elf.elffile import ELFFile
from torch.utils.cpp_extension import include_paths

from gelu_kernels import _C
from tests import ROOT
from tests.cases import each
from tests.cpp_library import WARNINGS

OLDEST = PyVersion(3, 10)
# Both headers declare the same things: a difference in types is an error.
LAYOUTS = """
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/python/objects.h"

using gelu_kernels::python::Holder;
static_assert(offsetof(THPVariable, cdata) == offsetof(Holder<at::Tensor>, value));
static_assert(offsetof(THPGenerator, cdata) == offsetof(Holder<at::Generator>, value));
static_assert(offsetof(THPDtype, scalar_type) == offsetof(Holder<at::ScalarType>, value));
static_assert(std::is_same_v<decltype(THPVariable::cdata), at::Tensor>);
static_assert(std::is_same_v<decltype(THPGenerator::cdata), at::Generator>);
static_assert(std::is_same_v<decltype(THPDtype::scalar_type), at::ScalarType>);
"""


@pytest.mark.skipif(
    not _C.__file__.endswith(".abi3.so"), reason="needs a Python with a GIL, for its limited API"
)
def test_only_the_limited_api_is_used() -> None:
    with open(_C.__file__, "rb") as file:
        symbols = [*ELFFile(file).get_section_by_name(".dynsym").iter_symbols()]
    wanted = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"}
    of_python = {Symbol(name) for name in wanted if name.startswith(("Py", "_Py"))}
    limited = {**FUNCTIONS, **DATAS}
    assert len(of_python) > 20
    assert not of_python - {symbol for symbol, found in limited.items() if found.added <= OLDEST}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@each(planted=["", "double before;"])
def test_torchs_objects_have_their_values_there(planted: str, tmp_path: Path) -> None:
    """An error in the header is found."""
    header = (ROOT / "csrc" / "python" / "objects.h").read_text()
    assert "  Value value;" in header
    copied = tmp_path / "csrc" / "python" / "objects.h"
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_text(header.replace("  Value value;", f"  {planted} Value value;"))
    (tmp_path / "layouts.cpp").write_text(LAYOUTS)
    include = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", *WARNINGS]
    command += [f"-I{tmp_path}", *include, "-Wno-invalid-offsetof", tmp_path / "layouts.cpp"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert bool(result.returncode) == bool(planted), result.stderr
    assert result.stderr.count("static assertion failed") == (3 if planted else 0)
