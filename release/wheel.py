"""``python -m release.wheel``: builds a wheel for the installed torch, and an sdist.

The wheel targets this torch release and this Python version: its version ends in torch2.13.cpu, or
in torch2.13.cu130 with the CUDA kernels, and it requires that torch. auditwheel tags it with the
oldest Linux that it supports, and leaves torch's libraries out.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from release.environments import PATH, ROOT, output_option

# Part of torch.
EXCLUDED = ("libtorch*", "libc10*")


def run(*command: object) -> None:
    # auditwheel looks for patchelf on the path.
    subprocess.run(list(map(str, command)), check=True, cwd=ROOT, env=os.environ | {"PATH": PATH})


def build_wheel(output: Path) -> Path:
    with TemporaryDirectory() as folder:
        # In an empty folder: that of an older build keeps modules that were deleted since.
        build = ("build", "--build-lib", f"{folder}/build")
        run(sys.executable, "setup.py", "--quiet", *build, "bdist_wheel", "--dist-dir", folder)
        (wheel,) = Path(folder).glob("*.whl")
        repaired = Path(folder) / "repaired"
        excluded = [f"--exclude={name}" for name in EXCLUDED]
        run("auditwheel", "repair", "--strip", *excluded, "--wheel-dir", repaired, wheel)
        (wheel,) = repaired.glob("*.whl")
        return Path(wheel.replace(output / wheel.name))


def build_sdist(output: Path) -> Path:
    with TemporaryDirectory() as folder:
        run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder)
        (sdist,) = Path(folder).glob("*.tar.gz")
        return Path(sdist.replace(output / sdist.name))


@click.command(help=__doc__)
@output_option("wheels")
def main(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for path in (build_sdist(output), build_wheel(output)):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(prog_name="python -m release.wheel")
