"""Repeats experiments of the GELU paper (Hendrycks and Gimpel, 2016).

Without --data an experiment runs on a small stand-in for the paper's data, and says so. The results
are CSV files, pictures and a page, README.md, in the folder --output. The same command resumes an
interrupted run.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from experiments import page, report, variance
from experiments.activations import ACTIVATIONS
from experiments.recipes import RECIPES, recipe_of
from experiments.results import train_variants
from experiments.runs import Plan

VARIANCE = "variance"
NAMES = [*RECIPES, VARIANCE]
ALL = "all"
OUTPUT = Path("build/experiments")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    found.add_argument(
        "experiments", nargs="+", metavar="NAME", choices=[*NAMES, ALL], help="%(choices)s"
    )
    found.add_argument("--data", type=Path, help="the folder of the data set's files")
    found.add_argument("--activation", nargs="+", choices=ACTIVATIONS, help="default: the paper's")
    found.add_argument("--seeds", type=positive, help="runs of each setting; default: the paper's")
    found.add_argument("--epochs", type=positive, help="default: the paper's")
    found.add_argument("--quick", action="store_true", help="fewer examples, epochs and neurons")
    found.add_argument("--device", type=torch.device, help="default: a GPU if there is one")
    found.add_argument("--dtype", choices=["float32", "bfloat16"], help="default: bfloat16 on GPUs")
    found.add_argument(
        "--processes", type=positive, help="default: one for each core, one on a GPU"
    )
    found.add_argument("--output", type=Path, default=OUTPUT, help="default: %(default)s")
    return found


def run(name: str, options: argparse.Namespace) -> None:
    recipe = recipe_of(name, options.quick, options.epochs)
    device, on_cpu = options.device, options.device.type == "cpu"
    folder = options.output / name
    data = recipe.data(options.data).to(device)
    plan = Plan(name, options.quick, options.epochs, data, device, folder / "runs")
    variants = train_variants(
        plan,
        options.activation or recipe.activations,
        options.seeds or recipe.seeds,
        options.dtype or ("float32" if on_cpu else "bfloat16"),
        options.processes or (os.cpu_count() if on_cpu else 1),
    )
    report.write(plan, variants, folder)


def run_variance(options: argparse.Namespace) -> None:
    activations = options.activation or ["soi", "cdf_gate"]
    draws = 2**13 if options.quick else 2**15
    total = len(variance.SCALES) * (1 + len(activations))
    with tqdm(total=total, desc=VARIANCE, disable=None) as progress:
        rows = variance.measure(activations, draws, 0, options.device, progress.update)
    variance.write(rows, draws, options.output / VARIANCE)


def main() -> None:
    command_line = parser()
    options = command_line.parse_args()
    if ALL in options.experiments:
        options.experiments = NAMES
    if options.data and (len(options.experiments) > 1 or VARIANCE in options.experiments):
        command_line.error("--data is for one experiment, and not for variance")
    if options.device is None:
        options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in options.experiments:
        try:
            run_variance(options) if name == VARIANCE else run(name, options)
        except (OSError, ValueError) as error:
            sys.exit(f"{name}: {error}")
        except KeyboardInterrupt:
            sys.exit(f"{name}: interrupted; the same command resumes")
    print(page.write(options.output, NAMES).resolve())


if __name__ == "__main__":
    main()
