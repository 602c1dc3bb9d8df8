"""Where the results of operators lie, and what the ranks send each other to compute them."""

import itertools

import torch
import torch.distributed as dist
from torch.autograd import grad
from torch.distributed.tensor import Partial
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.functional import gelu
from torch.utils._pytree import tree_leaves

from gelu_kernels import functional
from tests import bits
from tests.oracles import soi_oracle
from tests.pytorch.distributed.ranks import (
    S0,
    S1,
    S2,
    P,
    R,
    assert_close,
    check,
    distributed,
    drawn_mask,
    leaf,
    line,
    on_line,
    random,
    seed_each_rank,
)

ops = torch.ops.gelu_kernels


@check
def each_rank_computes_its_own_part() -> None:
    """Without communication wherever possible, and placed as torch's own GELU places it."""
    x, bias, dy = random(4, 4, 4), random(4), random(4, 4, 4)
    for p, of_dbias in ((R, R), (S0, P), (S1, P), (S2, S0)):
        parts = [leaf(t) for t in on_line(p, x, bias)]
        for of_dy in [p, P] if p == R else [p]:
            part_dy = distributed(dy, line(), [of_dy])
            for function in (functional.bias_gelu, functional.bias_soi_map):
                # which does not count the broadcast of a seed
                with CommDebugMode() as communication:
                    y = function(*parts)
                    dx, dbias = grad(y, parts, part_dy)
                assert communication.get_total_counts() == 0, communication.get_comm_counts()
                assert y.placements == (p,)
                assert dx.placements == (of_dy,)
                assert dbias.placements == (P if of_dy == P else of_dbias,)
    for p in (R, S0, S1, S2, P):
        part = distributed(x, line(), [p])
        with CommDebugMode() as communication:
            y = functional.gelu(part)
        assert communication.get_total_counts() == (p == P)
        assert y.placements == gelu(part).placements, p


@check
def mean_may_stay_pending() -> None:
    x, dy = random(4, 8), random(4, 8, seed=1)
    whole = leaf(x)
    (dx,) = grad(gelu(whole), whole, dy)
    part = leaf(distributed(x, line(), [R]))
    mean = distributed(dy, line(), [Partial("avg")])
    (part_dx,) = grad(functional.gelu(part), part, mean)
    assert part_dx.placements == (Partial("avg"),)
    assert_close(part_dx, dx)
    # On another dimension of the mesh dbias may be a sum: with a bias the mean is reduced first.
    bias = leaf(distributed(torch.zeros(8, dtype=torch.float64), line(), [R]))
    for function, expected in (
        (functional.bias_gelu, dx),
        (functional.bias_soi_map, soi_oracle.select(drawn_mask(x), dy)),
    ):
        seed_each_rank()
        gradients = grad(function(part, bias), (part, bias), mean)
        assert_close(gradients, [expected, expected.sum(0)])


@check
def weight_gradients() -> None:
    """No communication if rows, or columns of either matrix, are cut, or a sum is pending."""
    x, up, dy = random(4, 6, 8), random(4, 6, 8, seed=1), random(4, 6, 12, seed=2)
    gate_bias = random(8, seed=3)
    gated = gelu(x + gate_bias), gelu(x) * up
    expected = [dy.flatten(0, 1).t() @ hidden.flatten(0, 1) for hidden in gated]
    for of_dy, of_x, of_dweight in (
        (R, R, R), (S0, S0, P), (S1, S1, P), (S2, R, S0), (R, S2, S1), (P, R, P)
    ):  # fmt: skip
        part_x, part_up, part_bias = on_line(of_x, x, up, gate_bias)
        part_dy = distributed(dy, line(), [of_dy])
        with CommDebugMode() as communication:
            of_gate = ops.gate_linear_backward_weight(part_dy, part_x, part_bias, "normal")
            of_glu = ops.glu_linear_backward_weight(part_dy, part_x, part_up, "normal")
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        assert of_gate.placements == of_glu.placements == (of_dweight,)
        assert_close([of_gate, of_glu], expected)


BLOCKS = {"scaling": "BlockWise1x128", "along": "both", "mode": "rceil"}
SWIZZLED = {"swizzle": "SWIZZLE_32_4_4"}
# Recipes, and the rows of which a rank needs a multiple; None if it needs all.
QUANTIZED = (
    ({"scaling": "TensorWise", "scale": torch.ones(())}, 1),
    ({"scaling": "RowWise"}, 1),
    ({"scaling": "RowWise", "along": "both"}, None),
    (BLOCKS | {"along": "row"}, 1),
    (BLOCKS, 128),
    (BLOCKS | {"packed": True}, 512),
    ({"along": "both"}, 32),
    (SWIZZLED, 128),
    (SWIZZLED | {"along": "both"}, None),
    ({"offsets": torch.tensor([32, 32, 128], dtype=torch.int32)}, None),
)


@check
def quantized_operators() -> None:
    """The bits of one process; no communication where each rank's rows are whole blocks."""
    ranks = dist.get_world_size()
    for (chosen, unit), is_whole in itertools.product(QUANTIZED, (True, False)):
        rows = 128 if unit is None else max(unit, 32) * (ranks if is_whole else 1)
        has_parts = unit is not None and rows % (unit * ranks) == 0
        x, dy, up = (random(rows, 128, seed=i).float() for i in range(3))
        bias, weight = random(128, seed=3).float(), random(rows, seed=4).float()
        part_x, part_bias, part_dy, part_up = on_line(S0, x, bias, dy, up)
        part_weight = distributed(weight, line(), [S0])
        placed = {
            k: distributed(v, line(), [R]) if isinstance(v, torch.Tensor) else v
            for k, v in chosen.items()
        }
        whole = [functional.quantized_gate(x, bias, **chosen)]
        with CommDebugMode() as communication:
            found = [functional.quantized_gate(part_x, part_bias, **placed)]
            if "scale" not in chosen:
                found += functional.quantized_gate_backward(part_dy, part_x, part_bias, **placed)
                numbers = {"gate": "silu", "limit": 1.0, "weight": part_weight}
                found += functional.quantized_glu_backward(
                    part_dy, part_x, part_up, **numbers, **placed
                )
        assert (communication.get_total_counts() == 0) == has_parts, chosen
        if "scale" not in chosen:
            whole += functional.quantized_gate_backward(dy, x, bias, **chosen)
            numbers = {"gate": "silu", "limit": 1.0, "weight": weight}
            whole += functional.quantized_glu_backward(dy, x, up, **numbers, **chosen)
        for part, expected in zip(tree_leaves(found), tree_leaves(whole), strict=True):
            (placement,) = part.placements
            if placement.is_partial():
                torch.testing.assert_close(part.full_tensor(), expected)  # a sum, or a maximum
                continue
            if placement.is_shard():  # gloo does not gather eight bits
                expected = expected.chunk(ranks, placement.dim)[dist.get_rank()]
            assert bits.same(part.to_local(), expected), chosen
