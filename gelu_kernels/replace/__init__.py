"""Existing models by one call: :func:`replace_activations` puts our modules where others' are."""

from gelu_kernels.replace.model import replace_activations, replace_gelu
from gelu_kernels.replace.replacement import Change, Replacement

__all__ = ["Change", "Replacement", "replace_activations", "replace_gelu"]
