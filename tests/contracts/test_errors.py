"""Bad input: a Python exception that names the operator and the argument, by every route."""

import re
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.table import PUBLIC
from gelu_kernels.operators.types import PublicOperator
from tests.calls import CALLS, CORE_CALLS, PUBLIC_CALLS, Call
from tests.contracts.bad_inputs import SHAPE, Bad, bad_inputs
from tests.devices import BACKENDS, kernels_for

CASES = [(call, argument, bad) for call in CALLS for argument, bad in bad_inputs(call)]
FIRST = list(
    {(call, argument): (call, argument, bad) for call, argument, bad in CASES[::-1]}.values()
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),  # deprecated in torch 2.13
]


def with_bad(call: Call, argument: str, bad: Bad, device: str = "cpu") -> list[Tensor]:
    tensors = call.inputs(SHAPE, torch.ones)
    given = dict(zip(call.tensors, tensors, strict=True))
    given[argument] = bad.make(given[argument])
    return [t if t.is_meta else t.to(device) for t in given.values()]


def expected(call: Call, argument: str, bad: Bad) -> dict:
    # A core operator that is made of another may speak of that one.
    op = f"gelu_kernels::{call.op.name.removesuffix('_bias').removesuffix('_weight')}"
    if bad.is_dispatched and not isinstance(call.op, PublicOperator):
        return {"expected_exception": (NotImplementedError, bad.error), "match": op}
    message = f"{op}(_bias|_weight)?: {bad.about(argument)}"
    return {"expected_exception": bad.error, "match": message}


def ids(value: object) -> str:
    return str(value)


@pytest.mark.parametrize("call, argument, bad", CASES, ids=ids)
def test_bad_input(call: Call, argument: str, bad: Bad) -> None:
    tensors = with_bad(call, argument, bad)
    for route in (call, call.through_torch):
        for mode in (nullcontext, torch.no_grad, torch.inference_mode):
            with mode(), pytest.raises(**expected(call, argument, bad)):
                route(*tensors)
        recorded = [
            t.clone().requires_grad_() if t.is_floating_point() and not t.is_sparse else t
            for t in tensors
        ]
        with pytest.raises(**expected(call, argument, bad)):
            route(*recorded)


@pytest.mark.parametrize("call, argument, bad", [c for c in CASES if c[2].has_meta], ids=ids)
def test_bad_input_on_meta(call: Call, argument: str, bad: Bad) -> None:
    with pytest.raises(**expected(call, argument, bad)):
        call(*with_bad(call, argument, bad, "meta"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call, argument, bad", FIRST, ids=ids)
def test_bad_input_on_every_backend(call: Call, argument: str, bad: Bad, backend: str) -> None:
    with kernels_for(backend) as device:
        tensors = with_bad(call, argument, bad, device)
        if device == "cuda" and not bad.has_meta:
            call(*tensors)  # to see the value, it would have to wait for the GPU
        else:
            with pytest.raises(**expected(call, argument, bad)):
                call(*tensors)


@pytest.mark.parametrize("call, argument, bad", FIRST, ids=ids)
def test_bad_input_under_vmap(call: Call, argument: str, bad: Bad) -> None:
    if call.op.family == "gate" and call in CORE_CALLS and "bias" in call.tensors:
        pytest.skip("the sum with a batched bias is PyTorch's, and so are its errors")
    tensors = with_bad(call, argument, bad)
    dims = [0 if t.is_floating_point() or name == argument else None for name, t in
            zip(call.tensors, tensors, strict=True)]  # fmt: skip
    batched = [t if d is None else torch.stack([t] * 2) for t, d in zip(tensors, dims, strict=True)]
    without_sizes = replace(bad, message=bad.message.partition(r", \[")[0])
    with pytest.raises(**expected(call, argument, without_sizes)):
        torch.vmap(call, tuple(dims), randomness="same")(*batched)


@pytest.mark.parametrize("call, argument, bad", FIRST, ids=ids)
def test_bad_input_under_compile(call: Call, argument: str, bad: Bad) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(call.operator(), fullgraph=True, backend="eager")
    message = expected(call, argument, bad)["match"]
    with pytest.raises(Exception, match=message):  # dynamo's own, around ours
        compiled(*with_bad(call, argument, bad))


@pytest.mark.parametrize("call", [c for c in PUBLIC_CALLS if len(c.tensors) > 1], ids=str)
def test_autocast_casts_no_integers(call: Call) -> None:
    first, *others = call.inputs(SHAPE, torch.ones)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TypeError, match=f"{call.op.name}: .* must have the dtype of x"),
    ):
        call(first, *(t.int() for t in others))


@pytest.mark.parametrize("gate", ["", "None", "Normal", "erf", "norm\0al", "é"])
@pytest.mark.parametrize("call", [c for c in CALLS if c.takes_gate], ids=str)
def test_unknown_gate(call: Call, gate: str) -> None:
    tensors = call.inputs(SHAPE, torch.ones)
    recorded = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
    for route in (call, call.through_torch):
        for arguments in (tensors, recorded):
            with pytest.raises(ValueError, match=f"gelu_kernels::{names_of(call)}: ") as caught:
                route(*arguments, gate=gate)
            message = str(caught.value)
            keyword = re.search(": (gate|approximate) must be one of", message)[1]
            names = [call.selected(keyword, gate)[keyword] for gate in call.gates]
            assert all(f"'{name}'" in message for name in names if name)
            assert f"got '{gate.partition(chr(0))[0]}" in message


def names_of(call: Call) -> str:
    """The operator's or its functions'."""
    return f"({'|'.join([call.op.name, *getattr(call.op, 'functions', ())])})"


@pytest.mark.parametrize("bad", [1, 1.0, [1.0], "x", object()], ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_no_tensor(call: Call, bad: object) -> None:
    for place, name in enumerate(call.tensors):
        if name in ("loc", "scale") and isinstance(bad, float | int) and call.op in PUBLIC:
            continue  # the function takes numbers
        tensors: list = call.inputs(SHAPE, torch.ones)
        tensors[place] = bad
        for route in (call, call.through_torch):
            with pytest.raises((TypeError, ValueError, RuntimeError), match=names_of(call)):
                route(*tensors)


@pytest.mark.parametrize("gate", [None, 1, ["none"]], ids=repr)
@pytest.mark.parametrize("call", [c for c in CALLS if c.takes_gate], ids=str)
def test_gate_that_is_no_string(call: Call, gate: object) -> None:
    for route in (call, call.through_torch):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=names_of(call)):
            route(*call.inputs(SHAPE, torch.ones), gate=gate)
