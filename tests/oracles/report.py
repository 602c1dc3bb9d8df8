"""``python -m tests.oracles.report``: the measured errors as a table; ``--json`` as data."""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.devices import kernels_for
from tests.oracles import oracle, sweeps
from tests.oracles.oracle import GATES
from tests.oracles.sweeps import ORDERS

HEADER = """\
gate           order       misrounded of 65,536     largest error in ULP
                           float16   bfloat16       float32   float64"""


def errors(device: str, gate: str, order: int) -> dict[str, object]:
    """How many 16-bit inputs are misrounded, and the largest errors in 32 and 64 bits."""
    with kernels_for(device) as place:
        return errors_there(place, gate, order)


def errors_there(device: str, gate: str, order: int) -> dict[str, object]:
    torch.manual_seed(0)
    misrounded = {}
    for dtype in sweeps.HALF:
        x = oracle.every_16_bit_input(dtype).to(device)
        y = oracle.evaluate(gate, order, x)
        misrounded[str(dtype)] = sweeps.misrounded(gate, order, dtype, y).numel()
    largest = {
        str(torch.float32): sweeps.float32_sweep(gate, order, device),
        str(torch.float64): sweeps.mpmath_sweep(gate, order, torch.float64, device),
    }
    return {
        "gate": gate,
        "order": ORDERS[order],
        "misrounded": misrounded,
        "ulp": {dtype: round(found.error, 3) for dtype, found in largest.items()},
        "largest": {dtype: str(found) for dtype, found in largest.items()},
    }


def line(row: dict[str, object]) -> str:
    counts = "".join(f"{count:10}" for count in row["misrounded"].values())
    largest = "".join(f"{error:10.2f}" for error in row["ulp"].values())
    return f"{row['gate']:15}{row['order']:10}{counts}     {largest}"


def report(device: str) -> dict[str, object]:
    """Prints as it goes. The time is spent on the oracles, in one process for each line."""
    print(f"device: {device}\n{HEADER}")
    rows = []
    cases = [(device, gate, order) for gate, order in product(GATES, ORDERS)]
    workers = min(len(cases), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for row in pool.map(errors, *zip(*cases, strict=True)):
            rows.append(row)
            print(line(row), flush=True)
    return {"device": device, "errors": rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="a file to write the same to")
    arguments = parser.parse_args()
    found = report(arguments.device)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
