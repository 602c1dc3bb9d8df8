"""The families of operators, each of which is a line in the tables of speed."""

FAMILIES = {
    "gate": ("gelu", "gate"),
    "gate, bias": ("bias_gelu", "bias_gate"),
    "GLU": ("geglu", "geglu_halves"),
    "weighted GLU": ("glu", "glu_halves"),
    "dropout": (
        *("bias_gelu_dropout", "gate_dropout", "bias_gate_dropout"),
        *("geglu_dropout", "geglu_dropout_halves"),
    ),
    "SOI map": ("soi_map", "bias_soi_map", "cdf_soi_map"),
    "`cdf_gate`": ("cdf_gate", "cdf_gate_columns"),
}
# By how the names of a benchmark's operators begin, where they end with a variant.
VARIANTS = {
    "derivative in 8 or 4 bits": tuple(
        f"{op} saving {bits} bits" for op in ("gate", "bias_gate") for bits in (8, 4)
    ),
    "8-bit results": ("quantized_",),
}


def family_of(op: str) -> str | None:
    for family, ops in FAMILIES.items():
        if op in ops:
            return family
    return next((family for family, names in VARIANTS.items() if op.startswith(names)), None)
