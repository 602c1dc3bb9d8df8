"""Speeds up existing models with one call: :func:`replace_activations`."""

from gelu_kernels.replace.model import replace_activations, replace_gelu
from gelu_kernels.replace.replacement import Change, Replacement

__all__ = ["Change", "Replacement", "replace_activations", "replace_gelu"]
