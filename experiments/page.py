"""Writes CSV files, and one page with the sections of all experiments in a folder."""

import csv
from datetime import date
from pathlib import Path

import torch

from bench.environment import cpu, gpu

SECTION = "section.md"
INTRODUCTION = """# The GELU paper's experiments

The experiments of [Gaussian Error Linear Units](https://arxiv.org/abs/1606.08415) (Hendrycks and
Gimpel), with the operators of gelu_kernels. Figures are medians over the seeds, with the lowest and
the highest in brackets. Losses are from the last epoch, test errors from the epoch with the lowest
validation error.
"""


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def machine() -> str:
    on = gpu() if torch.cuda.is_available() else cpu()
    return f"{on['device']}, torch {torch.__version__}, {date.today().isoformat()}."


def write(folder: Path, names: list[str]) -> Path:
    sections = [folder / name / SECTION for name in names]
    texts = [path.read_text() for path in sections if path.exists()]
    page = folder / "README.md"
    page.write_text("\n".join([INTRODUCTION, machine() + "\n", *texts]))
    return page
