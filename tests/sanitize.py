"""``compute-sanitizer python tests/sanitize.py``: every operator that has a kernel, over tensors
that end raggedly, begin misaligned or lie strided.

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is an allocation of its own, and what reaches
beyond its end is caught. ``--overrun`` does that, to show that it is.
"""

import argparse
from collections.abc import Iterator
from itertools import cycle, product

import torch
from calls import CORE_CALLS, DTYPES, SEED, Call
from layouts import LAYOUTS, arrangements
from torch import Tensor

SHAPES = [(1, 1), (3, 7), (67, 33), (2, 257), (67, 264), (1, 4099), (259, 8200)]
CHOSEN = ["contiguous", "second half", "transposed", "misaligned by 1", "one row"]


def calls(device: str) -> Iterator[tuple[Call, list[Tensor]]]:
    """All dtypes with all shapes and with all layouts, but not with each pair of them: an H200 did
    not end that in a minute."""
    for (shape, layout), dtype in zip(product(SHAPES, CHOSEN), cycle(DTYPES), strict=False):
        print(shape, layout, dtype, flush=True)

        def make(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            # Made on the CPU: the fewer other kernels, the shorter this takes.
            return torch.randn(shape).to(dtype).to(device)

        for call in CORE_CALLS:
            yield call, next(arrangements(call, LAYOUTS[layout], shape, make))


def parts(device: str) -> None:
    """The SOI map of a part of a tensor with longer rows."""
    seed = torch.tensor(SEED, device=device)
    for dtype, (rows, columns) in product(DTYPES, SHAPES):
        x = torch.randn(rows, columns).to(dtype).to(device)
        bias = torch.randn(columns).to(dtype).to(device)
        place = {"offset": 3, "row_length": columns, "row_stride": columns + 5}
        torch.ops.gelu_kernels.soi_forward(x, bias, seed, "normal", **place)
        torch.ops.gelu_kernels.soi_cdf_forward(x, bias, bias.abs(), seed, "normal", **place)


class Overlong:
    """Claims one float more than there is."""

    def __init__(self, x: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "version": 2,
            "shape": (x.numel() + 1,),
            "typestr": "<f4",
            "data": (x.data_ptr(), False),
        }


def overrun() -> None:
    x = torch.ones(1000).cuda()
    torch.ops.gelu_kernels.gate_forward(torch.as_tensor(Overlong(x), device="cuda"), None, "normal")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", help="meta computes nothing")
    parser.add_argument("--overrun", action="store_true", help="read beyond the end of a tensor")
    arguments = parser.parse_args()
    if arguments.overrun:
        overrun()
    else:
        for call, tensors in calls(arguments.device):  # the loops are the same for all gates
            call(*tensors)
        parts(arguments.device)
    if arguments.device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
