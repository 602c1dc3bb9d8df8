"""replace_activations on architectures of transformers and timm, tiny and with random weights."""

import copy
import functools
import pickle
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from gelu_kernels import replace_activations
from tests.cases import each
from tests.replace.equivalence.outcomes import replace
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


IDS = {"input_ids": TOKENS}
TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def model_of(family, head, inputs, **arguments):
    config = getattr(transformers, f"{family}Config")(**arguments)
    return getattr(transformers, f"{family}{head}")(config), inputs


bert = partial(model_of, "Bert", "ForMaskedLM", IDS, vocab_size=64, **ENCODER, **NO_DROPOUT)
gpt2 = partial(
    model_of, "GPT2", "LMHeadModel", IDS, vocab_size=64, n_positions=16, n_embd=32, n_layer=1,
    n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0,
    eos_token_id=0,
)  # fmt: skip
vit = partial(
    model_of, "ViT", "ForImageClassification", {"pixel_values": PIXELS}, num_labels=4,
    **ENCODER, **NO_DROPOUT, **PATCHES,
)  # fmt: skip
t5 = partial(
    model_of, "T5", "ForConditionalGeneration", IDS | {"decoder_input_ids": TOKENS}, vocab_size=64,
    d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
    feed_forward_proj="gated-gelu", use_cache=False,
)  # fmt: skip
bloom = partial(
    model_of, "Bloom", "ForCausalLM", IDS, vocab_size=64, hidden_size=32, n_layer=1, n_head=2,
    use_cache=False,
)  # fmt: skip
clip = partial(
    model_of, "CLIP", "Model", IDS | {"pixel_values": PIXELS}, projection_dim=16,
    vision_config=ENCODER | PATCHES,
    text_config={
        **ENCODER, "vocab_size": 64, "max_position_embeddings": 16, "bos_token_id": 62,
        "eos_token_id": 63,
    },
)  # fmt: skip
whisper = partial(
    model_of, "Whisper", "ForConditionalGeneration",
    {"input_features": SOUND, "decoder_input_ids": TOKENS}, vocab_size=64, num_mel_bins=8,
    d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=16,
    max_target_positions=16, dropout=0.0, use_cache=False, **TOKEN_IDS,
)  # fmt: skip
decoder = partial(
    model_of, head="ForCausalLM", inputs=IDS, vocab_size=64, **ENCODER, num_key_value_heads=1,
    head_dim=16, use_cache=False,
)  # fmt: skip
# Every token goes to every expert, as choosing one is not continuous.
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}


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
    """A gate after a linear layer, and before another one if only that uses its result."""
    return gate, "", f"bias_gelu({first}, {gate})", second and f"gate_linear({gate}, {second})"


# By model: the class replaced, the gate, and by module the activation's name and the operator that
# computes ``forward`` without options, with fuse_bias and with recompute (empty: as without).
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

# Other methods that are fused with any options.
METHODS = {
    "mixtral": {MLP + "experts._apply_gate": "glu(act_fn)"},
    "gpt-oss": {MLP + "experts._apply_gate": "glu(swish)"},
    "whisper": {"model.encoder.forward": "gate(gelu), gate(gelu)"},
}


# With a Linear to fuse, transformers' Conv1D, a gated linear unit, experts, and two models in one.
FEW = ("bert", "gpt2", "llama", "mixtral", "clip")
OPTIONS = ["plain", "fuse_bias", "recompute"]
each_family = partial(each, lambda name, **_: name not in FEW, name=MODELS)


@functools.cache
def made(name):
    """A model in float64 and its inputs; tests change copies of it."""
    torch.default_generator.manual_seed(0)
    model, inputs = MODELS[name][0]()
    # With the small initial weights every activation is close to 0; these spread.
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                weight = parameter[0, 0] if "experts" in parameter_name else parameter[0]
                parameter.normal_(0, weight.numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double(), inputs


@functools.cache
def replaced(name, options):
    """A copy of that model, replaced; tests change copies of it."""
    model = copy.deepcopy(made(name)[0])
    replace(model, options)
    return model


def bound_of(name):
    """Bloom has 8 digits of sqrt(2/pi): that moves outputs by 2e-9 and losses by 4e-10."""
    return 1e-8 if name == "bloom" else 1e-10


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
    """The relative distance of all elements together, in the Euclidean norm."""
    a, e = (torch.cat([t.flatten() for t in tensors]) for tensors in (actual, expected))
    return float((a - e).norm() / e.norm())


@each_family(options=OPTIONS)
def test_what_is_replaced(name, options):
    """Parameters, state dict and layers do not change, and restore() undoes the rest."""
    _, old, gate, owners = MODELS[name]
    model = copy.deepcopy(made(name)[0])
    before, keys, parameters = tree(model), list(model.state_dict()), list(model.parameters())
    unpatched = logits(model, made(name)[1])
    with replace(model, options) as replacement:
        index = 1 + OPTIONS.index(options)
        fused = {owner + "forward": n[index] or n[1] for owner, n in owners.items()}
        fused = {method: operator for method, operator in fused.items() if operator}
        assert operators(replacement) == METHODS.get(name, {}) | fused
        assert changes(replacement).keys() == {owner + n[0] for owner, n in owners.items()}
        for change in replacement.changed:
            if change.name in changes(replacement):
                assert type(change.old).__name__ == old and change.new == (f"gate({gate})",)
        not_fused = {owner + n[0] for owner, n in owners.items() if owner + "forward" not in fused}
        assert not replacement.left_alone
        assert (
            not_fused
            <= {
                "plain": not_fused,
                "fuse_bias": replacement.not_fused.keys(),
                "recompute": replacement.not_recomputed.keys(),
            }[options]
        )
        assert options != "plain" or not reasons(replacement)
        assert list(model.state_dict()) == keys
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
        assert all(
            isinstance(module, before[name][0])
            for name, module in model.named_modules()
            if name not in changes(replacement)
        )
    assert tree(model) == before
    assert torch.equal(logits(model, made(name)[1]), unpatched)


@each_family(options=OPTIONS)
def test_float64(name, options):
    """Outputs and gradients are within 1e-10 of the unpatched model's."""
    model, inputs = made(name)
    assert error(compute(replaced(name, options), inputs), compute(model, inputs)) < bound_of(name)


@each_family()
def test_bfloat16(name):
    """Outputs and gradients are at most 5/4 as far from float64's as the unpatched model's.

    Rounding at other places is as often better as worse: 0.84 to 1.16 times over six seeds.
    """
    inputs = made(name)[1]
    model = copy.deepcopy(made(name)[0]).bfloat16()
    exact = compute(copy.deepcopy(model).double(), inputs)
    unpatched = distance(compute(model, inputs), exact)
    for options in ("plain", "fuse_bias"):
        model = copy.deepcopy(replaced(name, options)).bfloat16()
        assert 0 < distance(compute(model, inputs), exact) < min(1.25 * unpatched, 2**-5), options


@each_family()
def test_a_bfloat16_step(name):
    """For most parameters the rounding of the step is the whole error: 0.997 to 1.002 times as much
    over six seeds."""
    inputs = made(name)[1]
    model = copy.deepcopy(made(name)[0]).bfloat16()
    exact = after_a_step(copy.deepcopy(model).double(), inputs)
    unpatched = distance(after_a_step(model, inputs), exact)
    patched = after_a_step(copy.deepcopy(replaced(name, "plain")).bfloat16(), inputs)
    assert 0 < distance(patched, exact) < 1.005 * unpatched


@each_family(options=["plain", "fuse_bias"])
def test_training(name, options):
    """Three steps lead to the same parameters."""
    models = [copy.deepcopy(model) for model in (made(name)[0], replaced(name, options))]
    losses = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(model, made(name)[1])
            value.backward()
            optimizer.step()
            losses.append(value.item())
    assert losses[2] < losses[0]
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-9 if name == "bloom" else 1e-12)
    a, b = ([*model.parameters()] for model in models)
    assert error(b, a) < bound_of(name)


def saved_bytes(model, inputs):
    """The bytes that autograd saves, without the parameters."""
    with SavedBytes() as saved:
        logits(model, inputs)
    for parameter in model.parameters():
        saved.storages.pop(parameter.untyped_storage().data_ptr(), None)
    return saved.total


@each_family()
def test_memory(name):
    """No more is saved than before; recomputing saves less and gives the same bits."""
    model, inputs = made(name)
    models = {options: replaced(name, options) for options in OPTIONS}
    kept = {options: saved_bytes(model, inputs) for options, model in models.items()}
    assert max(kept["plain"], kept["fuse_bias"]) <= saved_bytes(model, inputs)
    is_recomputed = any(names[3] for names in MODELS[name][3].values())
    assert (kept["recompute"] < kept["plain"]) == is_recomputed
    results = [compute(models[options], inputs) for options in ("plain", "recompute")]
    assert all(map(torch.equal, *results))


@each_family(options=["plain", "fuse_bias"])
def test_state_dict_both_ways(name, options):
    plain, inputs = made(name)
    models = [copy.deepcopy(plain), copy.deepcopy(replaced(name, options))]
    for source, target in (models[::-1], models):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(0.01)
        target.load_state_dict(source.state_dict())
        a, b = (logits(model, inputs) for model in models)
        assert error([b], [a]) < bound_of(name)


def test_save_pretrained(tmp_path):
    model, inputs = bert()
    replacement = replace_activations(model, fuse_bias=True)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    replacement.restore()
    assert torch.equal(logits(loaded.eval(), inputs), logits(model.eval(), inputs))


@each_family(options=["plain", "fuse_bias"])
def test_copies(name, options):
    model, inputs = replaced(name, options), made(name)[1]
    expected = logits(model, inputs)
    kinds = [type(module) for module in model.modules()]
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [type(module) for module in copied.modules()] == kinds
        assert torch.equal(logits(copied, inputs), expected)


# Each takes 1 to 4 s.
COMPILED = [("bert", "fuse_bias"), *((name, "recompute") for name in MODELS)]


@each(lambda case: case not in COMPILED[:1] + [("llama", "recompute")], case=COMPILED)
def test_compile(case):
    inputs = made(case[0])[1]
    torch.compiler.reset()
    compiled = torch.compile(replaced(*case), backend="aot_eager", fullgraph=True)
    expected = compute(made(case[0])[0], inputs)
    assert error(compute(compiled, inputs), expected) < bound_of(case[0])


# The formula of each class


def activation_classes():
    """Transformers' GELUs and SiLUs by the names that configurations use, with their gates."""
    known = {
        "gelu": "normal", "gelu_python": "normal", "gelu_new": "normal_tanh",
        "gelu_fast": "normal_tanh", "gelu_pytorch_tanh": "normal_tanh",
        "gelu_python_tanh": "normal_tanh", "gelu_accurate": "normal_tanh",
        "quick_gelu": "logistic_1702", "silu": "logistic", "swish": "logistic",
    }  # fmt: skip
    names = [n for n in transformers.activations.ACT2CLS if "gelu" in n or "silu" in n]
    return {name: known.get(name) for name in [*names, "swish"]}


@each(name=activation_classes())
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


def test_timm_activations():
    """The classes are replaced, and functions are reported."""
    gates = {
        "GELU": "normal", "GELUTanh": "normal_tanh", "QuickGELU": "logistic_1702",
        "Swish": "logistic",
    }  # fmt: skip
    for name, gate in gates.items():
        check_formula(getattr(timm_layers("activations"), name)(), gate, 1e-14)
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
