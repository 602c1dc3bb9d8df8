"""Virtual environments for the release's commands, and what these share."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

ROOT = Path(__file__).resolve().parents[1]
# Python and torch: each release with two. Each pair takes 5 GB, as torch comes with CUDA.
PAIRS = (
    *("3.10:2.11.0", "3.13:2.11.0"),
    *("3.12:2.12.1", "3.14:2.12.1"),
    *("3.11:2.13.0", "3.14:2.13.0"),
    *("3.12:2.14.1", "3.10:2.14.1"),
    *("3.13:2.15.0", "3.14:2.15.0"),
)
TORCHES = tuple(dict.fromkeys(pair.partition(":")[2] for pair in PAIRS))
UNWANTED = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
# The path of a shell in which this interpreter's environment is active.
PATH = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])


def output_option(folder: str, help: str | None = None) -> Callable:
    """The option --output, with this folder of build/ as its default."""
    return click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=ROOT / "build" / folder,
        show_default=True,
        help=help,
    )


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def variables(self, machine: bool = True) -> dict[str, str]:
        """For a process that finds this environment's programs, and by default the machine's."""
        kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
        path = [str(self.python.parent), *([os.environ["PATH"]] if machine else [])]
        return kept | {"PATH": os.pathsep.join(path)}


def create(folder: Path, python: str) -> Environment:
    if not (folder / "pyvenv.cfg").exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    return Environment(folder)


def interpreter(pair: str) -> str:
    """Of a pair such as 3.12:2.13.0."""
    python, _, torch = pair.partition(":")
    found = shutil.which(f"python{python}")
    if found is None or not torch:
        raise click.BadParameter(f"{pair}: python{python} must be on the path, and torch be named")
    return found


def with_torch(pair: str) -> Environment:
    """The environment of a pair, which is made once."""
    python, _, torch = pair.partition(":")
    folder = ROOT / "build" / "environments" / f"python{python}-torch{torch}"
    environment = create(folder, interpreter(pair))
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    subprocess.run([environment.python, *pip, f"torch=={torch}"], check=True)
    return environment


@contextmanager
def last_commit() -> Iterator[Path]:
    """A folder with the files of the last commit, where nothing was built."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    with TemporaryDirectory() as folder:
        subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
        yield Path(folder)


def make(target: str, environment: Environment, folder: Path, **variables: str) -> int:
    """Runs `make` in this folder for the environment's torch, and returns its exit status."""
    command = ("make", target, f"PYTHON={environment.python}")
    return subprocess.run(command, cwd=folder, env=environment.variables() | variables).returncode
