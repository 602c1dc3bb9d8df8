"""Fixtures that all tests share."""

import oracle
import pytest
import torch

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=oracle.GATES)
def gate(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
