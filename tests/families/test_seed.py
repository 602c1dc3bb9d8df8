"""Kernels take a seed by its address on the device or, from the CPU, by its value."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gelu_kernels.triton_kernels import seed as triton_seed
from tests.backends.same_bits import Build, check
from tests.calls import CORE_CALLS, DTYPES, Call, normal
from tests.cases import each
from tests.devices import BACKENDS
from tests.ptx_on_cpu import cuda

TAKE_A_SEED = [call for call in CORE_CALLS if "seed" in call.tensors]


@contextmanager
def seeds_of_the_cpu(backend: str) -> Iterator[None]:
    """Where all tensors are on the CPU, a seed is taken as if the others were on a GPU."""
    if backend == "cuda_ptx":
        with cuda.seeds_by_value():
            yield
    elif backend == "triton_ptx":
        with mock.patch.object(triton_seed, "is_by_value", lambda *_: True):
            yield
    else:
        yield


def with_seed_of_cpu(call: Call, dtype: torch.dtype, *shape: int) -> Build:
    made = call.inputs(shape, lambda *s: 2 * normal(*s, dtype=dtype))

    def build(device: str) -> list[Tensor]:
        named = dict(zip(call.tensors, made, strict=True))
        return [t if name == "seed" else t.to(device) for name, t in named.items()]

    return build


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_take_a_seed_of_the_cpu(backend: str) -> None:
    """Rows of vectors, rows of others, and less than an octet."""
    shapes = (64, 512), (9, 34), (5,)
    with seeds_of_the_cpu(backend):
        check(
            backend,
            (
                (call, call.gates[0], with_seed_of_cpu(call, dtype, *shape), (dtype, shape))
                for call in TAKE_A_SEED
                for dtype in DTYPES
                for shape in shapes
            ),
        )


@each(call=TAKE_A_SEED, device=["meta", "cuda"])
def test_tensors_without_data_take_a_seed_of_the_cpu(call: Call, device: str) -> None:
    with FakeTensorMode():
        made = call.inputs((4, 8), lambda *s: torch.ones(s, device=device))
        given = dict(zip(call.tensors, made, strict=True))
        given["seed"] = torch.tensor(1)
        assert all(t.device.type == device for t in call(*given.values()))
