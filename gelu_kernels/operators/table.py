"""The table of operators: what sharding, the choice of a backend, the benchmark, the tests and the
docs need to know about each."""

from gelu_kernels import _C
from gelu_kernels.operators.types import CoreOperator, Operator, PublicOperator

# PyTorch's names of the gates.
APPROXIMATE: dict[str, str | None] = {gate: approximate for gate, approximate, _ in _C.gates()}

CORE = (
    CoreOperator("gate_forward", "gate"),
    CoreOperator("gate_backward", "gate", linear_in=("dy",)),
    CoreOperator("gate_backward_bias", "gate", linear_in=("dy",)),
    CoreOperator(
        "gate_double_backward", "gate", linear_in=("ddx", "dy"), ulp=8, ulp_of_16_bits=0.51
    ),
    CoreOperator(
        "glu_forward",
        "glu",
        linear_in=("weight",),
        linear_without_numbers=("up",),
        ulp=4.5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator("glu_backward", "glu", linear_in=("dy", "weight"), ulp=5, ulp_of_16_bits=0.6),
    CoreOperator("glu_backward_weight", "glu", linear_in=("dy",), ulp=6, ulp_of_16_bits=0.65),
    CoreOperator(
        "glu_halves_forward",
        "glu",
        halves=("x",),
        linear_in=("weight",),
        ulp=4.5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator(
        "glu_halves_backward",
        "glu",
        halves=("x", "dx"),
        linear_in=("dy", "weight"),
        ulp=5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator(
        "glu_halves_backward_weight",
        "glu",
        halves=("x", "dx"),
        linear_in=("dy",),
        ulp=6,
        ulp_of_16_bits=0.65,
    ),
    CoreOperator("soi_forward", "soi", ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_cdf_forward", "soi", ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_backward", "soi", linear_in=("dy",), ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_backward_bias", "soi", linear_in=("dy",)),
    CoreOperator("cdf_gate_forward", "cdf", ulp=6, ulp_of_16_bits=0.52),
    CoreOperator("cdf_gate_backward", "cdf", linear_in=("dy",), ulp=9, ulp_of_16_bits=0.52),
    CoreOperator("coded_forward", "coded", ulp=5, ulp_of_16_bits=0.51),  # without dropout 4 and 0.5
    # Errors of the product of dy and the derivative that the code stands for.
    CoreOperator("coded_backward", "coded", linear_in=("dy",), ulp=3, ulp_of_16_bits=0.501),
    CoreOperator("coded_backward_bias", "coded", linear_in=("dy",), ulp=3, ulp_of_16_bits=0.501),
    CoreOperator("gate_dropout_forward", "dropout", ulp=5, ulp_of_16_bits=0.57),
    CoreOperator(
        "gate_dropout_backward", "dropout", linear_in=("dy",), ulp=5.5, ulp_of_16_bits=0.68
    ),
    CoreOperator(
        "gate_dropout_backward_bias", "dropout", linear_in=("dy",), ulp=5.5, ulp_of_16_bits=0.68
    ),
    CoreOperator("glu_dropout_forward", "dropout", linear_in=("up",), ulp=5.5, ulp_of_16_bits=0.6),
    CoreOperator("glu_dropout_backward", "dropout", linear_in=("dy",), ulp=6.5, ulp_of_16_bits=0.7),
    CoreOperator(
        "glu_dropout_halves_forward", "dropout", halves=("x",), ulp=5.5, ulp_of_16_bits=0.6
    ),
    CoreOperator(
        "glu_dropout_halves_backward",
        "dropout",
        halves=("x", "dx"),
        linear_in=("dy",),
        ulp=6.5,
        ulp_of_16_bits=0.7,
    ),
)

# Operators whose results are numbers in eight bits and scales, which Extent does not describe.
QUANTIZED = tuple(
    Operator(name, "quantized")
    for name in (
        "quantized_gate_forward",
        "quantized_glu_forward",
        "quantized_gate_backward",
        "quantized_gate_backward_bias",
        "quantized_glu_backward",
        "quantized_glu_backward_weight",
        "quantized_glu_halves_backward",
        "quantized_glu_halves_backward_weight",
    )
)

# Gradients of weights, whose shapes Extent does not describe; composed of other operators.
LINEAR = tuple(
    Operator(name, "linear")
    for name in ("gate_linear_backward_weight", "glu_linear_backward_weight")
)

# Public operators with shapes that Extent does not describe.
OTHERS = (
    Operator("gate_linear", "linear"),
    Operator("glu_linear", "linear"),
    Operator("quantized_gate", "quantized"),
    Operator("quantized_glu", "quantized"),
)

P = {"p": 0.3}  # for dropout

# For the forms with all options of a GLU. Some of the tests' inputs exceed the limit.
NUMBERS = {"limit": 1.5, "up_offset": 1.0}

PUBLIC = (
    PublicOperator(
        "fused_gelu",
        "gate",
        "gelu",
        ("x",),
        "g(x)",
        functions={"gelu": None},
        modules={"GELU": None},
    ),
    PublicOperator(
        "fused_bias_gelu",
        "gate",
        "bias_gelu",
        ("x", "bias"),
        "g(x + bias)",
        functions={"bias_gelu": None},
        modules={"BiasGELU": None, "LinearGELU": None},
    ),
    PublicOperator(
        "fused_gate",
        "gate",
        "gate",
        ("x",),
        "g(x)",
        functions={"silu": "logistic", "lalu": "laplace", "cauchy_gate": "cauchy", "gate": None},
        modules={"SiLU": "logistic", "LaLU": "laplace", "CauchyGate": "cauchy"},
    ),
    PublicOperator(
        "fused_gate", "gate", "bias_gate", ("x", "bias"), "g(x + bias)", functions={"gate": None}
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "geglu",
        ("x", "up"),
        "g(x) up",
        functions={"swiglu": "logistic", "geglu": None, "glu": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "geglu_halves",
        ("x",),
        "g(x) up, the halves of one tensor",
        halves=("x",),
        functions={"swiglu": "logistic", "geglu": None, "glu": None},
        modules={"SwiGLU": "logistic", "GEGLU": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "glu",
        ("x", "up", "weight"),
        "g(min(x, limit)) (clamp(up, -limit, limit) + up_offset) weight",
        numbers=NUMBERS,
        functions={"glu": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "glu_halves",
        ("x", "weight"),
        "the same, of the halves of one tensor",
        halves=("x",),
        numbers=NUMBERS,
        functions={"glu": None},
    ),
    PublicOperator(
        "soi_map",
        "soi",
        "soi_map",
        ("x",),
        "m x, m ~ Bernoulli(F(x))",
        functions={"soi_map": None},
        modules={"SOIMap": None},
    ),
    PublicOperator(
        "fused_bias_soi_map",
        "soi",
        "bias_soi_map",
        ("x", "bias"),
        "m (x + bias), m ~ Bernoulli(F(x + bias))",
        functions={"bias_soi_map": None},
    ),
    PublicOperator(
        "soi_map",
        "soi",
        "cdf_soi_map",
        ("x", "loc", "scale"),
        "m x, m ~ Bernoulli(F((x - loc)/scale))",
        functions={"soi_map": None},
        stem="soi_cdf",
    ),
    PublicOperator(
        "cdf_gate",
        "cdf",
        "cdf_gate",
        ("x", "loc", "scale"),
        "x F((x - loc)/scale)",
        single=("loc", "scale"),
        functions={"cdf_gate": None},
        modules={"CDFGate": None},
        stem="cdf_gate",
    ),
    PublicOperator(
        "cdf_gate",
        "cdf",
        "cdf_gate_columns",
        ("x", "loc", "scale"),
        "x F((x - loc)/scale), vectors loc and scale",
        functions={"cdf_gate": None},
        stem="cdf_gate",
    ),
    PublicOperator(
        "fused_bias_gelu_dropout",
        "dropout",
        "bias_gelu_dropout",
        ("x", "bias"),
        "m g(x + bias)/(1 - p), m ~ Bernoulli(1 - p)",
        numbers=P,
        functions={"bias_gelu_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_gate_dropout",
        "dropout",
        "gate_dropout",
        ("x",),
        "m g(x)/(1 - p)",
        numbers=P,
        functions={"gate_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_gate_dropout",
        "dropout",
        "bias_gate_dropout",
        ("x", "bias"),
        "m g(x + bias)/(1 - p)",
        numbers=P,
        functions={"gate_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_glu_dropout",
        "dropout",
        "geglu_dropout",
        ("x", "up"),
        "m g(x) up/(1 - p)",
        numbers=P,
        functions={"glu_dropout": None},
        stem="glu_dropout",
    ),
    PublicOperator(
        "fused_glu_dropout",
        "dropout",
        "geglu_dropout_halves",
        ("x",),
        "m g(x) up/(1 - p), the halves of one tensor",
        halves=("x",),
        numbers=P,
        functions={"glu_dropout": None},
        stem="glu_dropout",
    ),
)


def core(name: str) -> CoreOperator:
    return next(op for op in CORE if op.name == name)
