"""Bad input: a Python exception that names the function or operator and the argument, by every
route."""

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.table import PUBLIC
from gelu_kernels.operators.types import PublicOperator
from tests.calls import CALLS, CORE_CALLS, PUBLIC_CALLS, Call
from tests.cases import each
from tests.contracts.bad_inputs import SHAPE, Bad, bad_inputs
from tests.devices import BACKENDS, kernels_for

Case = tuple[Call, str, Bad]

CASES = [case for call in CALLS for case in bad_inputs(call)]
# One for each argument: where they are checked is the same for all that is wrong with it.
FIRST = list(
    {(call, argument): (call, argument, bad) for call, argument, bad in CASES[::-1]}.values()
)

SELECTED = [call for call in CALLS if call.takes_gate]
ANY_ERROR = (TypeError, ValueError, RuntimeError)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),  # deprecated in torch 2.13
]


def with_bad(call: Call, argument: str, bad: Bad, device: str = "cpu") -> list[Tensor]:
    tensors = call.inputs(SHAPE, torch.ones)
    given = dict(zip(call.tensors, tensors, strict=True))
    given[argument] = bad.make(given[argument])
    return [t if t.is_meta else t.to(device) for t in given.values()]


def by_function(call: Call) -> bool:
    return isinstance(call.op, PublicOperator)


def expected(call: Call, argument: str, bad: Bad, through_torch: bool = False) -> tuple:
    """The type of the exception, and its message."""
    about = bad.about(argument)
    if by_function(call) and not through_torch:
        about = re.sub(r"\bx\b", "input", about)
        return bad.error, rf"^({'|'.join(call.op.functions)})\(\): {about}"
    # A core operator that is made of another may speak of that one.
    op = f"gelu_kernels::{call.op.name.removesuffix('_bias').removesuffix('_weight')}"
    if bad.is_dispatched and not by_function(call):
        return (NotImplementedError, bad.error), op
    return bad.error, f"{op}(_bias|_weight)?: {about}"


def raises(*case: object, **route: bool) -> AbstractContextManager:
    error, message = expected(*case, **route)
    return pytest.raises(error, match=message)


def recorded(t: Tensor) -> Tensor:
    return t.clone().requires_grad_() if t.is_floating_point() and not t.is_sparse else t


@each(case=CASES)
def test_bad_input(case: Case) -> None:
    call, *_ = case
    tensors = with_bad(*case)
    for route in (call, call.through_torch):
        through_torch = route is not call
        for mode in (nullcontext, torch.no_grad, torch.inference_mode):
            with mode(), raises(*case, through_torch=through_torch):
                route(*tensors)
        with raises(*case, through_torch=through_torch):
            route(*map(recorded, tensors))


@each(case=[case for case in CASES if case[2].has_meta])
def test_bad_input_on_meta(case: Case) -> None:
    with raises(*case):
        case[0](*with_bad(*case, "meta"))


@pytest.mark.parametrize("backend", BACKENDS)
@each(case=FIRST)
def test_bad_input_on_every_backend(case: Case, backend: str) -> None:
    call, _, bad = case
    with kernels_for(backend) as device:
        tensors = with_bad(*case, device)
        if device == "cuda" and not bad.has_meta:
            call(*tensors)  # to see the value, it would have to wait for the GPU
        else:
            with raises(*case):
                call(*tensors)


@each(case=FIRST)
def test_bad_input_under_vmap(case: Case) -> None:
    call, argument, bad = case
    if call.op.family == "gate" and call in CORE_CALLS and "bias" in call.tensors:
        return  # the sum with a batched bias is PyTorch's, and so are its errors
    tensors, dims = with_bad(*case), []
    for place, (name, t) in enumerate(zip(call.tensors, tensors, strict=True)):
        is_batched = t.is_floating_point() or name == argument
        dims.append(0 if is_batched else None)
        tensors[place] = torch.stack([t] * 2) if is_batched else t
    without_sizes = replace(bad, message=bad.message.partition(r", \[")[0])
    with raises(call, argument, without_sizes):
        torch.vmap(call, tuple(dims), randomness="same")(*tensors)


@each(lambda case: case[0] not in PUBLIC_CALLS, case=FIRST)
def test_bad_input_under_compile(case: Case) -> None:
    """Dynamo calls the kernels for meta tensors, which test_bad_input_on_meta tries one by one."""
    torch._dynamo.reset()
    compiled = torch.compile(case[0].operator(), fullgraph=True, backend="eager")
    _, message = expected(*case, through_torch=True)
    with pytest.raises(Exception, match=message):  # dynamo's own, around ours
        compiled(*with_bad(*case))


@each(call=[call for call in PUBLIC_CALLS if len(call.tensors) > 1])
def test_autocast_casts_no_integers(call: Call) -> None:
    first, *others = call.inputs(SHAPE, torch.ones)
    message = rf"^({'|'.join(call.op.functions)})\(\): .* must have the dtype of input"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=message):
        call(first, *(t.int() for t in others))


def names_of(call: Call) -> str:
    """The operator's or its functions'."""
    functions = [rf"{name}\(\)" for name in getattr(call.op, "functions", ())]
    return f"({'|'.join([f'gelu_kernels::{call.op.name}', *functions])})"


@each(call=SELECTED, gate=["", "None", "Normal", "erf", "norm\0al", "é"])
def test_unknown_gate(call: Call, gate: str) -> None:
    tensors = call.inputs(SHAPE, torch.ones)
    for route in (call, call.through_torch):
        for arguments in (tensors, [*map(recorded, tensors)]):
            with pytest.raises(ValueError, match=f"^{names_of(call)}: ") as caught:
                route(*arguments, gate=gate)
            message = str(caught.value)
            keyword = re.search(": (gate|approximate) must be one of", message)[1]
            names = [call.selected(keyword, gate)[keyword] for gate in call.gates]
            assert all(f"'{name}'" in message for name in names if name)
            assert f"got '{gate.partition(chr(0))[0]}" in message


@each(call=SELECTED, gate=[None, 1, ["none"]])
def test_gate_that_is_no_string(call: Call, gate: object) -> None:
    for route in (call, call.through_torch):
        with pytest.raises(ANY_ERROR, match=names_of(call)):
            route(*call.inputs(SHAPE, torch.ones), gate=gate)


@each(call=CALLS, bad=[1, 1.0, [1.0], "x", object()])
def test_no_tensor(call: Call, bad: object) -> None:
    for place, name in enumerate(call.tensors):
        if name in ("loc", "scale") and isinstance(bad, float | int) and call.op in PUBLIC:
            continue  # the function takes numbers
        tensors: list = call.inputs(SHAPE, torch.ones)
        tensors[place] = bad
        for route in (call, call.through_torch):
            with pytest.raises(ANY_ERROR, match=names_of(call)):
                route(*tensors)
