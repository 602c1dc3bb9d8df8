"""``python tests/report.py``: the measured errors as a table, for the README."""

import test_accuracy
import test_rounding
import torch
from oracle import DERIVATIVE, GATES, VALUE


def main(device: str) -> None:
    rounded = test_rounding.all_results(device)
    print(f"device: {device}")
    print("gate           order       misrounded of 65,536     largest error in ULP")
    print("                           float16   bfloat16       float32   float64")
    for gate in GATES:
        for order, name in {VALUE: "value", DERIVATIVE: "derivative"}.items():
            half = [
                test_rounding.misrounded(rounded, gate, order, dtype).numel()
                for dtype in (torch.float16, torch.bfloat16)
            ]
            wide = [
                test_accuracy.float32_sweep(gate, order, device),
                test_accuracy.mpmath_sweep(gate, order, torch.float64, device),
            ]
            counts = "".join(f"{count:10}" for count in half)
            errors = "".join(f"{largest.error:10.2f}" for largest in wide)
            print(f"{gate:15}{name:10}{counts}     {errors}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    main("cuda" if torch.cuda.is_available() else "cpu")
