"""replace_activations beside other tools: PEFT, torchao and torchinfo, hooks on all modules, a
second call, and the garbage collector."""

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_full_backward_hook,
)
from torch.overrides import TorchFunctionMode

from tests.replace.equivalence.outcomes import (
    MODELS,
    Mlp,
    assert_same,
    difference,
    every_mode,
    every_model,
    every_time,
    inputs,
    outcome,
    replace,
    two,
)
from tests.replace.replacements import Operators, SavedBytes

# Adapters and quantisation


@every_time
@every_mode
@every_model
def test_peft(name, mode, when):
    peft = pytest.importorskip("peft", reason="needs peft")
    layers = MODELS[name][1]
    for targets in (layers, *([layer] for layer in layers)):
        reference, model = two(name)
        if when != "before":
            replacement = replace(model, mode)
        adapted = []
        for base in (reference, model):
            torch.manual_seed(2)
            config = peft.LoraConfig(target_modules=targets, r=2, init_lora_weights=False)
            adapted.append(peft.get_peft_model(base, config))
        if when == "before":
            replacement = replace(adapted[1], mode)
        elif when == "then restored":
            replacement.restore()
        assert_same(adapted[1], adapted[0])
        trained = outcome(adapted[0], inputs(), False)
        merged = [model.merge_and_unload() for model in adapted]
        assert not difference(outcome(merged[1], inputs(), False), trained)
        assert_same(merged[1], merged[0])


@pytest.mark.parametrize("when", ["before", "after"])
@every_mode
@every_model
def test_int8_weights(name, mode, when):
    quantization = pytest.importorskip("torchao.quantization", reason="needs torchao")
    reference, model = (model.float() for model in two(name))
    x = inputs().float()
    if when == "after":
        replace(model, mode)
    for each in (reference, model):
        quantization.quantize_(each, quantization.Int8WeightOnlyConfig())
    if when == "before":
        replace(model, mode)
    for training in (False, True):
        expected = outcome(reference, x, training)
        assert not any(isinstance(value, type) for value in expected)
        assert not difference(outcome(model, x, training), expected, 1e-5)


# Modes


class Doubled(TorchFunctionMode):
    """Changes what torch's functions of linear layers and activations give."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        y = function(*args, **(kwargs or {}))
        functions = (torch.nn.functional.linear, torch.nn.functional.gelu, torch.nn.functional.silu)
        return 2 * y if function in functions else y


@every_mode
@every_model
def test_function_modes(name, mode):
    reference, model = two(name)
    plain = outcome(reference, inputs(), False)
    replace(model, mode)
    with Doubled():
        assert difference(outcome(reference, inputs(), False), plain)
        assert_same(model, reference)
    with torch.device("cpu"), Operators() as operators:  # a mode of torch's own
        assert not difference(outcome(model, inputs(), False), plain)
    assert any(name.startswith("gelu_kernels::") for name in operators.names)


# What others see of a model


def seen_by(model, register):
    """The tensors that hooks see, by module."""
    seen = {}

    def hook(module, taken, given):
        for index, tensor in enumerate((*taken, *(given if type(given) is tuple else (given,)))):
            assert isinstance(tensor, Tensor)
            seen[names[module], index] = tensor.detach().clone()

    names = {module: name for name, module in model.named_modules()}
    handles = register(model, hook)
    try:
        result = outcome(model, inputs(), True)
    finally:
        for handle in handles:
            handle.remove()
    return result, seen


SEEN_BY = {
    "forward": lambda m, hook: [each.register_forward_hook(hook) for each in m.modules()],
    "global forward": lambda m, hook: [register_module_forward_hook(hook)],
    "backward": lambda m, hook: [each.register_full_backward_hook(hook) for each in m.modules()],
    "global backward": lambda m, hook: [register_module_full_backward_hook(hook)],
}


@every_mode
@every_model
@pytest.mark.parametrize("hooks", SEEN_BY)
def test_hooks_see_the_same_tensors(hooks, name, mode):
    reference, model = two(name)
    expected, of_reference = seen_by(reference, SEEN_BY[hooks])
    replace(model, mode)
    found, of_model = seen_by(model, SEEN_BY[hooks])
    assert not difference(found, expected)
    assert of_model.keys() == of_reference.keys()
    assert not difference([*of_model.values()], [of_reference[key] for key in of_model])
    assert_same(model, reference)  # once more without hooks


@every_mode
@every_model
def test_torchinfo(name, mode):
    torchinfo = pytest.importorskip("torchinfo", reason="needs torchinfo")
    summaries = []
    for model in two(name):
        if summaries:
            replace(model, mode)
        summary = torchinfo.summary(model.float(), input_size=(4, 6), verbose=0)
        layers = [(layer.var_name, layer.output_size) for layer in summary.summary_list]
        summaries.append((summary.total_params, summary.total_mult_adds, layers))
    assert summaries[0] == summaries[1]


@every_mode
@every_model
def test_children_stay(name, mode):
    _, model = two(name)
    before = dict(model.named_modules())
    layers = {part: (type(before[part]), set(vars(before[part]))) for part in MODELS[name][1]}
    replacement = replace(model, mode)
    after = dict(model.named_modules())
    assert list(after) == list(before)
    for part, (cls, attributes) in layers.items():
        assert after[part] is before[part]
        assert type(after[part]) is cls and set(vars(after[part])) == attributes
    replacement.restore()
    assert all(module is before[key] for key, module in model.named_modules())


@every_model
def test_second_call(name):
    reference, model = two(name)
    replacements, saved = [], []
    for mode in ("plain", "recompute"):
        replacements.append(replace(model, mode))
        assert replacements[-1].changed
        assert_same(model, reference)
        with SavedBytes() as hooks:
            model(inputs())
        saved.append(hooks.total)
    assert saved[0] - saved[1] == 4 * 8 * 8  # the hidden layer, float64
    for replacement in reversed(replacements):
        replacement.restore()
        assert_same(model, reference)


def local_class():
    class Local(Mlp):
        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    return Local()


@every_mode
@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize(
    "make", [local_class, lambda: torch.fx.symbolic_trace(Mlp())], ids=["local", "fx"]
)
def test_classes_are_freed(make, restored, mode):
    model = make()
    model(torch.randn(4, 6))
    references = [weakref.ref(model), weakref.ref(type(model)), weakref.ref(model.fc1)]
    replacement = replace(model, mode)
    model(torch.randn(4, 6))
    if restored:
        replacement.restore()
    del model, replacement
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
