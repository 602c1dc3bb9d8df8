"""What the checks of the ranks share: meshes, tensors cut over them, and comparison with the whole.

Whole tensors are the same on all ranks. Each check compares what the ranks compute of their parts
with float64 of the whole: PyTorch's GELU, and soi_oracle.py for masks.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

from tests.calls import SEED
from tests.oracles import soi_oracle

R, P, S0, S1, S2 = Replicate(), Partial(), Shard(0), Shard(1), Shard(2)
SHAPE = (5, 6, 7)  # 4 ranks divide no dimension, and the last has nothing of the first

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


@cache
def mesh(*shape: int) -> DeviceMesh:
    names = ("dp", "tp")[-len(shape) :]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def line() -> DeviceMesh:
    return mesh(dist.get_world_size())


def grid() -> DeviceMesh:
    return mesh(2, dist.get_world_size() // 2)


def distributed(whole: Tensor, mesh: DeviceMesh, placements: list[Placement]) -> DTensor:
    """The tensor as placed. The parts of a pending sum differ from rank to rank."""
    for i, p in enumerate(placements):
        if p.is_partial():
            weights = [3.0, -1.0, 0.5, 0.25][: mesh.size(i)]
            weight = weights[mesh.get_local_rank(i)] / sum(weights)
            whole = whole * weight * (mesh.size(i) if p.is_partial("avg") else 1)
    placed = [R if p.is_partial() else p for p in placements]
    local = distribute_tensor(whole, mesh, placed, src_data_rank=None).to_local()
    return DTensor.from_local(
        local, mesh, placements, shape=whole.shape, stride=whole.stride()
    ).detach()


def of_columns(placements: Iterable[Placement]) -> list[Placement]:
    """Where a vector along the last of three dimensions lies, such as a bias."""
    return [S0 if p == S2 else R for p in placements]


def on_line(p: Placement, *whole: Tensor) -> list[DTensor]:
    """On all ranks in a line, each placed alike; vectors as the columns."""
    return [distributed(t, line(), of_columns([p]) if t.ndim == 1 else [p]) for t in whole]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def leaf(t: Tensor) -> Tensor:
    return t.detach().requires_grad_()


def assert_close(actual: Tensor | Sequence[Tensor], expected: Tensor | Sequence[Tensor]) -> None:
    """Up to the rounding of sums of some hundred terms in float64."""
    if not isinstance(actual, Tensor):
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other)
        return
    actual = actual.full_tensor() if isinstance(actual, DTensor) else actual
    error = (actual.detach() - expected.detach()).abs().max()
    assert error <= 1e-13 * max(expected.detach().abs().max(), 1), float(error)


# The ranks have seeds of their own, and the first rank's counts.


def seed_each_rank() -> None:
    torch.manual_seed(SEED + dist.get_rank())


def first_seed() -> int:
    generator = torch.Generator().manual_seed(SEED)
    return int(torch.empty((), dtype=torch.long).random_(2**63 - 1, generator=generator))


def drawn_mask(x: Tensor, bias: Tensor | None = None, **parameters: Tensor) -> Tensor:
    """The mask of the whole that an SOI map draws after seed_each_rank()."""
    return soi_oracle.kept(x, bias, first_seed(), "normal", **parameters)
