"""``python -m tests.ptx_on_cpu.error_table``: which results depend on the special function unit.

Each column counts the misrounded results among 65,536, at most: without errors, with all
combinations of the largest documented errors, with random ones, and with multiples of the largest.
A gate with 0 in the first three does not depend on the unit.
"""

from itertools import product

import torch
from rich.console import Console
from rich.table import Table

from tests.devices import PTX, kernels_for
from tests.oracles import oracle, sweeps
from tests.oracles.oracle import GATES
from tests.oracles.sweeps import ORDERS
from tests.ptx_on_cpu import Error, special_function_unit

SCALES = (4, 16, 64, 256)


def misrounded(
    backend: str, gate: str, order: int, dtype: torch.dtype, units: list[tuple[float, ...]]
) -> int:
    """The largest number for any of these units."""
    x = oracle.every_16_bit_input(dtype)
    counts = []
    for unit in units:
        with special_function_unit(*unit), kernels_for(backend):
            y = oracle.evaluate(gate, order, x.clone())
        counts.append(sweeps.misrounded(gate, order, dtype, y).numel())
    return max(counts)


def extremes(scale: float) -> list[tuple[float, ...]]:
    errors = product([Error.NONE, Error.UP, Error.DOWN], repeat=2)
    return [(*pair, 0, scale) for pair in errors]


def main() -> None:
    columns = {
        "exact": [(Error.NONE, Error.NONE)],
        "extremes": extremes(1),
        "random": [(Error.RANDOM, Error.RANDOM, seed) for seed in range(16)],
        **{f"{scale}x": extremes(scale) for scale in SCALES},
    }
    table = Table("kernels", "gate", "order", "dtype", *columns)
    for backend, gate, order, dtype in product(PTX, GATES, ORDERS, sweeps.HALF):
        counts = [misrounded(backend, gate, order, dtype, units) for units in columns.values()]
        name = str(dtype).removeprefix("torch.")
        table.add_row(backend, gate, ORDERS[order], name, *map(str, counts))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
