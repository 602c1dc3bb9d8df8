"""The mask of whole octets of 16-bit elements on NVIDIA's GPUs, where half of an element's random
bits mostly decide: csrc/cuda/soi/forward.cuh in Triton; its comments apply here too."""

from types import FunctionType, SimpleNamespace

import triton
import triton.language as tl

from gelu_kernels.formulas.coefficients import Constants
from gelu_kernels.triton_kernels.arithmetic import approximate_reciprocal, bits, fma, from_bits
from gelu_kernels.triton_kernels.cdf.distribution import bounded, inverse_of, standard_score
from gelu_kernels.triton_kernels.octets import elements_of, first_of
from gelu_kernels.triton_kernels.philox import bytes_of, philox, seed_of, words_of_pair
from gelu_kernels.triton_kernels.storage import number, widened

UNITS = tl.constexpr(0x4B000000)  # the bits of 2^23
SMALLEST_NORMAL = tl.constexpr(0x00800000)  # of 2^-126
LARGEST_SCALE = tl.constexpr(0x7E000000)  # of 2^125
ALL = tl.constexpr(0xFFFFFFFF)


def drawing(functions: SimpleNamespace, constants: Constants) -> triton.JITFunction:
    """``draw`` for a gate. What Triton calls for single elements takes no functions and constants
    as arguments; so they are among its names."""
    error = 2.0**16 * constants.estimate_error
    below = int(2 * (1 + error + 0.25))
    names = {
        **globals(),
        "ESTIMATE": functions.distribution_estimate,
        "IN_TAIL": functions.in_tail,
        "C": tl.constexpr(constants),
        "FIRST_OPEN": tl.constexpr(UNITS.value - below),
        "OPEN": tl.constexpr(below + int(error + 0.5)),
    }
    for f in (exact, draw_octet, draw_plain, draw_scaled, draw):
        names[f.__name__] = triton.jit(FunctionType(f.fn.__code__, names, f.__name__))
    return names["draw"]


@triton.jit
def bernoulli(x, random, IN_TAIL: tl.constexpr, C: tl.constexpr):
    """The mask m, by 32 random bits for each element; csrc/random/bernoulli.h has the reasons."""
    positive = (x > 0) | (x != x)
    return IN_TAIL(x, tl.where(positive, ~random, random).to(tl.float32), C) != positive


@triton.jit
def exact(excess, x, loc, scale, random, clear):
    """The excess of an element, or what all random bits make of it if it is open."""
    if scale is not None:
        x = standard_score(widened(x) - loc, inverse_of(bounded(scale), C))
    own = tl.where(bernoulli(x, random, IN_TAIL, C), UNITS - 1, UNITS).to(tl.uint32)
    return tl.where(tl.minimum(excess - FIRST_OPEN, clear) <= OPEN, own, excess)


@triton.jit
def hidden(octet):
    """The same octet, whose words are drawn again. Kept, they would take registers."""
    return tl.inline_asm_elementwise("mov.b64 $0, $1;", "=l,l", [octet], octet.dtype, True, 1)


@triton.jit
def signs_of(low, high):
    return bytes_of(low, high, 0xEEAA)


@triton.jit
def draw_octet(z, scaled, octet, seed, clear):
    """For each element its excess, and the byte of the mask. `scaled` has x, loc and scale, if F
    does not take x itself; `clear` is 0 if there is no estimate."""
    words = philox(octet, 0, seed, C)
    # Of two constants ptxas copies one to a register at every use. So it sees none: the grid has
    # no third side.
    units = UNITS + tl.program_id(2).to(tl.uint32)
    least = clear
    excess = ()
    for j in tl.static_range(8):
        random = from_bits(bytes_of(words[j // 2], units, 0x7632 if j % 2 else 0x7610))
        excess += (bits(fma(ESTIMATE(z[j], C), -65536.0, random)).to(tl.uint32, bitcast=True),)
        least = tl.minimum(least, excess[j] - FIRST_OPEN)
    if least <= OPEN:
        again = hidden(octet)
        first, second = philox(again, 0, seed, C), philox(again, 1, seed, C)
        closed = ()
        for j in tl.static_range(8):
            both = words_of_pair(first[j // 2], second[j // 2], C)
            x = z[j]
            loc = None
            scale = None
            if scaled is not None:
                x, loc, scale = scaled[0][j], scaled[1][j], scaled[2][j]
            closed += (exact(excess[j], x, loc, scale, both[j % 2], clear),)
        excess = closed
    byte = tl.full((), 0, tl.uint32)
    for k in tl.static_range(4):
        byte |= signs_of(excess[2 * k], excess[2 * k + 1]) & (0x20001 << (2 * k))
    byte |= byte >> 16
    return excess + (byte, byte, byte, byte, byte, byte, byte, byte)


# Triton calls these with eight numbers of each tensor. Its release 3.6 takes no *numbers here.
@triton.jit
def draw_plain(
    z0, z1, z2, z3, z4, z5, z6, z7, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, s4, s5, s6, s7
):  # fmt: skip
    clear = tl.full((), ALL, tl.uint32)
    return draw_octet((z0, z1, z2, z3, z4, z5, z6, z7), None, o0, s0, clear)


@triton.jit
def draw_scaled(
    z0, z1, z2, z3, z4, z5, z6, z7, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, s4, s5, s6, s7,
    x0, x1, x2, x3, x4, x5, x6, x7, l0, l1, l2, l3, l4, l5, l6, l7, b0, b1, b2, b3, b4, b5, b6, b7,
    c0, c1, c2, c3, c4, c5, c6, c7,
):  # fmt: skip
    x = (x0, x1, x2, x3, x4, x5, x6, x7)
    loc, scale = (l0, l1, l2, l3, l4, l5, l6, l7), (b0, b1, b2, b3, b4, b5, b6, b7)
    return draw_octet((z0, z1, z2, z3, z4, z5, z6, z7), (x, loc, scale), o0, s0, c0)


@triton.jit
def selected(x, excess):
    """x where an element is kept, else 0; two at a time."""
    return tl.inline_asm_elementwise(
        "{ .reg .b32 m; prmt.b32 m, $2, $3, 0xeeaa; and.b32 $0, $1, m; }",
        "=r,r,r,r",
        [x, excess],
        x.dtype,
        True,
        2,
    )


@triton.jit
def draw(y, mask, x, octet, z, scaled, key):
    """Stores octets of y and their bytes of the mask. `z` is what F takes; `scaled` has x, loc, the
    scale and whether there are estimates, or nothing. Each thread branches for an octet of its own.
    """
    octet = octet[:, None]
    if len(scaled) == 0:
        excess, bytes = tl.map_elementwise(draw_plain, z, octet, key, pack=8)
    else:
        excess, bytes = tl.map_elementwise(draw_scaled, z, octet, key, *scaled, pack=8)
    tl.store(y, selected(x, excess))
    tl.store(mask, tl.reduce(bytes, 1, first_of).to(tl.uint8))


@triton.jit
def load_parameter(p, place, inside, IS_NUMBER: tl.constexpr, C: tl.constexpr):
    """A location or a scale, at the elements of a tile."""
    if IS_NUMBER:
        return widened(tl.load(p + tl.zeros((1, 1), tl.int32)))
    else:
        return number(tl.load(p + place, inside), C)


@triton.jit
def map_whole(
    y,
    mask,
    x,
    beside,
    seed,
    octet,
    row_step,
    DRAW: tl.constexpr,
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    OCTETS: tl.constexpr,
    LOC_IS_NUMBER: tl.constexpr,
    SCALE_IS_NUMBER: tl.constexpr,
):
    """Maps a whole tile, as ``map_octets`` does. Its first octet is number `octet` of the whole.
    Where vectors lie along the columns, a thread's octets are below each other. It loads all octets
    first: ptxas moves no load across the branch of one."""
    own = tl.arange(0, STEP)
    column = own % (COLUMNS // 8) * 8
    begin = own // (COLUMNS // 8) * row_step + column
    place = elements_of(begin)
    step = 8 * STEP if COLUMNS > 8 * STEP else 8 * STEP // COLUMNS * row_step
    parts = ()
    for i in tl.static_range(OCTETS):
        parts += (tl.load(x + i * step + place),)
    along = elements_of(column)
    key = seed_of(seed)
    bias, loc, scale = beside
    if bias is not None:
        bias = number(tl.load(bias + along), C)
    if loc is not None:
        loc = load_parameter(loc, along, None, LOC_IS_NUMBER, C)
        scale = load_parameter(scale, along, None, SCALE_IS_NUMBER, C)
        inverse = approximate_reciprocal(scale, C)
        above = bits(scale).to(tl.uint32, bitcast=True) - SMALLEST_NORMAL
        is_clear = tl.max(above, 1)[:, None] <= LARGEST_SCALE - SMALLEST_NORMAL
        clear = tl.where(is_clear, ALL, 0).to(tl.uint32)
    for i in tl.static_range(OCTETS):
        loaded = parts[i]
        z = number(loaded, C)
        scaled = ()
        if bias is not None:
            z += bias
            loaded = z.to(loaded.dtype)
        if loc is not None:
            z = (z - loc) * inverse
            scaled = (loaded, loc, scale, clear)
        DRAW(
            y + i * step + place,
            mask + (i * step >> 3) + (begin >> 3),
            loaded,
            octet + (i * step >> 3) + (begin >> 3),
            z,
            scaled,
            key,
        )
