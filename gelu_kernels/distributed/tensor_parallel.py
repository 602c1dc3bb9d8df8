"""Tensor parallelism for ``LinearGELU``, ``GateLinear`` and ``GLULinear``.

``ColwiseParallel`` and ``RowwiseParallel`` of ``torch.distributed.tensor.parallel`` accept only
torch's modules. The classes here also take ours.
"""

from functools import partial

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, parallel
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.nn.linear import LinearParameters


class _TakesOurs(parallel.ParallelStyle):
    input: Placement  # what the product takes

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, LinearParameters):
            return super()._apply(module, device_mesh)
        of_output = partial(self._prepare_output_fn, self.output_layouts, self.use_local_output)
        return distribute_module(
            module, device_mesh, self._partition_linear_fn, self._inputs, of_output
        )

    def _inputs(
        self, module: nn.Module, inputs: tuple[Tensor, ...], device_mesh: DeviceMesh
    ) -> tuple[DTensor, ...]:
        prepare = partial(self._prepare_input_fn, self.input_layouts, (self.input,), module)
        return tuple(prepare((t,), device_mesh) for t in inputs)


class ColwiseParallel(_TakesOurs, parallel.ColwiseParallel):
    """Like torch's ``ColwiseParallel``, for our linear layers too: shards the weight by rows.

    The bias and the result are sharded too.
    """

    input = Replicate()


class RowwiseParallel(_TakesOurs, parallel.RowwiseParallel):
    """Like torch's ``RowwiseParallel``, for our linear layers too: shards the weight by columns.

    The input is sharded too.
    """

    input = Shard(-1)
