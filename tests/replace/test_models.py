"""replace_activations on architectures of transformers and timm, tiny and with random weights."""

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
from torch import Tensor

from gelu_kernels import replace_activations
from tests.replace.replacements import SavedBytes, changes, error, operators, reasons, tree

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


def decoder(name, **arguments):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=64, **ENCODER, num_key_value_heads=1, head_dim=16, use_cache=False, **arguments
    )
    return getattr(transformers, f"{name}ForCausalLM")(config), {"input_ids": TOKENS}


# Every token goes to every expert: the choice of one is not continuous.
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}


def bloom():
    config = transformers.BloomConfig(
        vocab_size=64, hidden_size=32, n_layer=1, n_head=2, use_cache=False
    )
    return transformers.BloomForCausalLM(config), {"input_ids": TOKENS}


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


MLP = "model.layers.0.mlp."
GATED_MLP = {MLP: ("act_fn", "glu(act_fn)", "", "glu_linear(act_fn, down_proj)")}
SWIGLU = ("SiLUActivation", "logistic", GATED_MLP)


def linear(gate, first, second=""):
    """A gate after one linear layer, and before another, if that alone takes its result."""
    return gate, "", f"bias_gelu({first}, {gate})", second and f"gate_linear({gate}, {second})"


# What each has: the class replaced, the gate, and by module the activation's name, and what
# computes ``forward`` without options, with fuse_bias (if anything else) and with recompute.
MODELS = {
    "bert": (bert, "GELUActivation", "normal", {
        "bert.encoder.layer.0.intermediate.": linear("intermediate_act_fn", "dense"),
        "cls.predictions.transform.": linear("transform_act_fn", "dense"),
    }),
    "gpt2": (gpt2, "NewGELUActivation", "normal_tanh", {
        "transformer.h.0.mlp.": ("act", "", "", "gate_linear(act, c_proj)"),
    }),
    "bloom": (bloom, "BloomGelu", "normal_tanh", {
        "transformer.h.0.mlp.": linear("gelu_impl", "dense_h_to_4h"),
    }),
    "vit": (vit, "GELUActivation", "normal", {
        "vit.layers.0.mlp.": linear("activation_fn", "fc1", "fc2"),
    }),
    "t5": (t5, "NewGELUActivation", "normal_tanh", {
        "encoder.block.0.layer.1.DenseReluDense.": ("act", "glu(act)", "", ""),
        "decoder.block.0.layer.2.DenseReluDense.": ("act", "glu(act)", "", ""),
    }),
    "gemma": (partial(decoder, "Gemma"), "GELUTanh", "normal_tanh", GATED_MLP),
    "llama": (partial(decoder, "Llama"), *SWIGLU),
    "mistral": (partial(decoder, "Mistral"), *SWIGLU),
    "qwen3": (partial(decoder, "Qwen3"), *SWIGLU),
    "phi3": (partial(decoder, "Phi3", pad_token_id=0), "SiLUActivation", "logistic", {
        MLP: ("activation_fn", "glu(activation_fn)", "", "glu_linear(activation_fn, down_proj)"),
    }),
    "mixtral": (partial(decoder, "Mixtral", **EXPERTS), "SiLUActivation", "logistic", {
        MLP + "experts.": ("act_fn", "glu(act_fn)", "", ""),
    }),
    "gpt-oss": (partial(decoder, "GptOss", swiglu_limit=0.5, **EXPERTS), "", None, {}),
    "clip": (clip, "QuickGELUActivation", "logistic_1702", {
        f"{part}_model.encoder.layers.0.mlp.": linear("activation_fn", "fc1", "fc2")
        for part in ("text", "vision")
    }),
    "whisper": (whisper, "GELUActivation", "normal", {
        f"model.{coder}.layers.0.": linear("activation_fn", "fc1")
        for coder in ("encoder", "decoder")
    }),
    "timm mlp": (timm_mlp, "GELU", "normal", {"": linear("act", "fc1")}),
    "timm vit": (timm_vit, "QuickGELU", "logistic_1702", {
        "blocks.0.mlp.": linear("act", "fc1"),
    }),
}  # fmt: skip

# Other methods that are fused, whatever the options are.
METHODS = {
    "mixtral": {MLP + "experts._apply_gate": "glu(act_fn)"},
    "gpt-oss": {MLP + "experts._apply_gate": "glu(swish)"},
    "whisper": {"model.encoder.forward": "gate(gelu), gate(gelu)"},
}


@pytest.fixture(params=MODELS)
def case(request):
    make, old, gate, owners = MODELS[request.param]
    torch.manual_seed(0)
    model, inputs = make()
    # Their initial weights are so small that every activation is next to 0; these spread.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                weight = parameter[0, 0] if "experts" in name else parameter[0]
                parameter.normal_(0, weight.numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    # Bloom has 8 digits of sqrt(2/pi): that moves outputs by 2e-9 and losses by 4e-10.
    bound, loss_bound = (1e-8, 1e-9) if request.param == "bloom" else (1e-10, 1e-12)
    return SimpleNamespace(
        model=model.double(), inputs=inputs, old=old, gate=gate, owners=owners, bound=bound,
        loss_bound=loss_bound, methods=METHODS.get(request.param, {}),
    )  # fmt: skip


# With a Linear to fuse, of more than one part, and with a gated linear unit.
few_models = pytest.mark.parametrize(
    "case",
    [
        name if name in ("bert", "clip", "llama") else pytest.param(name, marks=pytest.mark.slow)
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


def after_a_step(model, inputs):
    """The parameters after a step of SGD, in float64. The model stays as it is."""
    model = copy.deepcopy(model)
    loss(model, inputs).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    return [parameter.detach().double() for parameter in model.parameters()]


def distance(actual, expected):
    """Of all elements, relative, in the Euclidean norm."""
    a, e = (torch.cat([t.flatten() for t in tensors]) for tensors in (actual, expected))
    return float((a - e).norm() / e.norm())


def test_what_is_replaced(case):
    replacement = replace_activations(case.model)
    names = {owner + names[0] for owner, names in case.owners.items()}
    assert changes(replacement).keys() == names
    for change in replacement.changed:
        if change.name in names:
            assert type(change.old).__name__ == case.old
            assert change.new == (f"gate({case.gate})",)
    fused = {owner + "forward": names[1] for owner, names in case.owners.items() if names[1]}
    assert operators(replacement) == case.methods | fused
    assert not reasons(replacement)


@pytest.mark.parametrize("option", ["fuse_bias", "recompute"])
def test_what_is_fused(case, option):
    """Of the parameters, the state dict and the layers nothing changes."""
    before, keys = tree(case.model), list(case.model.state_dict())
    parameters = list(case.model.parameters())
    index = 2 if option == "fuse_bias" else 3
    with replace_activations(case.model, **{option: True}) as replacement:
        fused = {
            o + "forward": n[index] or n[1] for o, n in case.owners.items() if n[index] or n[1]
        }
        assert operators(replacement) == case.methods | fused
        left = {owner + n[0] for owner, n in case.owners.items() if not (n[index] or n[1])}
        why = replacement.not_fused if option == "fuse_bias" else replacement.not_recomputed
        assert left <= why.keys()
        assert list(case.model.state_dict()) == keys
        assert all(a is b for a, b in zip(case.model.parameters(), parameters, strict=True))
        assert all(
            isinstance(module, before[name][0])
            for name, module in case.model.named_modules()
            if name not in changes(replacement)
        )
    assert tree(case.model) == before


def test_float64(case):
    """Outputs and gradients are within 1e-10 of the unpatched model's, where its numbers are exact
    to that."""
    expected = compute(case.model, case.inputs)
    for fuse_bias in (False, True):
        with replace_activations(case.model, fuse_bias=fuse_bias):
            assert error(compute(case.model, case.inputs), expected) < case.bound


def test_bfloat16(case):
    """Outputs and gradients are at most 5/4 as far from float64's as the unpatched model's.

    Another rounding is as often nearer as farther: 0.84 to 1.16 times over six seeds.
    """
    model = case.model.bfloat16()
    exact = compute(copy.deepcopy(model).double(), case.inputs)
    unpatched = distance(compute(model, case.inputs), exact)
    for fuse_bias in (False, True):
        with replace_activations(model, fuse_bias=fuse_bias):
            patched = distance(compute(model, case.inputs), exact)
        assert 0 < patched < min(1.25 * unpatched, 2**-5)


def test_a_bfloat16_step(case):
    """Of most parameters the rounding of the step is all of the error: 0.997 to 1.002 times as much
    over six seeds."""
    model = case.model.bfloat16()
    exact = after_a_step(copy.deepcopy(model).double(), case.inputs)
    unpatched = distance(after_a_step(model, case.inputs), exact)
    with replace_activations(model):
        patched = distance(after_a_step(model, case.inputs), exact)
    assert 0 < patched < 1.005 * unpatched


@few_models
def test_training(case, fuse_bias):
    """Three steps lead to the same parameters."""
    models = [case.model, copy.deepcopy(case.model)]
    replace_activations(models[1], fuse_bias=fuse_bias)
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
    assert losses[3:] == pytest.approx(losses[:3], rel=case.loss_bound)
    a, b = ([*model.parameters()] for model in models)
    assert error(b, a) < case.bound


def test_memory(case):
    """What autograd keeps, the parameters aside, is no more than before."""
    kept = []
    for patch in (nullcontext, replace_activations, partial(replace_activations, fuse_bias=True)):
        with patch(case.model), SavedBytes() as saved:
            logits(case.model, case.inputs)
        for parameter in case.model.parameters():
            saved.storages.pop(parameter.untyped_storage().data_ptr(), None)
        kept.append(saved.total)
    assert kept[1] <= kept[0] and kept[2] <= kept[0]


def test_state_dict_both_ways(case, fuse_bias):
    plain = copy.deepcopy(case.model)
    replace_activations(case.model, fuse_bias=fuse_bias)
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.add_(0.01)
    plain.load_state_dict(case.model.state_dict())
    assert error([logits(case.model, case.inputs)], [logits(plain, case.inputs)]) < case.bound
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.sub_(0.02)
    case.model.load_state_dict(plain.state_dict())
    assert error([logits(case.model, case.inputs)], [logits(plain, case.inputs)]) < case.bound


def test_save_pretrained(tmp_path):
    model, inputs = bert()
    replacement = replace_activations(model, fuse_bias=True)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    replacement.restore()
    assert torch.equal(logits(loaded.eval(), inputs), logits(model.eval(), inputs))


def test_copies_and_restore(case, fuse_bias):
    before = tree(case.model)
    unpatched = logits(case.model, case.inputs)
    with replace_activations(case.model, fuse_bias=fuse_bias) as replacement:
        expected = logits(case.model, case.inputs)
        copies = [copy.deepcopy(case.model), pickle.loads(pickle.dumps(case.model))]
        names = [change.name.rpartition(".")[0] for change in replacement.changed]
        kinds = {name: type(case.model.get_submodule(name)) for name in names}
    for copied in copies:
        assert torch.equal(logits(copied, case.inputs), expected)
        assert {name: type(copied.get_submodule(name)) for name in kinds} == kinds
    assert tree(case.model) == before
    assert torch.equal(logits(case.model, case.inputs), unpatched)


@few_models
def test_compile(case):
    expected = compute(case.model, case.inputs)
    replace_activations(case.model, fuse_bias=True)
    torch.compiler.reset()
    compiled = torch.compile(case.model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, case.inputs), expected) < case.bound


# Recomputing


def test_recomputing_has_the_same_bits(case):
    """And keeps a tensor less for each layer."""
    kept, found = [], []
    for recompute in (False, True):
        with replace_activations(case.model, recompute=recompute):
            with SavedBytes() as saved:
                logits(case.model, case.inputs)
            kept.append(saved.total)
            found.append(compute(case.model, case.inputs))
    assert all(map(torch.equal, *found))
    assert (kept[1] < kept[0]) == any(names[3] for names in case.owners.values())


@few_models
def test_recomputing_compiles(case):
    with replace_activations(case.model):
        expected = compute(case.model, case.inputs)
    replace_activations(case.model, recompute=True)
    torch.compiler.reset()
    compiled = torch.compile(case.model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, case.inputs), expected) < case.bound


# Each class beside its own forward


def activation_classes():
    """Of transformers, by the names that configurations use: all that are a GELU or a SiLU."""
    known = {
        "gelu": "normal", "gelu_python": "normal", "gelu_new": "normal_tanh",
        "gelu_fast": "normal_tanh", "gelu_pytorch_tanh": "normal_tanh",
        "gelu_python_tanh": "normal_tanh", "gelu_accurate": "normal_tanh",
        "quick_gelu": "logistic_1702", "silu": "logistic", "swish": "logistic",
    }  # fmt: skip
    names = [n for n in transformers.activations.ACT2CLS if "gelu" in n or "silu" in n]
    return {name: known.get(name) for name in [*names, "swish"]}


@pytest.mark.parametrize("name", activation_classes())
def test_transformers_activations(name):
    gate = activation_classes()[name]
    if gate is None:
        assert name == "gelu_10"
        replacement = replace_activations(
            torch.nn.Sequential(transformers.activations.ACT2FN[name])
        )
        assert "it calls gelu itself" not in str(replacement) and not changes(replacement)
    else:
        bound = 1e-11 if name == "gelu_fast" else 1e-14
        check_formula(transformers.activations.ACT2FN[name], gate, bound)


def test_bloom_activation():
    check_formula(transformers.models.bloom.modeling_bloom.BloomGelu(), "normal_tanh", 1e-9)


@pytest.mark.parametrize(
    "name, gate",
    [
        ("GELU", "normal"), ("GELUTanh", "normal_tanh"), ("QuickGELU", "logistic_1702"),
        ("Swish", "logistic"),
    ],
)  # fmt: skip
def test_timm_activations(name, gate):
    check_formula(getattr(timm_layers("activations"), name)(), gate, 1e-14)


def test_timm_functions_are_reported():
    model = torch.nn.Module()
    model.act = timm_layers("activations").gelu
    replacement = replace_activations(model)
    assert not replacement.changed and "gelu is not known" in reasons(replacement)["act"]


def check_formula(activation, gate, bound):
    """Value and derivative agree to ``bound`` times |x|, the rounding of 1 + erf or 1 + tanh."""
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64, requires_grad=True)
    x_large = x.detach().abs() + 1

    def results():
        y = activation(x)
        return [y.detach(), *torch.autograd.grad(y.sum(), x)]

    expected = results()
    with replace_activations(torch.nn.Sequential(activation)) as replacement:
        assert replacement.changed[0].new == (f"gate({gate})",)
        for a, b in zip(results(), expected, strict=True):
            assert ((a - b).abs() <= bound * x_large).all()
