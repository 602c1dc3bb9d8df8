"""``compute-sanitizer python tests/sanitize.py``: every operator that has a kernel, over tensors
that end raggedly, begin misaligned or lie strided.

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is an allocation of its own, and what reaches
beyond its end is caught. ``--overrun`` does that, to show that it is.
"""

import argparse
from collections.abc import Callable, Iterator

import torch
from every_operator import every_operator, ops
from torch import Tensor

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1), (3, 7), (67, 33), (2, 257), (67, 264), (1, 4099), (259, 8200)]
LAYOUTS: dict[str, Callable[[Callable[..., Tensor], int, int], Tensor]] = {
    "contiguous": lambda new, rows, columns: new(rows, columns),
    "half": lambda new, rows, columns: new(rows, 2 * columns).chunk(2, -1)[1],
    "transposed": lambda new, rows, columns: new(columns, rows).t(),
    "misaligned": lambda new, rows, columns: new(rows * columns + 1)[1:].view(rows, columns),
    "one row": lambda new, rows, columns: new(columns).expand(rows, columns),
}


def tensors(device: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """dy, x and bias."""
    for dtype in DTYPES:

        def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            # Made on the CPU: the fewer other kernels, the shorter this takes.
            return torch.randn(shape).to(dtype).to(device)

        for rows, columns in SHAPES:
            for layout in LAYOUTS.values():
                x = layout(new, rows, columns)
                yield layout(new, rows, columns), x, new(columns)
                yield new().expand_as(x), x, new(2 * columns)[1::2]


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
    ops.gate_forward(torch.as_tensor(Overlong(x), device="cuda"), None, "normal")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", help="meta computes nothing")
    parser.add_argument("--overrun", action="store_true", help="read beyond the end of a tensor")
    arguments = parser.parse_args()
    if arguments.overrun:
        overrun()
    else:
        for dy, x, bias in tensors(arguments.device):
            # The loops are the same for all gates.
            for _ in every_operator(dy, dy, x, bias, "normal"):
                pass
    if arguments.device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
