"""``compute-sanitizer python -m tests.sanitizers.sanitize``: every operator that has a kernel, over
tensors of ragged sizes, misaligned and strided. ``--device cpu`` is for a library compiled with
g++'s sanitizers (test_sanitizers.py).

Every tensor is an allocation of its own, on a GPU with PYTORCH_NO_CUDA_MEMORY_CACHING=1, and what
reaches beyond its end is caught. ``--overrun`` does that, to show that it is.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import cycle, product

import torch
from torch import Tensor

from tests import layouts
from tests.calls import CORE_CALLS, DTYPES, SEED, Call
from tests.layouts import LAYOUTS, arrangements

SHAPES = [(1, 1), (3, 7), (67, 33), (2, 257), (67, 264), (1, 4099), (259, 8200)]
CHOSEN = ["contiguous", "second half", "transposed", "misaligned by 1", "one row"]
Case = tuple[tuple[int, ...], str, torch.dtype]


def large_cases() -> Iterator[Case]:
    """All dtypes with all shapes and with all layouts, but not with each pair of them: an H200 did
    not end that in a minute."""
    for (shape, layout), dtype in zip(product(SHAPES, CHOSEN), cycle(DTYPES), strict=False):
        yield shape, layout, dtype


def calls(cases: Iterable[Case], device: str) -> Iterator[tuple[Call, list[Tensor]]]:
    for shape, layout, dtype in cases:
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


def any_numbers() -> None:
    """Of every gate: infinities, NaNs and all other inputs of 16 bits."""
    from tests.bits import of_any_numbers

    for call, dtype in product(CORE_CALLS, DTYPES):
        for gate in call.gates:
            call(*of_any_numbers(call, dtype), gate=gate)


def composed_operators() -> None:
    """Those in eight bits, and through autograd, forward and backward, those that users call."""
    from tests.everything import Everything, everything
    from tests.quantized.test_quantized import every_result

    for dtype in (torch.bfloat16, torch.float32):
        every_result(dtype)
    Everything("cpu").check(everything)


def on_threads() -> None:
    """Calls that divide their work among threads, and calls from many threads at once."""
    from tests.processes.test_threads import test_calls_from_many_threads
    from tests.quantized.test_quantized import every_result

    for threads in (3, 16):
        torch.set_num_threads(threads)
        for call, dtype in product(CORE_CALLS, (torch.float64, torch.bfloat16)):
            call(*call.inputs((401, 577), lambda *s, dtype=dtype: torch.randn(s).to(dtype)))
        every_result(torch.float32)
    test_calls_from_many_threads("cpu")


class Overlong:
    """Claims one float more than there is."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.__cuda_array_interface__ = self.__array_interface__ = {
            "version": 2,
            "shape": (x.numel() + 1,),
            "typestr": "<f4",
            "data": (x.data_ptr(), False),
        }


def overlong(device: str) -> Tensor:
    import numpy as np

    one_more = Overlong(torch.ones(1000, device=device))
    if device == "cpu":
        return torch.from_numpy(np.asarray(one_more))
    return torch.as_tensor(one_more, device=device)


def overrun(device: str) -> None:
    torch.ops.gelu_kernels.gate_forward(overlong(device), None, "normal")


def every_kernel(device: str) -> None:
    cases = [*large_cases()]
    if device == "cpu":
        cases += product(layouts.SHAPES, LAYOUTS, DTYPES)
    for call, tensors in calls(cases, device):  # the loops are the same for all gates
        call(*tensors)
    parts(device)
    if device == "cpu":
        any_numbers()
        composed_operators()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", help="meta computes nothing")
    parser.add_argument("--overrun", action="store_true", help="read beyond the end of a tensor")
    parser.add_argument("--races", action="store_true", help="calls on many threads of the CPU")
    arguments = parser.parse_args()
    device = arguments.device
    if arguments.overrun:
        overrun(device)
    elif arguments.races:
        on_threads()
    else:
        every_kernel(device)
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
