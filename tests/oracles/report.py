"""``python -m tests.oracles.report``: the measured errors as a table."""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

import torch

from tests.devices import kernels_for
from tests.oracles import oracle, sweeps
from tests.oracles.oracle import GATES
from tests.oracles.sweeps import ORDERS

HEADER = """\
gate           order       misrounded of 65,536     largest error in ULP
                           float16   bfloat16       float32   float64"""


def line(device: str, gate: str, order: int) -> str:
    """How many 16-bit inputs are misrounded, and the largest errors in 32 and 64 bits."""
    torch.manual_seed(0)
    with kernels_for(device) as place:
        counts = []
        for dtype in sweeps.HALF:
            y = oracle.evaluate(gate, order, oracle.every_16_bit_input(dtype).to(place))
            counts.append(sweeps.misrounded(gate, order, dtype, y).numel())
        largest = [
            sweeps.float32_sweep(gate, order, place),
            sweeps.mpmath_sweep(gate, order, torch.float64, place),
        ]
    misrounded = "".join(f"{count:10}" for count in counts)
    errors = "".join(f"{found.error:10.2f}" for found in largest)
    return f"{gate:15}{ORDERS[order]:10}{misrounded}     {errors}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print(f"device: {device}\n{HEADER}")
    cases = [(device, gate, order) for gate, order in product(GATES, ORDERS)]
    workers = min(len(cases), os.cpu_count() or 1)
    # The time is spent on the oracles, in one process for each line.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for text in pool.map(line, *zip(*cases, strict=True)):
            print(text, flush=True)


if __name__ == "__main__":
    main()
