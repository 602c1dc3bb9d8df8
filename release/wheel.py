"""``python -m release.wheel``: builds the wheel for all releases of torch, and an sdist.

The wheel contains the kernels once, and the operators and the Python binding for each torch in
release/environments.py. The binding supports every Python with a GIL, and python3.14t if that is on
the path. build/torches/ keeps the torches to build against, without their dependencies (9 GB).
auditwheel tags the wheel with the oldest Linux that it supports, and does not bundle torch.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from release.environments import PATH, ROOT, TORCHES, output_option

# Part of torch.
EXCLUDED = ("libtorch*", "libc10*")
FREE_THREADED = "python3.14t"


def run(*command: object, **variables: str) -> None:
    # auditwheel looks for patchelf on the path.
    environment = os.environ | {"PATH": PATH} | variables
    subprocess.run(list(map(str, command)), check=True, cwd=ROOT, env=environment)


def torch_folder(version: str) -> Path:
    """Any Python's torch will do: headers and libraries are the same for all."""
    folder = ROOT / "build" / "torches" / version
    if not folder.exists():
        pip = sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"
        only = "--no-deps", "--python-version", "3.12", "--only-binary", ":all:"
        run(*pip, *only, "--target", folder, f"torch=={version}")
    return folder / "torch"


def build_wheel(output: Path) -> Path:
    free_threaded = shutil.which(FREE_THREADED)
    variables = {
        "GELU_KERNELS_TORCHES": os.pathsep.join(str(torch_folder(v)) for v in TORCHES),
        "GELU_KERNELS_PYTHONS": os.pathsep.join(filter(None, [sys.executable, free_threaded])),
    }
    with TemporaryDirectory() as folder:
        # In an empty folder: that of an older build keeps modules that were deleted since.
        build = ("build", "--build-lib", f"{folder}/build")
        setup = (sys.executable, "setup.py", "--quiet", *build)
        run(*setup, "bdist_wheel", "--dist-dir", folder, **variables)
        (wheel,) = Path(folder).glob("*.whl")
        repaired = Path(folder) / "repaired"
        excluded = [f"--exclude={name}" for name in EXCLUDED]
        run("auditwheel", "repair", "--strip", *excluded, "--wheel-dir", repaired, wheel)
        (wheel,) = repaired.glob("*.whl")
        return Path(shutil.move(wheel, output / wheel.name))


def build_sdist(output: Path) -> Path:
    with TemporaryDirectory() as folder:
        run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder)
        (sdist,) = Path(folder).glob("*.tar.gz")
        return Path(shutil.move(sdist, output / sdist.name))


@click.command(help=__doc__)
@output_option("wheels")
def main(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for path in (build_sdist(output), build_wheel(output)):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(prog_name="python -m release.wheel")
