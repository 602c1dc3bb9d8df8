"""Packages a model with AOTInductor, and runs the package from Python and from C++.

    python examples/aot_inductor.py [--fusion]

The C++ program, aot_inductor.cpp, is compiled with g++ against the installed torch. With --fusion
Inductor writes the gates into its own loops, and the package calls no operator of gelu_kernels.
"""

import argparse
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.utils import cpp_extension

import gelu_kernels
from gelu_kernels import library
from gelu_kernels.compile import disable_fusion, enable_fusion

SOURCE = Path(__file__).with_suffix(".cpp")
LIBRARY = library.find() / library.OPERATORS


def model() -> nn.Module:
    return nn.Sequential(
        gelu_kernels.nn.LinearGELU(8, 16, approximate="tanh"), nn.Linear(16, 4), nn.Softplus()
    )


def package(model: nn.Module, path: Path) -> Path:
    """For any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=1024)
    program = torch.export.export(model, (torch.zeros(3, 8),), dynamic_shapes=({0: rows},))
    return Path(torch._inductor.aoti_compile_and_package(program, package_path=str(path)))


def compile_program(path: Path) -> Path:
    library = Path(torch.__file__).parent / "lib"
    command = ["g++", "-std=c++20", "-O1", str(SOURCE), "-o", str(path)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-isystem{folder}" for folder in cpp_extension.include_paths()]
    command += [f"-L{library}", f"-Wl,-rpath,{library}", "-Wl,--no-as-needed"]
    command += ["-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    subprocess.run(command, check=True)
    return path


def run_program(program: Path, package: Path) -> Tensor:
    command = [program, package, LIBRARY]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return torch.tensor([float(line) for line in result.stdout.split()]).view(2, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fusion", action="store_true", help="let Inductor fuse the gates")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    layers = model().eval()
    x = torch.arange(-4, 4, 0.5).view(2, 8)
    if arguments.fusion:
        enable_fusion()
    with TemporaryDirectory() as folder, torch.no_grad():
        path = package(layers, Path(folder, "model.pt2"))
        results = {
            "eager": layers(x),
            "package, from Python": torch._inductor.aoti_load_package(str(path))(x),
            "package, from C++": run_program(compile_program(Path(folder, "program")), path),
        }
    disable_fusion()
    for name, y in results.items():
        print(f"{name:22}", *(f"{v:.6f}" for v in y.flatten().tolist()))


if __name__ == "__main__":
    main()
