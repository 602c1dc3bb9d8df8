"""``python -m release.bare PACKAGE``: installs a wheel or an sdist in an empty environment, and
runs the examples of README.md and a short training.

The search path has only the environment's programs: no compiler and no nvcc. For an sdist, which
needs a compiler, it has the machine's programs too. Prints every command and its output.
"""

import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from release.environments import ROOT, create

# The build requirements of pyproject.toml, without torch: the installed one stays.
TO_BUILD = ("setuptools>=70", "cmake>=3.25", "ninja")
EXAMPLES = """
import doctest
result = doctest.testfile("README.md", module_relative=False)
print(f"README.md: {result.attempted} examples, {result.failed} failed")
raise SystemExit(result.failed)
"""
TRAINING = """
import torch
from gelu_kernels import nn
torch.manual_seed(0)
network = torch.nn.Sequential(nn.LinearGELU(16, 64), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
x = torch.randn(256, 16)
y = x.square().mean(1, keepdim=True)
for step in range(101):
    loss = torch.nn.functional.mse_loss(network(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
"""


@click.command(help=__doc__)
@click.argument("package", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--python", default=sys.executable, help="The interpreter.")
@click.option("--torch", default="2.13.0", show_default=True, help="The version to install.")
def main(package: Path, python: str, torch: str) -> None:
    is_wheel = package.suffix == ".whl"
    with TemporaryDirectory() as folder:
        environment = create(Path(folder) / "environment", python)
        (Path(folder) / "README.md").write_bytes((ROOT / "README.md").read_bytes())

        def run(*command: str) -> None:
            shown = shlex.join(["..." if "\n" in word else word for word in command])
            print(f"$ {shown}", flush=True)
            variables = environment.variables(machine=not is_wheel)
            # By env, which searches the new path: subprocess would search this process's own.
            subprocess.run(["/usr/bin/env", *command], check=True, cwd=folder, env=variables)

        quietly = ("pip", "--disable-pip-version-check", "install", "--quiet")
        run(*quietly, f"torch=={torch}", *(() if is_wheel else TO_BUILD))
        run(*quietly, *(() if is_wheel else ("--no-build-isolation",)), str(package.resolve()))
        run("python", "-m", "gelu_kernels")
        run("python", "-c", EXAMPLES)
        run("python", "-c", TRAINING)


if __name__ == "__main__":
    main(prog_name="python -m release.bare")
