"""PyTorch's encoder layers, which in evaluation compute a GELU of their own."""

import torch

from gelu_kernels.replace.replacement import Replacement


def leave_fast_path(result: Replacement, modules: dict[str, torch.nn.Module]) -> None:
    """Switch off the path that does not call the activation."""
    changed = {id(change.owner) for change in result.changed}
    for prefix, module in modules.items():
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            flag, off, layers = "activation_relu_or_gelu", 0, [module]
        elif isinstance(module, torch.nn.TransformerEncoder):
            flag, off, layers = "use_nested_tensor", False, module.layers
        else:
            continue
        if getattr(module, flag, False) and any(id(layer) in changed for layer in layers):
            result.set(module, f"{prefix}.{flag}" if prefix else flag, off)
