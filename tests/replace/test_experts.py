"""replace_activations on the clamped gated linear units of transformers: one operator computes the
whole unit, with the limit that the module has."""

import copy
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from gelu_kernels import replace_activations

pytest.importorskip("transformers", reason="needs transformers")

LIMIT = 0.5
SIZES = {
    "hidden_size": 8, "intermediate_size": 6, "moe_intermediate_size": 6,
    "dense_intermediate_size": 6, "num_local_experts": 3, "num_experts": 3,
}  # fmt: skip
SWITCHES = {"hidden_act": "silu", "mlp_bias": False, "_experts_implementation": "eager"}
# By class: its unit's method, and the operator that computes it.
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
WITH_ALPHA = [name for name, (_, operator) in UNITS.items() if operator == "glu(swish)"]
RECOMPUTED = [name for name, (method, _) in UNITS.items() if method == "forward"]
MODES = ({}, {"fuse_bias": True}, {"recompute": True}, {"fuse_bias": True, "recompute": True})
INTO_FLOAT32 = "openai_privacy_filter.OpenAIPrivacyFilterExperts"  # all but its unit


def tiny(name, *arguments, alpha=1.702, **options):
    folder, cls = name.split(".")
    module = import_module(f"transformers.models.{folder}.modeling_{folder}")
    limits = {"swiglu_limit": LIMIT, "swiglu_alpha": alpha, "swiglu_limits_shared": [LIMIT]}
    config = SimpleNamespace(**SIZES, **SWITCHES, **limits)
    made = getattr(module, cls)(config, *arguments, **options).double()
    random = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
    return made


def rows(columns):
    random = torch.Generator().manual_seed(1)
    return 2 * torch.randn(16, columns, generator=random, dtype=torch.float64)


def results(module, method):
    """Values and gradients of the unit, and of the module."""
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


def operators(replacement):
    methods = [c for c in replacement.changed if not isinstance(c.old, torch.nn.Module)]
    return {c.name: c.new for c in methods}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "+".join(mode) or "plain")
@pytest.mark.parametrize("name", UNITS)
def test_one_operator_computes_the_whole_unit(name, mode):
    module = tiny(name)
    method, operator = UNITS[name]
    expected = results(copy.deepcopy(module), method)
    replacement = replace_activations(module, **mode)
    if mode.get("recompute") and method == "forward":
        operator = operator.replace("glu(", "glu_linear(").replace(")", ", down_proj)")
    assert operators(replacement) == {method: (operator,)}
    assert not replacement.left_alone
    assert_same(results(module, method), expected)


@pytest.mark.parametrize("name", UNITS)
def test_the_operator_has_the_limit(name, monkeypatch):
    from gelu_kernels import functional

    module, (method, _), limits = tiny(name), UNITS[name], []
    replace_activations(module)
    glu = functional.glu
    monkeypatch.setattr(
        functional, "glu", lambda *a, limit, **k: limits.append(limit) or glu(*a, limit=limit, **k)
    )
    results(module, method)
    assert set(limits) == {LIMIT}


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith("Experts")])
def test_experts_give_what_they_gave(name):
    module = tiny(name)
    x = rows(SIZES["hidden_size"])
    index = torch.arange(32).view(16, 2) % SIZES["num_local_experts"]
    weights = rows(2).softmax(-1)
    expected = module(x, index, weights)
    replace_activations(module)
    tolerance = 1e-5 if name == INTO_FLOAT32 else 1e-9
    assert_same([module(x, index, weights)], [expected], tolerance)


@pytest.mark.parametrize("name", WITH_ALPHA)
def test_another_alpha_is_no_gate_of_ours(name):
    module = tiny(name, alpha=1.5)
    method = UNITS[name][0]
    expected = results(copy.deepcopy(module), method)
    replacement = replace_activations(module)
    assert not operators(replacement)
    assert method in replacement.left_alone | replacement.not_fused
    assert_same(results(module, method), expected)


@pytest.mark.parametrize("name", WITH_ALPHA)
def test_alpha_may_change_after_the_call(name):
    module, method = tiny(name), UNITS[name][0]
    replace_activations(module)
    other = tiny(name, alpha=1.5)
    for attribute in vars(other):
        if attribute.endswith("alpha"):
            setattr(module, attribute, 1.5)
    assert_same(results(module, method), results(other, method))


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("limit", [2.0, 0.0, -1.0, float("inf")])
def test_the_limit_may_change_after_the_call(name, limit):
    module, method = tiny(name), UNITS[name][0]
    other = copy.deepcopy(module)
    replace_activations(module)
    for changed in (module, other):
        for attribute in vars(changed):
            if attribute.endswith("limit"):
                setattr(changed, attribute, limit)
    assert_same(results(module, method), results(other, method))


@pytest.mark.parametrize(("cls", "method"), [("MLP", "forward"), ("Experts", "_apply_gate")])
def test_a_clamp_after_the_gate_is_reported(cls, method):
    arguments = {"layer_idx": 0} if cls == "MLP" else {"swiglu_limit": LIMIT}
    module = tiny(f"step3p7.Step3p7{cls}", **arguments)
    expected = results(copy.deepcopy(module), method)
    replacement = replace_activations(module)
    assert [change.name for change in replacement.changed] == ["act_fn"]
    assert replacement.not_fused == {"act_fn": "clamp stands between it and the product"}
    assert_same(results(module, method), expected)


@pytest.mark.parametrize("name", ["inkling2.Inkling2", "inkling2_loop.Inkling2Loop"])
def test_capped_units_of_another_formula_are_reported(name):
    config = SimpleNamespace(
        **SIZES, **SWITCHES, n_routed_experts=3, mlp_gate_softcap=2.0, mlp_up_softcap=2.0
    )
    folder, prefix = name.split(".")
    module = import_module(f"transformers.models.{folder}.modeling_{folder}")
    replacement = replace_activations(getattr(module, f"{prefix}Experts")(config))
    assert not replacement.changed
    assert any(n.startswith("act_fn") for n in replacement.left_alone | replacement.not_fused)
