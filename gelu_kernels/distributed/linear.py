"""How the gradient of a weight after a gate runs on DTensors: as a matrix product, dy^T h."""

from functools import partial

from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.distributed.elementwise import Sharding
from gelu_kernels.operators.table import LINEAR
from gelu_kernels.operators.types import Operator


def _shardings(op: Operator, *args: Tensor | str | float | None) -> list[Sharding]:
    """The ways to shard over one dimension of a mesh: cut the rows of dy and x, or the columns of
    either, or leave a sum pending in dy."""
    arguments = op.named(args)
    tensors = {name: arg for name, arg in arguments.items() if hasattr(arg, "placements")}
    last = tensors["x"].ndim - 1

    def sharding(of_dweight: Placement, of_dy: Placement, of_x: Placement) -> Sharding:
        along = Shard(0) if of_x == Shard(last) else Replicate()
        placed = {"dy": of_dy, "x": of_x, "up": of_x, "gate_bias": along}
        return [of_dweight], [placed[name] if name in tensors else None for name in arguments]

    whole = Replicate()
    shardings = [
        sharding(whole, whole, whole),
        sharding(Shard(0), Shard(last), whole),
        sharding(Partial(), Partial(), whole),
        *[sharding(Partial(), Shard(dim), Shard(dim)) for dim in range(last)],
    ]
    # Cutting the last dimension would not cut both halves.
    if "up" not in arguments or "up" in tensors:
        shardings.append(sharding(Shard(1), whole, Shard(last)))
    return shardings


for op in LINEAR:
    register_sharding(op.overload)(partial(_shardings, op))
