"""The sources as the Hub's builder takes them: build.toml, the files that it names (the builder
sees no others), and torch-ext/ with the package.

CMake reports the sources and flags of CMakeLists.txt. The builder compiles each file once, with one
set of flags, so the loops are copied for each instruction set.
"""

import json
import re
import shutil
from pathlib import Path

from release.environments import ROOT
from release.hub import cmake, variant

# Replacements for files that the builder cannot use.
OURS = Path(__file__).with_name("builder")
BINDING = OURS / "torch_binding.cpp"
REPLACED = ["csrc/python/module.cpp"]
BACKENDS = ("cpu", "cuda")
CAPABILITY = re.compile(r"-DGELU_KERNELS_CAPABILITY=(\w+)")
OLDEST_CUDA = "12.8"  # the first that knows the newest architecture
BUILDER = "the Hub's builder"  # its versions are not known here


def capability(architecture: str) -> str:
    """8.0 of 80-real, 12.0+PTX of 120."""
    number = architecture.removesuffix("-real")
    return f"{number[:-1]}.{number[-1]}" + ("+PTX" if number == architecture else "")


def matching(*patterns: str) -> list[str]:
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def quoted(name: str, value: str) -> str:
    """A flag that defines a string. The builder writes it between CMake's quotation marks."""
    return rf"-D{name}=\"{value}\""


class Repository:
    """Copies each source when it is added to build.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sections: dict[str, dict[str, object]] = {}

    def copy(self, source: str | Path, place: str | None = None) -> str:
        target = self.folder / (place or source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, target)
        return str(place or source)

    def add(self, name: str, backend: str, sources: list[str], **options: object) -> None:
        settings = {"backend": backend, "depends": ["torch"], "include": ["."], **options}
        self.sections[f"kernel.{name}"] = {**settings, "src": sources}

    def add_loops(self, flags: cmake.Flags, sources: list[str], instruction_set: str) -> None:
        """Adds copies in a folder of the instruction set."""
        copies = [
            self.copy(source, re.sub(r"(\w+\.cpp)$", rf"{instruction_set}/\1", source))
            for source in sources
        ]
        for backend in BACKENDS:
            name = f"{backend}_{Path(sources[0]).stem}_{instruction_set}"
            self.add(name, backend, copies, **{"cxx-flags": list(flags)})

    def add_operators(self, flags: cmake.Flags, sources: list[str]) -> None:
        for source in sources:
            self.copy(source)
        cuda_sources = [self.copy(source) for source in matching("csrc/ops/device/*.cpp")]
        cuda = f"of {BUILDER} for {' '.join(cmake.cuda_architectures())}"
        for backend in BACKENDS:
            built = cuda if backend == "cuda" else "not built"
            strings = {"COMPILER": f"of {BUILDER}", "CUDA": built}
            defines = [quoted(f"GELU_KERNELS_{name}", value) for name, value in strings.items()]
            ours = sources + (cuda_sources if backend == "cuda" else [])
            self.add(f"{backend}_operators", backend, ours, **{"cxx-flags": [*flags, *defines]})

    def add_cuda_kernels(self) -> None:
        kernels = [self.copy(source) for source in matching("csrc/cuda/**/*.cu")]
        options = {
            "cuda-capabilities": [capability(name) for name in cmake.cuda_architectures()],
            "cuda-flags": [cmake.cuda_flag()],
        }
        self.add("cuda_kernels", "cuda", kernels, **options)

    def write(self) -> None:
        sections = {
            "general": {"edition": 5, **variant.GENERAL, "backends": list(BACKENDS)},
            "general.cuda": {"minver": OLDEST_CUDA},
            "torch": {
                "include": ["."],
                "src": [
                    self.copy(BINDING, f"torch-ext/{BINDING.name}"),
                    *map(self.copy, matching("csrc/**/*.h", "csrc/**/*.cuh")),
                ],
            },
            **self.sections,
        }
        text = "\n".join(
            f"[{title}]\n"
            + "".join(f"{key} = {json.dumps(value, indent=2)}\n" for key, value in keys.items())
            for title, keys in sections.items()
        )
        (self.folder / "build.toml").write_text(text)


def write(folder: Path) -> None:
    repository = Repository(folder)
    needed, operators = set(), []
    for flags, sources in cmake.compiled().items():
        if instruction_set := CAPABILITY.search(" ".join(flags)):
            repository.add_loops(flags, sources, instruction_set[1])
        elif sources != REPLACED:
            needed.update(flags)
            operators += sources
    repository.add_operators(tuple(sorted(needed)), operators)
    repository.add_cuda_kernels()
    repository.copy("LICENSE")
    repository.write()
    package = folder / "torch-ext" / variant.PACKAGE.name
    variant.write_package(package, "*.so", "torch[0-9]*")
    for path in OURS.glob("*.py"):
        shutil.copy(path, package / variant.FOLDER)
