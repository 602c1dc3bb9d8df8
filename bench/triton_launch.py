"""``python -m bench.triton_launch``: the host's cost of calling a Triton kernel.

Triton's launcher starts compiled kernels over the tests' stub of NVIDIA's driver library, so that
no GPU is needed. A real driver takes some microseconds more, the same for each of these calls.
"""

from collections.abc import Callable

import torch

from bench import timing
from gelu_kernels import backend
from gelu_kernels.triton_kernels import elementwise, launch
from gelu_kernels.triton_kernels.gate import kernels
from tests import stub_driver

ops = torch.ops.gelu_kernels


def empty(x: torch.Tensor, bias: torch.Tensor | None, gate: str) -> torch.Tensor:
    return x


def calls() -> dict[str, Callable[[], object]]:
    """All but the last start the same kernel. By Triton, a caller also allocates the result."""
    x = torch.zeros(16)
    y = torch.empty_like(x)
    starts = []

    def keep(*arguments: object) -> None:
        starts.append(arguments)
        launch.launch(*arguments)

    elementwise.launch, original = keep, elementwise.launch
    ops.gate_forward(x, None, "normal")
    elementwise.launch = original
    (arguments,) = starts
    _, key, specialize, grid, _, integers = arguments
    s = specialize(key)
    constants = launch._constants(s, "cuda")
    type(constants[1]).__hash__ = object.__hash__  # Triton's way looks them up at every call
    options = {"num_warps": 8, "enable_fp_fusion": False}

    def by_triton() -> None:
        kernels.map_rows[grid](y, None, None, x, None, *integers, *constants, **options)

    library = torch.library.Library("gelu_kernels_bench", "DEF")
    library.define("empty(Tensor x, Tensor? bias, str gate) -> Tensor")
    library.impl("empty", empty, "CPU")
    gate_forward = backend.TRITON["gate_forward"]
    nothing = torch.ops.gelu_kernels_bench.empty
    return {
        "our operator, by torch.ops": lambda: ops.gate_forward(x, None, "normal"),
        "our operator, without the dispatcher": lambda: gate_forward(x, None, "normal"),
        "our launch()": lambda: launch.launch(*arguments),
        "Triton's kernel[grid]()": by_triton,
        "an empty operator in Python": lambda _library=library: nothing(x, None, "normal"),
    }


def main() -> None:
    import triton

    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, triton {triton.__version__}")
    print("Microseconds of the host for 16 elements, median, without the driver's own time:\n")
    with stub_driver.enabled(record=False):
        sides = {title: [call] for title, call in calls().items()}
        for title, (_, median, _) in timing.quartiles(sides, timing.cpu_clock).items():
            print(f"{title:38} {median:6.2f}")
        kernels.map_rows.device_caches.clear()  # while their driver is there


if __name__ == "__main__":
    main()
