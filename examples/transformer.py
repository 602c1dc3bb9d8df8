"""Trains a small transformer on real handwritten digits, on any number of processes.

    torchrun --nproc-per-node 4 examples/transformer.py --tensor-parallel 2

runs on GPUs (NCCL) where there are four, else on the CPU (gloo). The data are the 1797 digits that
scikit-learn ships: sequences of 8 rows of 8 pixels. Of 4 processes, 2 and 2 share each layer
(tensor parallelism), and each pair has its half of a batch and of the parameters (FSDP).

The hidden layers are ``gelu_kernels.nn.LinearGELU``, which with ``--save`` keeps its derivative in
8 or 4 bits for backward; with ``--soi``, linear layers followed by ``gelu_kernels.nn.SOIMap``. In
any case the losses are the same on one process, to rounding: the SOI map too keeps the same
neurons, however they are divided, and a dithered code is the same.
"""

import argparse
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import gelu_kernels
from gelu_kernels.distributed.tensor_parallel import ColwiseParallel, RowwiseParallel

ROWS, PIXELS, CLASSES = 8, 8, 10
WIDTH, HIDDEN, HEAD, BLOCKS, BATCH = 64, 256, 16, 2, 256


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        # As many heads as this process has.
        heads = (
            layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return self.out(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class DividedSOIMap(gelu_kernels.nn.SOIMap):
    """Of activations divided by examples, then by neurons: it tells SOIMap which part it has."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh

    def forward(self, input: Tensor) -> Tensor:
        part = DTensor.from_local(input, self.mesh, [Shard(0), Shard(-1)])
        result = super().forward(part)
        assert isinstance(result, DTensor)
        return result.to_local()


class Block(nn.Module):
    def __init__(self, soi_mesh: DeviceMesh | None, save: str | None, dither: bool) -> None:
        super().__init__()
        self.attention = Attention()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        if soi_mesh is None:
            self.up: nn.Module = gelu_kernels.nn.LinearGELU(WIDTH, HIDDEN, save=save, dither=dither)
            self.activation: nn.Module = nn.Identity()
        else:
            self.up, self.activation = nn.Linear(WIDTH, HIDDEN), DividedSOIMap(soi_mesh)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(self.activation(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, soi_mesh: DeviceMesh | None, save: str | None, dither: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(PIXELS, WIDTH)
        self.position = nn.Parameter(torch.randn(ROWS, WIDTH))
        self.blocks = nn.ModuleList(Block(soi_mesh, save, dither) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embedding(images) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def parallelize(network: Transformer, mesh: DeviceMesh) -> None:
    by_columns = ("attention.query", "attention.key", "attention.value", "up")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in by_columns}
    plan |= {name: RowwiseParallel() for name in ("attention.out", "down")}
    for block in network.blocks:
        parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(network, mesh=mesh["data"])


def train(
    mesh: DeviceMesh,
    epochs: int,
    soi: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    save: str | None = None,
    dither: bool = False,
) -> Iterator[float]:
    """The mean loss of each epoch. `save` and `dither` are LinearGELU's options."""
    torch.manual_seed(seed)
    device = torch.device(mesh.device_type)
    network = Transformer(mesh if soi else None, save, dither).to(device, dtype)
    parallelize(network, mesh)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)

    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16).view(-1, ROWS, PIXELS).to(device, dtype)
    labels = torch.tensor(labels, device=device)
    shuffle = torch.Generator().manual_seed(seed)
    data = mesh["data"]
    for _ in range(epochs):
        losses = []
        order = torch.randperm(len(images), generator=shuffle).to(device)
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            mine = batch.chunk(data.size())[data.get_local_rank()]
            loss = cross_entropy(network(images[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        loss = torch.stack(losses).mean()
        dist.all_reduce(loss, group=data.get_group())
        yield loss.item() / data.size()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--tensor-parallel", type=int, default=1, help="processes to a layer")
    parser.add_argument("--soi", action="store_true", help="the SOI map in place of GELU")
    parser.add_argument("--save", choices=["8bit", "4bit"], help="of LinearGELU")
    parser.add_argument("--dither", action="store_true", help="of LinearGELU, with --save")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dtype", choices=["float64", "float32", "bfloat16"], default="float32")
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], help="default: GPUs if there are enough"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    dist.init_process_group()
    processes, local_rank = dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    enough = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = options.device or ("cuda" if enough else "cpu")
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    shape = processes // options.tensor_parallel, options.tensor_parallel
    if shape[0] * shape[1] != processes or BATCH % shape[0] or (WIDTH // HEAD) % shape[1]:
        parser.error(
            f"--tensor-parallel {shape[1]} of {processes} processes does not divide "
            f"{WIDTH // HEAD} heads and batches of {BATCH}"
        )
    mesh = init_device_mesh(device, shape, mesh_dim_names=("data", "tensor"))
    dtype = getattr(torch, options.dtype)
    losses = train(
        mesh, options.epochs, options.soi, dtype, options.seed, options.save, options.dither
    )
    for epoch, loss in enumerate(losses, start=1):
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
