"""Other packages that have one of the operators, where they are installed."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec

from bench.sides import Side

# By operator and gate.
Sides = dict[tuple[str, str], Side]


def flash_attn() -> Sides:
    from flash_attn.ops.activations import bias_gelu_impl, fast_gelu_impl

    return {
        ("gelu", "normal_tanh"): Side(fast_gelu_impl),
        ("bias_gelu", "normal_tanh"): Side(bias_gelu_impl),
    }


def liger_kernel() -> Sides:
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return {
        ("geglu", "normal_tanh"): Side(LigerGELUMulFunction.apply, overwrites=True),
        ("geglu", "logistic"): Side(LigerSiLUMulFunction.apply, overwrites=True),
    }


def megatron() -> Sides:
    from megatron.core.fusions.fused_bias_geglu import bias_geglu_impl
    from megatron.core.fusions.fused_bias_gelu import bias_gelu_impl

    return {
        ("bias_gelu", "normal_tanh"): Side(bias_gelu_impl),
        ("geglu_halves", "normal_tanh"): Side(lambda both: bias_geglu_impl(both, None)),
    }


def transformer_engine() -> Sides:
    from transformer_engine.pytorch import ops

    return {
        ("gelu", "normal_tanh"): Side(ops.GELU()),
        ("gelu", "logistic_1702"): Side(ops.QGELU()),
        ("geglu_halves", "normal_tanh"): Side(ops.GEGLU()),
    }


def transformers() -> Sides:
    from transformers.activations import ACT2FN

    names = {"normal": "gelu", "normal_tanh": "gelu_pytorch_tanh", "logistic_1702": "quick_gelu"}
    return {("gelu", gate): Side(ACT2FN[name]) for gate, name in names.items()}


PEERS: dict[str, Callable[[], Sides]] = {
    "flash_attn": flash_attn,
    "liger_kernel": liger_kernel,
    "megatron": megatron,
    "transformer_engine": transformer_engine,
    "transformers": transformers,
}
# Other packages that are often named with them, and why they are not compared.
WITHOUT_THE_OPERATORS = {
    "unsloth": "has GEGLU alone, without autograd and overwriting its inputs",
    "xformers": "has no GELU",
}


def load(names: Iterable[str]) -> tuple[dict[str, Sides], dict[str, str]]:
    """The peers that are here, and why others are not compared."""
    found: dict[str, Sides] = {}
    absent = dict(WITHOUT_THE_OPERATORS)
    for name in names:
        if find_spec(name) is None:
            absent[name] = "not installed"
            continue
        try:
            found[name] = PEERS[name]()
        except Exception as error:  # whatever keeps a package from being imported here
            absent[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return found, absent
