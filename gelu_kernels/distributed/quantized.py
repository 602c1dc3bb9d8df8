"""How the quantised operators run on DTensors: each rank on its own rows, if these are whole blocks
and the rank's result is its part of the whole result."""

from functools import partial

from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.distributed.elementwise import Sharding
from gelu_kernels.operators.table import QUANTIZED
from gelu_kernels.operators.types import Operator

BLOCK, TILE = 32, 128  # the rows of a block along a column, and of a tile of swizzled scales


def _by_rows(name: str, arguments: dict[str, Tensor | str | None]) -> Placement:
    """The placement of a result when the first dimension of x is cut."""
    along, scaling = arguments["along"], arguments.get("scaling")
    is_column, is_scale = "column" in name, name.endswith("scales")
    if name == "dbias":
        return Partial()
    if along == ("row" if is_column else "column"):
        return Replicate()  # it is empty
    if is_scale and scaling == "TensorWise":
        return Partial("max")
    return Shard(1 if is_column else 0)


def _shardings(op: Operator, *args: Tensor | str | None) -> list[Sharding]:
    """The ways to shard over one dimension of a mesh."""
    arguments = op.named(args)
    x = arguments["x"]
    tensors = {name for name, arg in arguments.items() if hasattr(arg, "placements")}
    results = list(op.outputs)

    def placed(others: Placement) -> list[Placement | None]:
        """Bias and scale have no rows: they are replicated."""
        return [
            None if name not in tensors else Replicate() if name in ("bias", "scale") else others
            for name in arguments
        ]

    shardings = [([Replicate() for _ in results], placed(Replicate()))]
    rows_of_rank = x.shape[:-1].numel() / x.mesh.size() if x.ndim > 1 else 0
    has_columns = arguments["along"] != "row"
    is_swizzled = arguments["swizzle"] != "NO_SWIZZLE"
    unit = TILE if is_swizzled else BLOCK if has_columns else 1
    is_whole = x.ndim > 1 and x.shape[0] % x.mesh.size() == 0 and rows_of_rank % unit == 0
    # The swizzled scales of a rank's columns are not a slice of the whole.
    if is_whole and not (is_swizzled and has_columns):
        shardings.append(([_by_rows(name, arguments) for name in results], placed(Shard(0))))
    return shardings


for op in QUANTIZED:
    register_sharding(op.overload)(partial(_shardings, op))
