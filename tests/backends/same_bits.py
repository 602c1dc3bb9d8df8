"""What the tests of the backends' bits share: cases, and the comparison with the CPU's."""

from collections.abc import Callable, Iterable
from itertools import product

import pytest
import torch
from torch import Tensor

from tests import bits
from tests.calls import CORE_CALLS, DTYPES, Call, normal
from tests.devices import BACKENDS, kernels_for
from tests.ptx_on_cpu import cuda

Make = Callable[..., Tensor]


def on_backends(
    cases: Iterable[tuple], quick: Callable[..., bool], triton: Callable[..., bool]
) -> list:
    """The cases on each backend; slow, unless they are quick there or in Triton."""
    found = []
    for backend, case in product(BACKENDS, list(cases)):
        marks, name = (), backend
        if not isinstance(backend, str):
            marks, name = backend.marks, backend.values[0]
        is_quick = triton if name == "triton_ptx" else quick
        slow = () if is_quick(*case) else (pytest.mark.slow,)
        found.append(pytest.param(name, *case, marks=(*marks, *slow)))
    return found


def every(*case: object) -> bool:
    return True


def none(*case: object) -> bool:
    return False


def check(backend: str, call: Call, build: Callable[[str], list[Tensor]], gate: str = "") -> None:
    """`build` makes the tensors on a device, the same numbers each time."""
    gate = gate or call.gates[0]
    torch.manual_seed(1)
    expected = call(*build("cpu"), gate=gate)
    started = cuda.launches() if backend.startswith("cuda_ptx") else 0
    with kernels_for(backend) as device:
        torch.manual_seed(1)
        results = call(*build(device), gate=gate)
    if backend.startswith("cuda_ptx") and expected[0].numel():
        assert cuda.launches() > started
    for name, result, e in zip(call.op.outputs, results, expected, strict=True):
        assert result.stride() == e.stride(), name
        differ = bits.differing(result.cpu(), e)
        assert differ == 0, f"{name}: {differ} of {e.numel()} differ"


def needs_triton_ptx() -> None:
    if "triton_ptx" not in BACKENDS:
        pytest.skip("needs a machine without a GPU")


def maker(dtype: torch.dtype, device: str) -> Make:
    return lambda *shape: (3 * normal(*shape)).to(device, dtype)


# Halves of one tensor, numbers in the place of vectors and 4 bits in the place of 8 go through
# functions of Triton's that other calls cover: CI leaves them to the slow tests.
COVERED = "halves", "numbers", "4 bits"
TRITON_CALLS = [
    pytest.param(call, marks=pytest.mark.slow if any(name in str(call) for name in COVERED) else ())
    for call in CORE_CALLS
]

NUMBERS = [(c, gate, dtype) for c in CORE_CALLS for gate in c.gates for dtype in DTYPES]


def is_first(call: Call, gate: str) -> bool:
    return gate == call.gates[0]


def few_numbers(call: Call, gate: str, dtype: torch.dtype) -> bool:
    """All of 16 bits, and of the wider dtypes one gate."""
    return dtype.itemsize == 2 or is_first(call, gate)


def fewer_numbers(call: Call, gate: str, dtype: torch.dtype) -> bool:
    """Each operator once; for the other gates and dtypes, those with each function of a gate."""
    functions = "gate_forward", "gate_double_backward", "glu_backward", "cdf_gate_backward"
    others = *functions, "soi_forward", "gate_backward_bias", "gate_dropout_forward, bias"
    if dtype == torch.bfloat16:
        return is_first(call, gate) or str(call) in (*functions, "soi_forward")
    return is_first(call, gate) and str(call) in (*others, "coded_forward", "coded_backward_bias")
