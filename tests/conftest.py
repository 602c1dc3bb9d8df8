"""Fixtures that all tests share."""

from collections.abc import Iterator
from contextlib import contextmanager

import cuda_on_cpu
import oracle
import pytest
import torch

DEVICES = ["cpu", "cuda_on_cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@contextmanager
def kernels_for(device: str) -> Iterator[str]:
    """The torch device of the tensors that these kernels take."""
    if device == "cuda_on_cpu":
        with cuda_on_cpu.enabled():
            yield "cpu"
    else:
        yield device


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels_for(request.param) as device:
        yield device


@pytest.fixture(params=oracle.GATES)
def gate(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
