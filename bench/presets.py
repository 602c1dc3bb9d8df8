"""Defaults of the options of ``python -m bench`` for a purpose: what tells most in little time."""

from bench.operators import OPERATORS
from bench.peers import PEERS
from bench.plan import CHANGED
from bench.sides import COMPILERS

NONE = "none"  # no side but ours and eager PyTorch's
ALONE = ("forward", "backward")
COMMON = ("gelu", "bias_gelu", "geglu")

Preset = dict[str, tuple[str, ...]]  # by the names of the parameters, most important first


def one_of_each_family() -> tuple[str, ...]:
    """And one with a bias or a weight, where there is one."""
    found: dict[tuple[str, ...], str] = {}
    for label, op in OPERATORS.items():
        found.setdefault((op.family, *sorted({"bias", "weight"} & {*op.operands})), label)
    return tuple(found.values())


PRESETS: dict[str, Preset] = {
    "headline": {
        "gates": ("normal", "normal_tanh"),
        "dtypes": ("bfloat16", "float32"),
        "ops": (*COMMON, "soi_map"),
        "sizes": ("1GiB", "64MiB"),
        "passes": ALONE,
        "compared": (NONE,),
    },
    "changed": {
        "gates": ("normal",),
        "dtypes": ("bfloat16",),
        "ops": tuple(
            label
            for label, op in OPERATORS.items()
            if op.family in CHANGED and (op.family != "glu" or "weight" in op.operands)
        ),
        "sizes": ("256MiB",),
        "passes": ALONE,
        "compared": (NONE,),
    },
    "families": {
        "gates": ("normal",),
        "dtypes": ("bfloat16",),
        "ops": one_of_each_family(),
        "sizes": ("256MiB",),
        "passes": ALONE,
        "compared": (NONE,),
    },
    "sizes": {
        "gates": ("normal", "logistic"),
        "dtypes": ("bfloat16",),
        "ops": COMMON,
        "sizes": tuple(f"2^{n}" for n in range(12, 25, 2)),
        "passes": ALONE,
        "compared": (NONE,),
    },
    "peers": {
        "gates": ("logistic", "normal_tanh"),
        "dtypes": ("bfloat16",),
        "ops": ("geglu", "bias_gelu", "gelu"),
        "sizes": ("256MiB",),
        "passes": ALONE,
        "compared": (*COMPILERS, *PEERS),
    },
    "all": {
        "dtypes": ("bfloat16", "float16"),
        "sizes": ("256MiB",),
        "passes": ALONE,
        "compared": (NONE,),
    },
}
