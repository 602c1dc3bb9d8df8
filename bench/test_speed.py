"""``python -m bench`` for pytest-benchmark, which keeps and compares runs. Times our operators and
eager PyTorch's on one thread.

``pytest bench --benchmark-autosave``, then ``pytest bench --benchmark-compare``.
"""

from collections.abc import Iterator
from itertools import product

import pytest
import torch

from bench.check import checker
from bench.measure import one_dnn
from bench.operators import GATES, OPERATORS, is_measured
from bench.sides import Side, eager, ours
from bench.workloads import PASSES, Inputs, Workload, make_inputs

CACHED, TINY = 2**18, 16  # elements
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")

SIDES = {"gelu_kernels": ours, "eager": eager}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(benchmark, workload: Workload, label: str, name: str) -> None:
    side: Side = SIDES[name](workload.op, workload.gate)
    inputs: Inputs = make_inputs(workload, "cpu")
    benchmark.group = f"{workload.op} {label} {workload.gate} {workload.dtype} {workload.elements}"
    benchmark.name = name
    with one_dnn(workload):
        checker(workload, inputs)(label, side)
        benchmark(side.call(label, inputs))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("label", PASSES)
@pytest.mark.parametrize(
    ("op", "gate"), [cell for cell in product(OPERATORS, GATES) if is_measured(*cell)]
)
def test_throughput(benchmark, op: str, label: str, gate: str, dtype: str, side: str) -> None:
    run(benchmark, Workload(op, gate, dtype, CACHED), label, side)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("label", PASSES)
def test_overhead(benchmark, label: str, side: str) -> None:
    run(benchmark, Workload("gelu", "normal", "float32", TINY), label, side)
