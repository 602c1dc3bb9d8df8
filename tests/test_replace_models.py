"""replace_gelu on architectures of transformers and timm, tiny and with random weights."""

import copy
import pickle
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from replacements import SavedBytes, changes, error, reasons, tree
from torch import Tensor

from gelu_kernels import nn, replace_gelu

transformers = pytest.importorskip("transformers", reason="needs transformers")

RANDOM = torch.Generator().manual_seed(0)
TOKENS = torch.randint(3, 62, (16, 12), generator=RANDOM)
PIXELS = torch.randn(16, 3, 16, 16, generator=RANDOM)
SOUND = torch.randn(16, 8, 32, generator=RANDOM)
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
ENCODER = SIZES | {"intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PATCHES = {"image_size": 16, "patch_size": 8}


def bert():
    config = transformers.BertConfig(vocab_size=64, **ENCODER, **NO_DROPOUT)
    return transformers.BertForMaskedLM(config), {"input_ids": TOKENS}


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), {"input_ids": TOKENS}


def vit():
    config = transformers.ViTConfig(**ENCODER, **NO_DROPOUT, **PATCHES, num_labels=4)
    return transformers.ViTForImageClassification(config), {"pixel_values": PIXELS}


def t5():
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", use_cache=False,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)
    return model, {"input_ids": TOKENS, "decoder_input_ids": TOKENS}


def gemma():
    config = transformers.GemmaConfig(
        vocab_size=64, **ENCODER, num_key_value_heads=1, head_dim=16, use_cache=False
    )
    return transformers.GemmaForCausalLM(config), {"input_ids": TOKENS}


def clip():
    text = ENCODER | {"vocab_size": 64, "max_position_embeddings": 16}
    text |= {"bos_token_id": 62, "eos_token_id": 63}
    config = transformers.CLIPConfig(
        text_config=text, vision_config=ENCODER | PATCHES, projection_dim=16
    )
    return transformers.CLIPModel(config), {"input_ids": TOKENS, "pixel_values": PIXELS}


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_source_positions=16, max_target_positions=16, dropout=0.0,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    return model, {"input_features": SOUND, "decoder_input_ids": TOKENS}


def timm_layers(name):
    """A module of ``timm.layers``, though timm itself imports torchvision, which may not load."""
    if "timm" not in sys.modules:
        spec = find_spec("timm")
        if spec is None:
            pytest.skip("needs timm")
        try:
            import_module("timm")
        except Exception:
            root = Path(spec.origin).parent
            for package, folder in (("timm", root), ("timm.layers", root / "layers")):
                sys.modules[package] = ModuleType(package)
                sys.modules[package].__path__ = [str(folder)]
    return import_module(f"timm.layers.{name}")


def timm_mlp():
    return timm_layers("mlp").Mlp(32, 64, drop=0.0), {"x": PIXELS.view(-1, 32)}


def timm_vit():
    act_layer = timm_layers("activations").QuickGELU
    if not hasattr(sys.modules["timm"], "create_model"):
        pytest.skip("needs a torchvision that this torch can load, for timm")
    model = sys.modules["timm"].models.VisionTransformer(
        img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=2, num_classes=4,
        act_layer=act_layer,
    )  # fmt: skip
    return model, {"x": PIXELS}


# What each has: the class replaced, the gate, where, and the Linear that comes before it; then what
# is left alone.
MODELS = {
    "bert": (bert, "GELUActivation", "none", {
        "bert.encoder.layer.0.intermediate.intermediate_act_fn":
            "bert.encoder.layer.0.intermediate.dense",
        "cls.predictions.transform.transform_act_fn": "cls.predictions.transform.dense",
    }, {}, {}),
    "gpt2": (gpt2, "NewGELUActivation", "tanh", {}, {
        "transformer.h.0.mlp.act": "not fused: transformers.pytorch_utils.Conv1D comes before it",
    }, {}),
    "vit": (vit, "GELUActivation", "none", {
        "vit.layers.0.mlp.activation_fn": "vit.layers.0.mlp.fc1",
    }, {}, {}),
    "t5": (t5, "NewGELUActivation", "tanh", {}, {
        f"{coder}.layer.{i}.DenseReluDense.act": "not fused: the Linear before it has no bias"
        for coder, i in (("encoder.block.0", 1), ("decoder.block.0", 2))
    }, {}),
    "gemma": (gemma, "GELUTanh", "tanh", {}, {
        "model.layers.0.mlp.act_fn": "not fused: the Linear before it has no bias",
    }, {}),
    "clip": (clip, "QuickGELUActivation", "sigmoid", {
        f"{part}_model.encoder.layers.0.mlp.activation_fn":
            f"{part}_model.encoder.layers.0.mlp.fc1" for part in ("text", "vision")
    }, {}, {}),
    "whisper": (whisper, "GELUActivation", "none", {
        f"model.{coder}.layers.0.activation_fn": f"model.{coder}.layers.0.fc1"
        for coder in ("encoder", "decoder")
    }, {}, {"model.encoder": "its forward calls gelu itself"}),
    "timm mlp": (timm_mlp, "GELU", "none", {"act": "fc1"}, {}, {}),
    "timm vit": (timm_vit, "QuickGELU", "sigmoid", {
        "blocks.0.mlp.act": "blocks.0.mlp.fc1",
    }, {}, {}),
}  # fmt: skip


@pytest.fixture(params=MODELS)
def case(request):
    make, old, approximate, fused, not_fused, left_alone = MODELS[request.param]
    torch.manual_seed(0)
    model, inputs = make()
    # Their initial weights are so small that every activation is next to 0; these spread.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return SimpleNamespace(
        model=model.double(), inputs=inputs, old=old, approximate=approximate,
        fused=fused, not_fused=not_fused, left_alone=left_alone,
    )  # fmt: skip


# With a Linear to fuse, without, and of more than one part.
few_models = pytest.mark.parametrize(
    "case",
    [
        name if name in ("bert", "gpt2", "clip") else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
    indirect=True,
)


@pytest.fixture(params=[False, True], ids=["replace", "fuse"])
def fuse_bias(request):
    return request.param


def logits(model: Callable, inputs: dict[str, Tensor]) -> Tensor:
    dtype = next(model.parameters()).dtype
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    output = model(**inputs)
    if isinstance(output, Tensor):
        return output
    return getattr(output, "logits", getattr(output, "logits_per_image", None))


def loss(model: Callable, inputs: dict[str, Tensor]) -> Tensor:
    return -logits(model, inputs).log_softmax(-1)[..., 0].mean()


def compute(model, inputs):
    """Output and gradients of the parameters, in float64."""
    y = logits(model, inputs)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(
        -y.log_softmax(-1)[..., 0].mean(), parameters, allow_unused=True
    )
    return [t.detach().double() for t in (y, *gradients) if t is not None]


def distance(actual, expected):
    """Of all elements, relative, in the Euclidean norm."""
    a, e = (torch.cat([t.flatten() for t in tensors]) for tensors in (actual, expected))
    return float((a - e).norm() / e.norm())


def test_what_is_replaced(case):
    replacement = replace_gelu(case.model)
    places = {*case.fused, *case.not_fused}
    assert changes(replacement).keys() == places
    for change in replacement.changed:
        assert type(change.old).__name__ == case.old and type(change.new) is nn.GELU
        assert change.new.approximate == case.approximate
    assert reasons(replacement) == case.left_alone


def test_what_is_fused(case):
    keys = list(case.model.state_dict())
    parameters = list(case.model.parameters())
    replacement = replace_gelu(case.model, fuse_bias=True)
    new = {change.name: change.new for change in replacement.changed}
    assert new.keys() == {*case.fused, *case.fused.values(), *case.not_fused}
    for activation, linear in case.fused.items():
        assert type(new[activation]) is torch.nn.Identity
        assert type(new[linear]) is nn.LinearGELU and new[linear].approximate == case.approximate
    assert reasons(replacement) == case.not_fused | case.left_alone
    assert list(case.model.state_dict()) == keys
    assert all(a is b for a, b in zip(case.model.parameters(), parameters, strict=True))


def test_float64(case):
    """Outputs and gradients are within 1e-10 of the unpatched model's."""
    expected = compute(case.model, case.inputs)
    for fuse_bias in (False, True):
        with replace_gelu(case.model, fuse_bias=fuse_bias):
            assert error(compute(case.model, case.inputs), expected) < 1e-10


def test_bfloat16(case):
    """Outputs and gradients are at most 5/4 as far from float64's as the unpatched model's.

    Another rounding is as often nearer as farther: 0.84 to 1.16 times over six seeds.
    """
    model = case.model.bfloat16()
    exact = compute(copy.deepcopy(model).double(), case.inputs)
    unpatched = distance(compute(model, case.inputs), exact)
    for fuse_bias in (False, True):
        with replace_gelu(model, fuse_bias=fuse_bias):
            patched = distance(compute(model, case.inputs), exact)
        assert 0 < patched < min(1.25 * unpatched, 2**-5)


@few_models
def test_training(case, fuse_bias):
    """Three steps lead to the same parameters."""
    models = [case.model, copy.deepcopy(case.model)]
    replace_gelu(models[1], fuse_bias=fuse_bias)
    losses = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(model, case.inputs)
            value.backward()
            optimizer.step()
            losses.append(value.item())
    assert losses[2] < losses[0]
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-12)
    a, b = ([*model.parameters()] for model in models)
    assert error(b, a) < 1e-10


def test_memory(case):
    """What autograd keeps, the parameters aside, is no more than before."""
    kept = []
    for patch in (nullcontext, replace_gelu, partial(replace_gelu, fuse_bias=True)):
        with patch(case.model), SavedBytes() as saved:
            logits(case.model, case.inputs)
        for parameter in case.model.parameters():
            saved.storages.pop(parameter.untyped_storage().data_ptr(), None)
        kept.append(saved.total)
    assert kept[1] <= kept[0] and kept[2] <= kept[0]


def test_state_dict_both_ways(case, fuse_bias):
    plain = copy.deepcopy(case.model)
    replace_gelu(case.model, fuse_bias=fuse_bias)
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.add_(0.01)
    plain.load_state_dict(case.model.state_dict())
    assert error([logits(case.model, case.inputs)], [logits(plain, case.inputs)]) < 1e-10
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.sub_(0.02)
    case.model.load_state_dict(plain.state_dict())
    assert error([logits(case.model, case.inputs)], [logits(plain, case.inputs)]) < 1e-10


def test_save_pretrained(tmp_path):
    model, inputs = bert()
    replacement = replace_gelu(model, fuse_bias=True)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    replacement.restore()
    assert torch.equal(logits(loaded.eval(), inputs), logits(model.eval(), inputs))


def test_copies_and_restore(case, fuse_bias):
    before = tree(case.model)
    unpatched = logits(case.model, case.inputs)
    with replace_gelu(case.model, fuse_bias=fuse_bias):
        expected = logits(case.model, case.inputs)
        copies = [copy.deepcopy(case.model), pickle.loads(pickle.dumps(case.model))]
    for copied in copies:
        assert torch.equal(logits(copied, case.inputs), expected)
        assert any(type(module) in (nn.GELU, nn.LinearGELU) for module in copied.modules())
    assert tree(case.model) == before
    assert torch.equal(logits(case.model, case.inputs), unpatched)


@few_models
def test_compile(case):
    expected = compute(case.model, case.inputs)
    replace_gelu(case.model, fuse_bias=True)
    torch.compiler.reset()
    compiled = torch.compile(case.model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, case.inputs), expected) < 1e-10


# Each class beside its own forward


def gelu_classes():
    """Every activation of transformers with GELU in its name, by the name configurations use."""
    known = {
        "gelu": "none", "gelu_python": "none", "gelu_new": "tanh", "gelu_fast": "tanh",
        "gelu_pytorch_tanh": "tanh", "gelu_python_tanh": "tanh", "gelu_accurate": "tanh",
        "quick_gelu": "sigmoid",
    }  # fmt: skip
    return {name: known.get(name) for name in transformers.activations.ACT2CLS if "gelu" in name}


@pytest.mark.parametrize("name", gelu_classes())
def test_transformers_activations(name):
    approximate = gelu_classes()[name]
    old = transformers.activations.ACT2FN[name]
    model = torch.nn.Sequential(old)
    replacement = replace_gelu(model)
    if approximate is None:
        assert name == "gelu_10" and model[0] is old
        assert "ClippedGELUActivation is not known" in reasons(replacement)["0"]
    else:
        assert model[0].approximate == approximate
        check_formula(old, model[0], 1e-11 if name == "gelu_fast" else 1e-14)


@pytest.mark.parametrize("name", ["GELU", "GELUTanh", "QuickGELU"])
def test_timm_activations(name):
    old = getattr(timm_layers("activations"), name)()
    model = torch.nn.Sequential(old)
    replace_gelu(model)
    assert type(model[0]) is nn.GELU
    check_formula(old, model[0], 1e-14)


def test_timm_functions_are_reported():
    model = torch.nn.Module()
    model.act = timm_layers("activations").gelu
    replacement = replace_gelu(model)
    assert not replacement.changed and "gelu is not known" in reasons(replacement)["act"]


def check_formula(old, new, bound):
    """Value and derivative agree to ``bound`` times |x|, the rounding of 1 + erf or 1 + tanh."""
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64, requires_grad=True)
    x_large = x.detach().abs() + 1
    for a, b in zip(
        *([f(x), *torch.autograd.grad(f(x).sum(), x)] for f in (old, new)), strict=True
    ):
        assert ((a - b).abs() <= bound * x_large).all()
