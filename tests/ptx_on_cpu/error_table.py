"""``cd tests; python -m ptx_on_cpu.error_table``: 16-bit results that errors of the unit turn.

Each column has the most of 65,536 that are misrounded, for errors of zero, for all combinations of
the largest errors, and for random ones; then the same for errors of so many times their bounds.
"""

from itertools import product

import oracle
import sweeps
import torch
from oracle import GATES
from sweeps import ORDERS

from ptx_on_cpu import Error, cuda, special_function_unit

SCALES = (4, 16, 64, 256)


def misrounded(gate: str, order: int, dtype: torch.dtype, units: list[tuple[float, ...]]) -> int:
    """The most for any of these units."""
    x = oracle.every_16_bit_input(dtype)
    counts = []
    for unit in units:
        with special_function_unit(*unit), cuda.enabled():
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
    print(f"{'gate':15}{'order':12}{'dtype':10}", *(f"{name:>9}" for name in columns))
    for gate, order, dtype in product(GATES, ORDERS, sweeps.HALF):
        counts = [misrounded(gate, order, dtype, units) for units in columns.values()]
        name = str(dtype).removeprefix("torch.")
        print(f"{gate:15}{ORDERS[order]:12}{name:10}", *(f"{n:9}" for n in counts), flush=True)


if __name__ == "__main__":
    main()
