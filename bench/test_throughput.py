"""One thread, 2^18 elements: time for a pass through the data, ours beside PyTorch's."""

import pytest

from bench import soi
from bench.cases import Case, throughput


@pytest.mark.parametrize("side", ["ours", "torch"])
@pytest.mark.parametrize(
    "case", [*throughput(), *soi.throughput()], ids=lambda case: " ".join(case.title.split())
)
def test_throughput(benchmark, case: Case, side: str) -> None:
    benchmark.group = case.title
    benchmark.name = side
    benchmark(case.calls[side])
