"""What the tests of the backends' bits share: their cases, and the comparison with the CPU."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor

from tests import bits
from tests.calls import CORE_CALLS, DTYPES, Call, normal
from tests.devices import BACKENDS, kernels_for
from tests.ptx_on_cpu import cuda

Make = Callable[..., Tensor]
Build = Callable[[str], list[Tensor]]  # the tensors of a call on a device, the same ones each time
IsQuick = Callable[..., bool]


def every(*case: object) -> bool:
    return True


def none(*case: object) -> bool:
    return False


def on_backends(
    cases: Iterable[tuple], quick: IsQuick, triton: IsQuick, backends: Sequence = BACKENDS
) -> list:
    """The cases on each backend; slow, unless `quick`, or for Triton's PTX `triton`, holds."""
    found = []
    for backend, case in product(backends, list(cases)):
        marks, name = (), backend
        if not isinstance(backend, str):
            marks, name = backend.marks, backend.values[0]
        is_quick = triton if name == "triton_ptx" else quick
        slow = () if is_quick(*case) else (pytest.mark.slow,)
        found.append(pytest.param(name, *case, marks=(*marks, *slow)))
    return found


def each_family(
    cases: Iterable[tuple], quick: IsQuick, triton: IsQuick = none, backends: Sequence = BACKENDS
) -> pytest.MarkDecorator:
    """A test for each backend and family of operators. It takes its `cases`, which begin with a
    call, and another test takes those that are slow."""
    groups = defaultdict(list)
    marks = {}
    for x in on_backends(cases, quick, triton, backends):
        backend, *case = x.values
        slow = ["slow"] * any(mark.name == "slow" for mark in x.marks)
        name = "-".join([backend, case[0].op.family, *slow])
        groups[name].append(case)
        marks[name] = x.marks
    return pytest.mark.parametrize(
        "backend, cases",
        [
            pytest.param(name.partition("-")[0], found, marks=marks[name], id=name)
            for name, found in groups.items()
        ],
    )


TRITON_PTX = [backend for backend in BACKENDS if backend == "triton_ptx"]  # without a GPU


def needs_triton_ptx() -> None:
    if not TRITON_PTX:
        pytest.skip("needs a machine without a GPU")


def check(backend: str, cases: Iterable[tuple[Call, str, Build, object]]) -> None:
    """Each is a call, a gate, its tensors, and what a failure is named by."""
    failures = []
    for call, gate, build, name in cases:
        try:
            found = differences(backend, call, gate, build)
        except RuntimeError as error:
            found = [str(error)]
        failures += [f"{call}, {gate}, {name}: {text}" for text in found]
    assert not failures, "\n".join(failures)


def differences(backend: str, call: Call, gate: str, build: Build) -> list[str]:
    """Between the backend's results and the CPU's."""
    tensors = build("cpu")
    expected = call(*tensors, gate=gate)
    is_cuda = backend.startswith("cuda_ptx")
    started = cuda.launches() if is_cuda else 0
    with kernels_for(backend) as device:
        results = call(*(tensors if device == "cpu" else build(device)), gate=gate)
    found = []
    if is_cuda and expected[0].numel() and cuda.launches() == started:
        found.append("no kernel was launched")
    for name, result, e in zip(call.op.outputs, results, expected, strict=True):
        if result.stride() != e.stride():
            found.append(f"{name} has the strides {result.stride()} and not {e.stride()}")
        if differ := bits.differing(result.cpu(), e):
            found.append(f"{name}: {differ} of {e.numel()} differ")
    return found


def moved(tensors: list[Tensor]) -> Build:
    """Contiguous tensors."""
    return lambda device: [t.to(device) for t in tensors]


def laid_out(make_tensors: Callable[[Make], list[Tensor]], dtype: torch.dtype) -> Build:
    """Tensors whose strides a copy to another device would lose."""

    def build(device: str) -> list[Tensor]:
        torch.default_generator.manual_seed(1)  # torch.manual_seed takes 1 ms
        return make_tensors(lambda *shape: (3 * normal(*shape)).to(device, dtype))

    return build


# Halves of one tensor and numbers in the place of vectors go through the code of other calls, with
# other strides or constants.
COVERED = "halves", "numbers"


@cache
def is_covered(call: Call) -> bool:
    return any(name in str(call) for name in COVERED)


NUMBERS = [(c, gate, dtype) for c in CORE_CALLS for gate in c.gates for dtype in DTYPES]


def is_first(call: Call, gate: str) -> bool:
    return gate == call.gates[0]


# Each function of a gate is in one of these: value, derivatives, F, and the numbers of a mask.
FUNCTIONS = (
    "gate_forward",
    "gate_double_backward",
    "glu_backward",
    "cdf_gate_backward",
    "soi_forward",
)


def few_numbers(call: Call, gate: str, dtype: torch.dtype) -> bool:
    """Each operator in all dtypes, and for all gates in bfloat16; each function of a gate for all
    in float16 as well."""
    is_function = dtype == torch.float16 and str(call) in FUNCTIONS
    return is_first(call, gate) or dtype == torch.bfloat16 or is_function


def fewer_numbers(call: Call, gate: str, dtype: torch.dtype) -> bool:
    """Each operator once; for the other gates and dtypes, those with each function of a gate."""
    if dtype == torch.bfloat16:
        return is_first(call, gate) or str(call) in FUNCTIONS
    others = "gate_backward_bias", "gate_dropout_forward, bias", "coded_forward"
    return is_first(call, gate) and str(call) in (*FUNCTIONS, *others, "coded_backward_bias")


# Every operator, and every function of every gate.
EACH_FUNCTION = [case for case in NUMBERS if is_first(*case[:2]) or str(case[0]) in FUNCTIONS]


def has_sums(call: Call) -> bool:
    """Over columns, in two stages."""
    return not {"dbias", "dloc", "dscale"}.isdisjoint(call.op.outputs)
