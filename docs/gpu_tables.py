"""The tables of what a GPU has measured, each of them only where it has: a line for a family."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bench import runs
from bench.epilogue import shares
from bench.markdown import power_of_2, span, table, two_digits
from bench.presets import PRESETS
from bench.records import LAUNCHES_COUNT
from docs.families import FAMILIES, VARIANTS, family_of

BACKENDS = ("cuda", "triton")
PASSES = ("forward", "backward")
DTYPES = ("bfloat16", "float32")
LIGER = "liger_kernel"
LARGE = 2**28  # bytes: without the launch and the tail
Cell = dict[str, dict]  # a record for each side


def cells_of(run: runs.Run) -> list[Cell]:
    found: dict[tuple, Cell] = {}
    for record in run["results"]:
        key = tuple(record[name] for name in list(runs.FIELDS)[: runs.CELL])
        found.setdefault(key, {})[record["side"]] = record
    return list(found.values())


def any_of(cell: Cell) -> dict:
    return next(iter(cell.values()))


def bandwidth(cells: list[Cell]) -> Iterator[str]:
    for backend in BACKENDS:
        lines: dict[str, dict[str, list[Cell]]] = {family: {} for family in (*FAMILIES, *VARIANTS)}
        for cell in cells:
            record = any_of(cell)
            family, itemsize = family_of(record["op"]), 4 if record["dtype"] == "float32" else 2
            if family and backend in cell and record["elements"] * itemsize >= LARGE:
                column = f"{record['dtype']} {record['pass']}"
                lines[family].setdefault(column, []).append(cell)

        def text(found: list[Cell], backend: str = backend) -> str:
            roof = span(cell[backend]["roof"] for cell in found)
            both = [cell for cell in found if "eager" in cell]
            ratios = [cell["eager"]["us"] / cell[backend]["us"] for cell in both]
            return f"{roof} %" + (f", {span(ratios, two_digits)}x" if ratios else "")

        columns = [f"{dtype} {label}" for dtype, label in product(DTYPES, PASSES)]
        columns = [name for name in columns if any(name in line for line in lines.values())]
        if columns:
            yield (
                f"`{backend}`, tensors of 256 MiB and more: % of the rate of a copy, and how many"
                " times as fast as eager PyTorch, from the lowest to the highest over gates and"
                " forms.\n"
            )
            rows = (
                (family, *(text(line[name]) if name in line else "" for name in columns))
                for family, line in lines.items()
                if line
            )
            yield table(("operator", *columns), rows)


def sizes(cells: list[Cell]) -> Iterator[str]:
    lines: dict[tuple[str, ...], dict[int, Cell]] = {}
    for cell in cells:
        record = any_of(cell)
        is_small = record["elements"] <= LAUNCHES_COUNT and {"cuda", "eager"} <= cell.keys()
        if is_small and cell["cuda"].get("host us"):
            key = f"`{record['op']}`", f"`{record['gate']}`", record["pass"]
            lines.setdefault(key, {})[record["elements"]] = cell
    elements = sorted({n for line in lines.values() for n in line})
    if not lines:
        return
    yield (
        "Small tensors in bfloat16: microseconds of a call, and in a CUDA graph; ours / eager"
        " PyTorch's. `host`: of the host for a call, at the smallest size.\n"
    )

    def pair(cell: Cell, name: str) -> str:
        values = (cell[side].get(name) for side in ("cuda", "eager"))
        return " / ".join(f"{value:.1f}" if value else "" for value in values)

    rows = (
        (
            *key,
            *(
                f"{pair(line[n], 'us')}; {pair(line[n], 'us in a graph')}" if n in line else ""
                for n in elements
            ),
            pair(line[min(line)], "host us"),
        )
        for key, line in lines.items()
    )
    yield table(("operator", "gate", "pass", *map(power_of_2, elements), "host"), rows)


def peers(cells: list[Cell]) -> Iterator[str]:
    preset = PRESETS["peers"]
    found = [
        cell
        for cell in cells
        if {"cuda"} < cell.keys() and any(side in preset["compared"] for side in cell)
    ]
    if not found:
        return
    sides = ["cuda", "eager", *(s for s in preset["compared"] if any(s in cell for cell in found))]
    note = " Liger's backward writes the gradients over its inputs." if LIGER in sides else ""
    yield f"Other packages: microseconds, and the largest error in ULP against float64.{note}\n"

    def text(record: dict | None) -> str:
        if record is None:
            return ""
        error = record.get("ULP")
        return f"{record['us']:.1f}" + (f", {error:.3g}" if error is not None else "")

    rows = []
    for cell in found:
        names = (f"`{any_of(cell)[name]}`" for name in ("op", "gate"))
        label = f"{any_of(cell)['dtype']} {any_of(cell)['pass']}"
        rows.append((*names, label, *(text(cell.get(side)) for side in sides)))
    yield table(("operator", "gate", "pass", *sides), rows)


def megabytes(text: str) -> str:
    return f"{int(text) / 1e6:.0f}" if text else ""


def layers(tables: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    for rows in tables.values():
        first = rows[0]
        yield (
            f"A layer in training: {first['mlp']}, {first['dtype']}, {first['tokens']} tokens,"
            f" {first['features']} features. Without the weights.\n"
        )
        lines = (
            (
                row["mode"],
                f"{float(row['us']) / 1e3:.2f}",
                *(megabytes(row[f"{what} bytes"]) for what in ("kept", "peak")),
            )
            for row in rows
        )
        yield table(("mode", "ms a step", "kept, MB", "peak, MB"), lines)


def epilogues(tables: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    for rows in tables.values():
        by_shape: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            shape = " x ".join(row[name] for name in ("tokens", "features", "hidden"))
            by_shape.setdefault(shape, []).append(row)
        lines: dict[tuple[str, str], dict[str, str]] = {}
        for shape, found in by_shape.items():
            for row in found:
                line = lines.setdefault((row["pass"], row["what"]), {})
                line[shape] = f"{float(row['us']):.0f}"
        for shape, found in by_shape.items():
            for label, share in shares(found).items():
                lines.setdefault((label, "share of the gate"), {})[shape] = f"{share:.1%}"
        yield "The gate next to the matrix products of its layer, microseconds.\n"
        cells = (
            (*key, *(line.get(shape, "") for shape in by_shape)) for key, line in lines.items()
        )
        yield table(("pass", "what", *by_shape), cells)


def of_gpu(run: runs.Run, title: str, folder: Path = runs.RESULTS) -> str:
    cells = cells_of(run)
    slug = runs.slug(run["machine"])

    def tables(kind: str) -> dict[str, list[dict[str, str]]]:
        return runs.read_tables(folder, f"{kind}-*-{slug}.csv")

    parts = [
        *bandwidth(cells),
        *sizes(cells),
        *peers(cells),
        *layers(tables("block")),
        *epilogues(tables("epilogue")),
    ]
    return "\n".join([f"**{title}**\n", *parts])
