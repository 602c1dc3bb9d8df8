"""replace_activations on the clamped gated linear units of transformers: one operator computes the
whole unit, with the limit that the module has."""

import copy
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from gelu_kernels import replace_activations
from tests.cases import each
from tests.replace.equivalence.outcomes import MODES
from tests.replace.replacements import Operators, operators

pytest.importorskip("transformers", reason="needs transformers")

LIMIT = 0.5
SIZES = {
    "hidden_size": 8, "intermediate_size": 6, "moe_intermediate_size": 6,
    "dense_intermediate_size": 6, "num_local_experts": 3, "num_experts": 3,
}  # fmt: skip
SWITCHES = {"hidden_act": "silu", "mlp_bias": False, "_experts_implementation": "eager"}
# By class: the method with its unit, and the operator that computes it.
UNITS = {
    "glm5_next.Glm5NextTextExperts": ("_apply_gate", "glu(silu)"),
    "glm5_next.Glm5NextTextMLP": ("forward", "glu(act_fn)"),
    "hy_v4.HYV4Experts": ("_apply_gate", "glu(silu)"),
    "minimax_m3_vl.MiniMaxM3VLDenseMLP": ("forward", "glu(swish)"),
    "minimax_m3_vl.MiniMaxM3VLExperts": ("_apply_gate", "glu(swish)"),
    "deepseek_v4.DeepseekV4MLP": ("forward", "glu(act_fn)"),
    "deepseek_v4.DeepseekV4Experts": ("_apply_gate", "glu(act_fn)"),
    "gpt_oss.GptOssExperts": ("_apply_gate", "glu(swish)"),
    "openai_privacy_filter.OpenAIPrivacyFilterExperts": ("_apply_gate", "glu(swish)"),
}
# Computes in float32, except for its unit
INTO_FLOAT32 = "openai_privacy_filter.OpenAIPrivacyFilterExperts"


def tiny(name, **options):
    folder, cls = name.split(".")
    module = import_module(f"transformers.models.{folder}.modeling_{folder}")
    limits = {"swiglu_limit": LIMIT, "swiglu_alpha": 1.702, "swiglu_limits_shared": [LIMIT]}
    config = SimpleNamespace(**SIZES, **SWITCHES, **limits)
    made = getattr(module, cls)(config, **options).double()
    random = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    return made


def rows(columns):
    random = torch.Generator().manual_seed(1)
    return 2 * torch.randn(16, columns, generator=random, dtype=torch.float64)


def results(module, method):
    """Values and gradients of the unit, and of the whole module where ``forward`` is the unit."""
    x = rows(SIZES["hidden_size"] if method == "forward" else 2 * SIZES["intermediate_size"])
    x.requires_grad_()
    y = getattr(module, method)(x)
    gradients = torch.autograd.grad((y * y.detach().cos()).sum(), x)
    if method == "forward":
        parameters = [*module.parameters()]
        gradients += torch.autograd.grad((module(x) * y.detach().cos()).sum(), parameters)
    return [y, *gradients]


def assert_same(actual, expected, tolerance=1e-9):
    for a, e in zip(actual, expected, strict=True):
        assert float((a - e).detach().abs().max()) <= tolerance * float(e.detach().abs().max())


@each(lambda name, mode: mode in ("fuse_bias", "recompute"), name=UNITS, mode=MODES)
def test_one_operator_computes_the_whole_unit(name, mode):
    module = tiny(name)
    method, operator = UNITS[name]
    expected = results(copy.deepcopy(module), method)
    replacement = replace_activations(module, **MODES[mode])
    if "recompute" in MODES[mode] and method == "forward":
        operator = operator.replace("glu(", "glu_linear(").replace(")", ", down_proj)")
    assert operators(replacement) == {method: operator}
    assert not replacement.left_alone
    with Operators() as called:
        found = results(module, method)
    assert "aten::clamp" not in called.names
    assert_same(found, expected)


@each(name=[name for name in UNITS if name.endswith("Experts")])
def test_experts_give_what_they_gave(name):
    module = tiny(name)
    x = rows(SIZES["hidden_size"])
    index = torch.arange(32).view(16, 2) % SIZES["num_local_experts"]
    weights = rows(2).softmax(-1)
    expected = module(x, index, weights)
    replace_activations(module)
    tolerance = 1e-5 if name == INTO_FLOAT32 else 1e-9
    assert_same([module(x, index, weights)], [expected], tolerance)


@each(name=UNITS)
def test_the_limit_may_change_after_the_call(name):
    module, method = tiny(name), UNITS[name][0]
    other = copy.deepcopy(module)
    replace_activations(module)
    for limit in (2.0, 0.0, -1.0, float("inf")):
        for changed in (module, other):
            for attribute in vars(changed):
                if attribute.endswith("limit"):
                    setattr(changed, attribute, limit)
        assert_same(results(module, method), results(other, method))


STEP = {"MLP": ("forward", {"layer_idx": 0}), "Experts": ("_apply_gate", {"swiglu_limit": LIMIT})}


@each(name=STEP)
def test_a_clamp_after_the_gate_is_reported(name):
    method, arguments = STEP[name]
    module = tiny(f"step3p7.Step3p7{name}", **arguments)
    expected = results(copy.deepcopy(module), method)
    replacement = replace_activations(module)
    assert [change.name for change in replacement.changed] == ["act_fn"]
    assert replacement.not_fused == {"act_fn": "clamp stands between it and the product"}
    assert_same(results(module, method), expected)


@each(name=["inkling2.Inkling2", "inkling2_loop.Inkling2Loop"])
def test_capped_units_of_another_formula_are_reported(name):
    config = SimpleNamespace(
        **SIZES, **SWITCHES, n_routed_experts=3, mlp_gate_softcap=2.0, mlp_up_softcap=2.0
    )
    folder, prefix = name.split(".")
    module = import_module(f"transformers.models.{folder}.modeling_{folder}")
    replacement = replace_activations(getattr(module, f"{prefix}Experts")(config))
    assert not replacement.changed
    assert any(n.startswith("act_fn") for n in replacement.left_alone | replacement.not_fused)
