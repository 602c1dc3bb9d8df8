"""Builds the C++ part with CMake and Ninja, against the torch that is installed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
WARNING_AS_ERROR = "CMAKE_COMPILE_WARNING_AS_ERROR"
OLDEST_PYTHON = "cp310"  # of the limited API in CMakeLists.txt

# Of an interpreter: its headers, the end of its extension modules' names, and its tags in a wheel.
DESCRIBE = """
import json, sys, sysconfig
number = "cp" + sysconfig.get_config_var("py_version_nodot")
print(json.dumps({
    "include": sysconfig.get_path("include"),
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "python": number,
    "abi": number + getattr(sys, "abiflags", ""),
}))
"""


def torches() -> list[Path]:
    """The folders `torch` to build for. It is not imported: its CUDA libraries may be missing."""
    if listed := os.environ.get("GELU_KERNELS_TORCHES"):
        return [Path(folder) for folder in listed.split(os.pathsep)]
    spec = find_spec("torch")
    if spec is None:
        sys.exit(
            f"gelu_kernels is compiled for the installed PyTorch, which {sys.executable} does not"
            " have. Run `pip install 'torch>=2.11'` first, then install gelu_kernels again."
        )
    return [Path(spec.origin).parent]


def pythons() -> list[dict[str, str]]:
    """Those to build the binding for. One build with the limited API serves all that have a GIL."""
    listed = os.environ.get("GELU_KERNELS_PYTHONS", sys.executable).split(os.pathsep)
    found = {}
    for python in listed:
        said = subprocess.run([python, "-c", DESCRIBE], check=True, capture_output=True, text=True)
        described = json.loads(said.stdout)
        if not described["abi"].endswith("t"):
            described |= {"suffix": ".abi3.so", "python": OLDEST_PYTHON, "abi": "abi3"}
        found[described["abi"]] = described
    return list(found.values())


def cuda_architectures(wanted: str) -> list[str]:
    """TORCH_CUDA_ARCH_LIST ("8.0;9.0+PTX") in CMake's words ("80-real", "90")."""
    names = wanted.replace(";", " ").replace(".", "").split()
    return [name.removesuffix("+PTX") if "+PTX" in name else f"{name}-real" for name in names]


def cuda_compiler() -> str | None:
    """None without one, or where the CUDA kernels are not wanted. Looked for as torch does."""
    if os.environ.get("FORCE_ONLY_CPU") == "1":
        return None
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [os.environ.get("CUDACXX"), home and f"{home}/bin/nvcc", "nvcc"]
    found = map(shutil.which, filter(None, [*places, "/usr/local/cuda/bin/nvcc"]))
    return next(filter(None, found), None)


def check_compiler() -> None:
    """CMake would say the same less plainly."""
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if not any(shutil.which(name) for name in compilers):
        sys.exit(
            "gelu_kernels is compiled when it is installed from its sources, and there is no C++"
            f" compiler here: looked for {', '.join(compilers)}. Install g++ >= 12, or the wheel of"
            " gelu_kernels."
        )


class CMakeBuild(build_ext):
    """Builds the libraries with CMake, and copies them into the package.

    CMAKE_BUILD_PARALLEL_LEVEL limits the jobs, as for any CMake build. TORCH_CUDA_ARCH_LIST says
    for which GPUs to build, as for any extension of torch, and FORCE_ONLY_CPU=1 for none, as for
    the variables of PyTorch Geometric. CMAKE_COMPILE_WARNING_AS_ERROR=ON is for the developers, and
    DEBUG=1 builds without optimisation. For a wheel, GELU_KERNELS_TORCHES lists the folders of
    several releases of torch, and GELU_KERNELS_PYTHONS interpreters, separated like a PATH.
    """

    def build_extension(self, ext: Extension) -> None:
        check_compiler()
        folders, bindings = torches(), pythons()
        versions = "-".join(run_path(folder / "version.py")["__version__"] for folder in folders)
        build = ROOT / "build" / f"torch-{versions}-{sysconfig.get_platform()}"
        options = {
            "CMAKE_BUILD_TYPE": "Debug" if os.environ.get("DEBUG") == "1" else "Release",
            "GELU_KERNELS_CUDA": "ON" if cuda_compiler() else "OFF",
            WARNING_AS_ERROR: os.environ.get(WARNING_AS_ERROR, "OFF"),
            # The same for every command, so that one does not link again what another has built.
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": build / "gelu_kernels",
            "TORCH_FOLDERS": ";".join(map(str, folders)),
            "PYTHON_INCLUDE_DIRS": ";".join(python["include"] for python in bindings),
            "PYTHON_MODULE_SUFFIXES": ";".join(python["suffix"] for python in bindings),
        }
        if compiler := cuda_compiler():
            options["CMAKE_CUDA_COMPILER"] = compiler
        if wanted := os.environ.get("TORCH_CUDA_ARCH_LIST"):
            options["CMAKE_CUDA_ARCHITECTURES"] = ";".join(cuda_architectures(wanted))
        defines = [f"-D{name}={value}" for name, value in options.items()]
        # cmake and ninja may be installed in this environment, activated or not.
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path}
        # CMake keeps what an earlier build was given: the architectures are this build's alone.
        configure = "-G", "Ninja", "-S", ROOT, "-B", build, "-UCMAKE_CUDA_ARCHITECTURES", *defines
        subprocess.run(["cmake", *configure], check=True, env=environment)
        subprocess.run(["cmake", "--build", build], check=True, env=environment)
        self.made = build / "gelu_kernels"
        self.copy_to(Path(self.get_ext_fullpath(ext.name)).parent)

    def copy_extensions_to_source(self) -> None:
        """An editable install runs from the source tree."""
        self.copy_to(ROOT / "gelu_kernels")

    def copy_to(self, package: Path) -> None:
        for older in package.glob("torch[0-9]*"):  # operators for other kernels
            shutil.rmtree(older)
        shutil.copytree(self.made, package, dirs_exist_ok=True)


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        found = pythons()
        tags = (".".join(python[part] for python in found) for part in ("python", "abi"))
        return *tags, super().get_tag()[2]


setup(
    ext_modules=[Extension("gelu_kernels._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
)
