"""The numbers that the functions of a gate ask for, by precision and by their names in C++; they
need no Triton."""

from gelu_kernels.triton_kernels.coefficients import Constants, Polynomial
from gelu_kernels.triton_kernels.coefficients import exp2 as powers
from gelu_kernels.triton_kernels.coefficients import normal as normal_numbers

Table = dict[str, Constants]


def normal_constants() -> Table:
    wide = {
        precision: Constants(
            **vars(normal_numbers.NormalConstants[precision]),
            value_factor=normal_numbers.normal_value_factor[precision],
            derivative_factor=normal_numbers.normal_derivative_factor[precision],
            density_factor=normal_numbers.normal_density_factor[precision],
            exp2m1=powers.exp2m1_polynomial[precision],
        )
        for precision in ("fp64", "fp32")
    }
    half = {
        precision: Constants(
            **vars(normal_numbers.NormalConstants[precision]),
            log2_cdf=normal_numbers.normal_log2_cdf[precision],
            log2_derivative=normal_numbers.normal_log2_derivative[precision],
            exp2m1=exp2m1["fp32"],
        )
        for precision, exp2m1 in (
            ("fp16", powers.exp2m1_polynomial_5),
            ("bf16", powers.exp2m1_polynomial_4),
        )
    }
    bf16 = half["bf16"]
    log2_scale = bf16.origin - 1.5 * 2**23 - 127
    random = Constants(
        tail_limit=wide["fp32"].tail_limit,
        tail_root=normal_numbers.normal_tail_root["fp32"],
    )
    fast_bf16 = Constants(**vars(bf16), log2_scale=log2_scale)
    return {**wide, **half, "fast_bf16": fast_bf16, "random": random}


def sigmoid_constants(numbers: Table) -> Table:
    wide = {
        precision: Constants(
            **vars(numbers[precision]),
            origin=1.5 * 2.0**mantissa_bits + numbers[precision].log2_scale,
            exp2=exp2[precision],
            exp2m1=powers.exp2m1_polynomial[precision],
            h=Polynomial(0, tuple(vars(numbers[precision])[f"h{k}"] for k in range(3))),
        )
        for precision, mantissa_bits, exp2 in (
            ("fp64", 52, powers.exp2_polynomial),
            ("fp32", 23, powers.exp2_polynomial_6),
        )
    }
    half = vars(numbers["fp16"])
    exp2 = Polynomial(0, tuple(half[f"exp2_{k}"] for k in range(6)))
    for_half = Constants(**vars(wide["fp32"]), half=Constants(**half, exp2=exp2))
    random = Constants(
        half=Constants(**half),
        k3_hi=wide["fp32"].k3_hi,
        tail_limit=wide["fp32"].tail_limit,
        origin=1.5 * 2.0**23,
        exp2=powers.exp2_polynomial_4["fp32"],
    )
    return {**wide, **dict.fromkeys(("fp16", "bf16", "fast_bf16"), for_half), "random": random}
