"""Networks under DDP, FSDP and tensor parallelism train as in one process."""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import grad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from gelu_kernels import nn as ours
from gelu_kernels.distributed.tensor_parallel import ColwiseParallel, RowwiseParallel
from tests import ROOT
from tests.pytorch.distributed import networks
from tests.pytorch.distributed.networks import build
from tests.pytorch.distributed.ranks import (
    S0,
    S1,
    R,
    assert_close,
    check,
    distributed,
    grid,
    line,
    random,
)

sys.path.insert(0, str(ROOT / "examples"))
import transformer

TENSOR_PARALLEL = {"up": ColwiseParallel(), "down": RowwiseParallel()}
Batches = list[tuple[Tensor, Tensor]]


def steps(network: nn.Module, batches: Batches) -> list[Tensor]:
    """The losses and the last gradients."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    losses = []
    for x, y in batches:
        loss = (network(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.grad for p in network.parameters())]


def batches() -> Batches:
    return [(random(8, 3, 8, seed=i), random(8, 3, 8, seed=i + 1)) for i in range(0, 8, 2)]


def my_batches(mesh: DeviceMesh) -> Batches:
    return [
        tuple(t.chunk(mesh.size())[mesh.get_local_rank()] for t in batch) for batch in batches()
    ]


def assert_trains_as_one_process(
    network: nn.Module, data: DeviceMesh | None, alone: Callable[[], nn.Module] = networks.TorchMLP
) -> None:
    """`data` is the mesh over whose ranks the batches are divided."""
    expected = steps(build(alone), batches())
    losses, *gradients = steps(network, my_batches(data) if data else batches())
    if data:
        dist.all_reduce(losses, group=data.get_group())
        losses /= data.size()
    assert_close([losses, *gradients], expected)


def sharded(network: nn.Module, *layers: nn.Module) -> nn.Module:
    for module in (*layers, network):
        fully_shard(module, mesh=line())
    return network


def sharded_and_tensor_parallel(kind: Callable[[], nn.Module]) -> nn.Module:
    network = parallelize_module(build(kind), grid()["tp"], TENSOR_PARALLEL)
    return fully_shard(network, mesh=grid()["dp"])


@check
def distributed_data_parallel() -> None:
    assert_trains_as_one_process(DistributedDataParallel(build(networks.MLP)), line())


@check
def fully_sharded() -> None:
    for kind, alone in (
        (networks.MLP, networks.TorchMLP),
        (networks.Recomputing, networks.TorchRecomputing),
        (networks.RecomputingGLU, networks.TorchRecomputingGLU),
    ):
        network = build(kind)
        assert_trains_as_one_process(sharded(network, network.up, network.down), line(), alone)


@check
def fully_sharded_numbers() -> None:
    """A vector of one element is divided too: the first rank has it."""
    network = build(networks.Learnt)
    sharded(network, network.one, network.each)
    assert network.one.loc.to_local().numel() == (dist.get_rank() == 0)
    assert_trains_as_one_process(network, line(), networks.TorchLearnt)


@check
def numbers_that_are_dtensors() -> None:
    """Replicated or on the first rank alone; FSDP would gather them before the call."""
    x, dy = random(4, 3, 8), random(4, 3, 8, seed=1)
    whole = build(networks.TorchLearnt)
    expected = grad(whole(x), [*whole.parameters()], dy)
    for p in (R, S0):
        network = build(networks.Learnt)
        for module in network.modules():
            for name, t in list(module.named_parameters(recurse=False)):
                part = distributed(t.detach(), line(), [p if module is network.one else R])
                setattr(module, name, nn.Parameter(part))
        y = network(distributed(x, line(), [S0]))
        assert_close(grad(y, [*network.parameters()], distributed(dy, line(), [S0])), expected)


@check
def deferred_initialisation() -> None:
    """FSDP2's recipe: memory and first values after the parameters are divided."""

    def make() -> nn.Module:
        return nn.Sequential(
            networks.Learnt(), ours.GateLinear(8, 8, gate_bias=True), ours.MLP(8, 8)
        )

    with torch.device("meta"):
        network = make()
    fully_shard(network, mesh=line())
    network.to_empty(device="cpu")
    for t in network.parameters():
        nn.init.constant_(t, torch.nan)
    for module in network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for t, of_one_process in zip(network.parameters(), make().parameters(), strict=True):
        numbers = t.full_tensor()
        if of_one_process.min() == of_one_process.max():
            assert torch.equal(numbers, of_one_process)
        else:  # nn.Linear draws from (-b, b) for b = 1/sqrt(8).
            assert ((numbers != 0) & (numbers.abs() <= 8**-0.5)).all()


@check
def tensor_parallel() -> None:
    network = parallelize_module(build(networks.MLP), line(), TENSOR_PARALLEL)
    assert network.up.bias.placements == (S0,)
    assert_trains_as_one_process(network, None)
    network = parallelize_module(build(networks.Recomputing), line(), TENSOR_PARALLEL)
    assert network.down.weight.placements == (S1,)
    assert_trains_as_one_process(network, None, networks.TorchRecomputing)


@check
def tensor_parallel_by_rows() -> None:
    """LinearGELU with the inputs divided: its product is pending when the bias is added."""
    plan = {"up": RowwiseParallel(input_layouts=R), "down": ColwiseParallel(output_layouts=R)}
    assert_trains_as_one_process(parallelize_module(build(networks.MLP), line(), plan), None)


@check
def tensor_parallel_and_fully_sharded() -> None:
    for kind, alone in (
        (networks.MLP, networks.TorchMLP),
        (networks.Recomputing, networks.TorchRecomputing),
    ):
        assert_trains_as_one_process(sharded_and_tensor_parallel(kind), grid()["dp"], alone)


@check
def layers_after_a_gate_are_tensor_parallel() -> None:
    colwise, rowwise = ColwiseParallel(), RowwiseParallel()
    plan = {"up": colwise, "first": colwise, "second": colwise, "middle": rowwise, "down": rowwise}
    network = parallelize_module(build(networks.AfterGate), line(), plan)
    assert network.middle.weight.placements == network.down.weight.placements == (S1,)
    assert_trains_as_one_process(network, None, networks.TorchAfterGate)


@check
def example_trains_as_one_process() -> None:
    names, ranks = ("", "data", "tensor"), dist.get_world_size()
    alone = init_device_mesh("cpu", (ranks, 1, 1), mesh_dim_names=names)["data", "tensor"]
    together = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=names[1:])
    images, labels = transformer.load_digits(return_X_y=True)
    transformer.load_digits = lambda return_X_y: (images[:512], labels[:512])  # two steps
    for soi in (False, True):
        (loss,) = transformer.train(together, 1, soi, torch.float64)
        if dist.get_rank() == 0:
            (expected,) = transformer.train(alone, 1, soi, torch.float64)
            assert abs(loss - expected) <= 1e-12 * expected, (loss, expected)
