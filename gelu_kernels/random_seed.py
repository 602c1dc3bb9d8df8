"""Rules for ``random_seed``, the operator that draws the seed of a mask.

A training step draws a seed once and saves its 8 bytes for backward, even where the rest of the
forward pass is recomputed. With another seed the gradient would have another mask than the result.
Plain checkpointing restores the generator's state before it recomputes. Two others do not: the
partitioner of torch.compile under a memory budget, and selective checkpointing, for operators that
draw after one that is not recomputed.

An eager call on a GPU that none of these rules can see computes the same seed without the operator
(csrc/ops/random.cpp).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    _CachedTorchDispatchMode,
    _CachingTorchDispatchMode,
)

from gelu_kernels import compatibility

random_seed = torch.ops.gelu_kernels.random_seed.default
_library = torch.library.Library("gelu_kernels", "IMPL")


def register() -> None:
    _library.impl("random_seed", _batch, "FuncTorchVmapMode")
    rules = {
        ProxyTorchDispatchMode: _trace,
        _CachingTorchDispatchMode: _save,
        _CachedTorchDispatchMode: _load,
    }
    for mode, rule in rules.items():
        torch.library.register_torch_dispatch(random_seed, mode, rule)


def _trace(
    mode: ProxyTorchDispatchMode, op: Callable, types: tuple, args: tuple, kwargs: dict
) -> Tensor:
    seed = mode.__torch_dispatch__(op, types, args, kwargs)
    node = next(iter(reversed(mode.tracer.graph.nodes)))
    # With a budget of 0 the partitioner saves nothing; it recomputes what it must from the
    # generator's state.
    saves = compatibility.memory_budget(node) > 0
    policy = CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.MUST_RECOMPUTE
    node.meta["recompute"] = policy
    return seed


def _save(
    mode: _CachingTorchDispatchMode, op: Callable, types: tuple, args: tuple, kwargs: dict
) -> Tensor:
    with _saving(mode):
        return mode.__torch_dispatch__(op, types, args, kwargs)


def _load(
    mode: _CachedTorchDispatchMode, op: Callable, types: tuple, args: tuple, kwargs: dict
) -> Tensor:
    op(*args, **kwargs)  # advances the generator for the operators that draw after this one
    with _saving(mode):
        return mode.__torch_dispatch__(op, types, args, kwargs)


@contextmanager
def _saving(mode: _CachingTorchDispatchMode | _CachedTorchDispatchMode) -> Iterator[None]:
    """Saves the seed, whatever the policy. Torch 2.11 asks the policy in both modes."""
    policy = getattr(mode, "policy_fn", None)
    mode.policy_fn = lambda *args, **kwargs: CheckpointPolicy.MUST_SAVE
    try:
        yield
    finally:
        mode.policy_fn = policy


def _batch(empty: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Repeats vmap's rule for random operators, which covers only torch's own."""
    vmap = retrieve_current_functorch_interpreter()
    if vmap.randomness() == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )
    with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.FuncTorchVmapMode)):
        if vmap.randomness() == "same":
            return random_seed(empty, generator=generator)
        seeds = random_seed(empty.new_empty(vmap.batch_size()), generator=generator)
        return torch._C._functorch._add_batch_dim(seeds, 0, vmap.level())
