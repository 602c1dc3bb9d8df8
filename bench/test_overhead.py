"""One thread, 16 floats: the cost of a call, ours beside PyTorch's."""

import pytest
import torch

from bench.cases import Case, overhead


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
@pytest.mark.parametrize("side", ["ours", "torch"])
@pytest.mark.parametrize("case", list(overhead()), ids=lambda case: case.title)
def test_overhead(benchmark, case: Case, side: str) -> None:
    benchmark.group = f"16 floats, {case.title}"
    benchmark.name = side
    with torch.backends.mkldnn.flags(enabled=False):
        benchmark(case.calls[side])
