"""The measurement as pictures: % of the roof against size, speed-up, and errors over x."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from bench import accuracy

COLORS = ["#1f5fa8", "#8a8f98", "#e07b1f", "#2f8f5b", "#9c4fb0", "#b8860b", "#c23b3b"]
STYLES = {"bfloat16": "-", "float32": "--", "float16": ":", "float64": "-."}


def plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def values(records: list[dict], name: str) -> list[str]:
    return list(dict.fromkeys(record[name] for record in records))


def select(records: list[dict], **wanted: str) -> list[dict]:
    return [r for r in records if all(r[name] == value for name, value in wanted.items())]


def roof(records: list[dict], device: str) -> Figure:
    """For the first gate of those measured."""
    gate = values(records, "gate")[0]
    ops, labels, sides = (values(records, name) for name in ("op", "pass", "side"))
    size = (4.2 * len(labels), 2.9 * len(ops))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(ops), len(labels), sharex=True, squeeze=False)
    for row, op in zip(grid, ops, strict=True):
        for axes, label in zip(row, labels, strict=True):
            for color, side in zip(COLORS, sides, strict=False):
                for dtype in values(records, "dtype"):
                    line = select(
                        records,
                        **{"op": op, "pass": label, "gate": gate, "dtype": dtype},
                        side=side,
                    )
                    axes.plot(
                        [record["bytes"] for record in line],
                        [record["roof"] for record in line],
                        label=f"{side}, {dtype}",
                        color=color,
                        linestyle=STYLES[dtype],
                        marker=".",
                    )
            axes.set(title=f"{op}, {label}", xscale="log")
            axes.axhline(100, color="black", linewidth=0.8)
            plain(axes)
    for axes in grid[-1]:
        axes.set_xlabel("bytes of x")
    for row in grid:
        row[0].set_ylabel("% of a copy's bandwidth")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(f'gate "{gate}" on {device}')
    return figure


def speedup(records: list[dict], device: str) -> Figure:
    """At the largest size, for each dtype."""
    dtypes, labels = values(records, "dtype"), values(records, "pass")
    sides = [side for side in values(records, "side") if side != "eager"]
    figure = Figure(figsize=(6 * len(labels), 3.2 * len(dtypes)), layout="constrained")
    grid = figure.subplots(len(dtypes), len(labels), squeeze=False)
    for row, dtype in zip(grid, dtypes, strict=True):
        for axes, label in zip(row, labels, strict=True):
            bars(axes, select(records, **{"dtype": dtype, "pass": label}), sides)
            largest = max(r["elements"] for r in select(records, dtype=dtype))
            axes.set_title(f"{label}, {dtype}, {largest} elements")
        row[0].set_ylabel("times as fast as eager PyTorch")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(device)
    return figure


def bars(axes: Axes, records: list[dict], sides: list[str]) -> None:
    largest = max(record["elements"] for record in records)
    cells = list(dict.fromkeys((r["op"], r["gate"]) for r in records))
    width = 0.8 / len(sides)
    for i, side in enumerate(sides):
        found = {
            (r["op"], r["gate"]): r["eager/side"]
            for r in select(records, side=side)
            if r["elements"] == largest and r["eager/side"]
        }
        places = [cells.index(cell) + (i - (len(sides) - 1) / 2) * width for cell in found]
        color = COLORS[i if i == 0 else i + 1]
        found_bars = axes.bar(places, list(found.values()), width, label=side, color=color)
        axes.bar_label(found_bars, fmt="%.1f", fontsize=6)
    axes.set_xticks(range(len(cells)), [f"{op}\n{gate}" for op, gate in cells], fontsize=7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.axhline(1, color="black", linewidth=0.8)
    plain(axes)


def errors(device: str, name: str) -> Figure:
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, dtype in zip(figure.subplots(ncols=2), (torch.float32, torch.bfloat16), strict=True):
        found = accuracy.measure(dtype, device)
        for side, color in (("F.gelu", COLORS[2]), ("gelu_kernels", COLORS[0])):
            axes.plot(found["x"], found[side], ".", markersize=3, label=side, color=color)
        axes.set(
            title=str(dtype).removeprefix("torch."),
            xlabel="x",
            ylabel="error, ULP",
            yscale="symlog",
            ylim=(0, None),
        )
        axes.axhline(0.5, color="black", linewidth=0.8)
        plain(axes)
    axes.legend(frameon=False)
    figure.suptitle(f"Errors of the exact GELU on {name}")
    return figure


def save(records: list[dict], device: str, name: str, stem: Path) -> list[Path]:
    figures = {"accuracy": errors(device, name)}
    if records:
        figures |= {"roof": roof(records, name), "speedup": speedup(records, name)}
    paths = []
    for kind, figure in figures.items():
        paths.append(stem.with_name(f"{stem.name}-{kind}.png"))
        figure.savefig(paths[-1], dpi=110)
    return paths
