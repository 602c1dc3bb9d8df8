"""Builds the C++ part with CMake and Ninja against the torch that is installed."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

try:
    import torch
except ModuleNotFoundError as error:
    sys.exit(
        f"gelu_kernels is compiled for the installed PyTorch, which {sys.executable} does not have"
        f" ({error}). Run `pip install 'torch>=2.11'` first, then install gelu_kernels again."
    )
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info
from torch.utils import cpp_extension

ROOT = Path(__file__).parent.resolve()
BUILT = ("libgelu_kernels.so", "built_for.py")  # next to `_C`
RELEASE = ".".join(torch.__version__.split(".")[:2])
WARNING_AS_ERROR = "CMAKE_COMPILE_WARNING_AS_ERROR"


def cuda_architectures(wanted: str) -> list[str]:
    """TORCH_CUDA_ARCH_LIST ("8.0;9.0+PTX") in CMake's words ("80-real", "90")."""
    names = wanted.replace(";", " ").replace(".", "").split()
    return [name.removesuffix("+PTX") if "+PTX" in name else f"{name}-real" for name in names]


def cuda_compiler() -> str | None:
    """None without one, or where the CUDA kernels are not wanted."""
    if os.environ.get("FORCE_ONLY_CPU") == "1":
        return None
    of_torch = cpp_extension.CUDA_HOME and f"{cpp_extension.CUDA_HOME}/bin/nvcc"
    return shutil.which(os.environ.get("CUDACXX") or of_torch or "nvcc")


def check_compiler() -> None:
    """CMake would say the same less plainly."""
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if not any(shutil.which(name) for name in compilers):
        sys.exit(
            "gelu_kernels is compiled when it is installed from its sources, and there is no C++"
            f" compiler here: looked for {', '.join(compilers)}. Install g++ >= 12, or a wheel of"
            f" gelu_kernels for torch {RELEASE}."
        )


def built_for() -> str:
    """In the version of what is built: torch's release, and CUDA's if its kernels are there."""
    compiler = cuda_compiler()
    if compiler is None:
        return f"+torch{RELEASE}.cpu"
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    major, minor = re.search(r"release (\d+)\.(\d+)", said.stdout).groups()
    return f"+torch{RELEASE}.cu{major}{minor}"


class CMakeBuild(build_ext):
    """Builds libgelu_kernels.so and _C with CMake, and copies them to where `_C` belongs.

    CMAKE_BUILD_PARALLEL_LEVEL limits the jobs, as for any CMake build. TORCH_CUDA_ARCH_LIST says
    for which GPUs to build, as for any extension of torch, and FORCE_ONLY_CPU=1 for none, as for
    the variables of PyTorch Geometric. CMAKE_COMPILE_WARNING_AS_ERROR=ON is for the developers, and
    DEBUG=1 builds without optimisation.
    """

    def build_extension(self, ext: Extension) -> None:
        check_compiler()
        package = Path(self.get_ext_fullpath(ext.name)).parent.resolve()
        build = ROOT / "build" / f"torch-{torch.__version__}-{sysconfig.get_platform()}"
        options = {
            "CMAKE_BUILD_TYPE": "Debug" if os.environ.get("DEBUG") == "1" else "Release",
            "GELU_KERNELS_CUDA": "ON" if cuda_compiler() else "OFF",
            WARNING_AS_ERROR: os.environ.get(WARNING_AS_ERROR, "OFF"),
            # The same for every command, so that one does not link again what another has built.
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": build / "gelu_kernels",
            "TORCH_INCLUDE_DIRS": ";".join(cpp_extension.include_paths()),
            "TORCH_LIBRARY_DIR": Path(torch.__file__).parent / "lib",
            "PYTHON_INCLUDE_DIR": sysconfig.get_path("include"),
            "PYTHON_MODULE_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
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
        made = build / "gelu_kernels"
        # With a new date, as build_ext copies no older file over that of another torch.
        shutil.copytree(made, package, copy_function=shutil.copy, dirs_exist_ok=True)
        (package / "built_for.py").write_text(f'TORCH = "{torch.__version__}"\n')

    def copy_extensions_to_source(self) -> None:
        """An editable install runs from the source tree, which needs the library next to `_C`."""
        super().copy_extensions_to_source()
        for name in BUILT:
            self.copy_file(str(Path(self.build_lib) / "gelu_kernels" / name), "gelu_kernels")


class TaggedVersion(egg_info):
    """Sets the tag itself. As an option of setup() it would lose to the empty tag in the setup.cfg
    that setuptools adds to an sdist."""

    def finalize_options(self) -> None:
        self.tag_build = "" if is_for_sources else built_for()
        super().finalize_options()


# A build runs only with the torch release it was built for, and requires that release. An sdist
# builds for the installed one.
is_for_sources = "sdist" in sys.argv

setup(
    ext_modules=[Extension("gelu_kernels._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "egg_info": TaggedVersion},
    install_requires=["torch>=2.11" if is_for_sources else f"torch=={RELEASE}.*"],
)
