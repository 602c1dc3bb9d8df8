"""replace_activations(recompute=True): where an activation and the linear layer after it become one
that computes the activation again in backward. On models: test_replace_models.py."""

import bits
import pytest
import torch
from replacements import SavedBytes, changes, reasons, tree
from torch import Tensor
from torch.nn import GELU, Identity, Linear, Module, Sequential, SiLU

from gelu_kernels import nn, replace_activations
from gelu_kernels.replace.hand_over import handed_over, returned, taken
from gelu_kernels.replace.recompute import ProductLinear


class Mlp(Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = Linear(6, 8), GELU(), Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Gated(Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = Linear(6, 8), Linear(6, 8), Linear(8, 6)
        self.act = SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class Intermediate(Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = Linear(6, 8), GELU()

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.dense(hidden)
        hidden = self.act(hidden)
        return hidden


class Output(Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = Linear(8, 6)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        hidden = self.dense(hidden)
        return hidden + residual


class Layer(Module):
    def __init__(self) -> None:
        super().__init__()
        self.intermediate, self.output = Intermediate(), Output()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.intermediate(x)
        result = self.output(hidden, x)
        return result


def sequential() -> Module:
    return Sequential(Linear(6, 8), GELU("tanh"), Linear(8, 6))


RECOMPUTED = {
    "one module": (Mlp, {"fc2": (Linear, nn.GateLinear), "act": (GELU, Identity)}),
    "sequential": (sequential, {"2": (Linear, nn.GateLinear), "1": (GELU, Identity)}),
    "two modules": (
        Layer,
        {"output.dense": (Linear, nn.GateLinear), "intermediate.act": (GELU, Identity)},
    ),
}


def gradients(model: Module, x: Tensor) -> list[Tensor]:
    y = model(x)
    return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("case", RECOMPUTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_same_bits_for_less_memory(case: str, dtype: torch.dtype) -> None:
    make, expected_changes = RECOMPUTED[case]
    model = make().to(dtype)
    x = torch.randn(5, 6, dtype=dtype)
    before = tree(model)
    results, kept = [], []
    for recompute in (False, True):
        with replace_activations(model, recompute=recompute) as replacement:
            found = changes(replacement)
            results.append(gradients(model, x))
            with SavedBytes() as saved:
                model(x)
            kept.append(saved.total)
    assert found == expected_changes
    assert all(map(bits.same, *results))
    assert kept[0] - kept[1] == 5 * 8 * dtype.itemsize
    assert tree(model) == before


def test_gated() -> None:
    model = Gated()
    x = torch.randn(5, 6)
    with replace_activations(model):
        expected = gradients(model, x)
    replacement = replace_activations(model, recompute=True)
    assert changes(replacement)["down"] == (Linear, ProductLinear)
    assert all(map(bits.same, gradients(model, x), expected))


def test_hooks_get_tensors() -> None:
    """A hook of the linear layer, such as tensor parallelism's, takes a tensor: the product is
    computed for it, and kept."""
    model = Gated()
    x = torch.randn(5, 6)
    with replace_activations(model):
        expected = gradients(model, x)
    replace_activations(model, recompute=True)
    seen = []
    model.down.register_forward_pre_hook(lambda module, arguments: seen.append(*arguments))
    assert all(map(bits.same, gradients(model, x), expected))
    assert isinstance(seen[0], Tensor) and seen[0].shape == (5, 8)


def test_product_that_broadcasts() -> None:
    model = Gated()
    model.up = Linear(6, 1)
    x = torch.randn(5, 6)
    expected = model(x)
    replace_activations(model, recompute=True)
    torch.testing.assert_close(model(x), expected)


def test_shared_activation() -> None:
    """Between two layers, each of which recomputes."""
    model = Sequential(Mlp(), Mlp())
    model[1].act = model[0].act
    replacement = replace_activations(model, recompute=True)
    assert sorted(changes(replacement)) == ["0.act", "0.fc2", "1.act", "1.fc2"]


def test_after_other_replacements() -> None:
    model = Mlp()
    replace_activations(model)
    assert set(changes(replace_activations(model, recompute=True))) == {"fc2", "act"}
    assert not replace_activations(model, recompute=True).changed


def test_beside_fused_biases() -> None:
    """An activation between two linear layers goes with the second."""
    model = Sequential(Linear(6, 8), GELU(), Linear(8, 6), GELU())
    replacement = replace_activations(model, fuse_bias=True, recompute=True)
    assert changes(replacement) == {
        "1": (GELU, Identity),
        "2": (Linear, nn.GateLinear),
        "3": (GELU, nn.GELU),
    }


class SubclassedLinear(Linear):
    pass


class Dropped(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)) * 2)


class SeenBetween(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.act(self.fc1(x))
        return self.fc2(hidden) + hidden.sum()


class ReturnsBoth(Intermediate):
    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.dense(hidden)
        return self.act(hidden), hidden


class ReadsItTwice(Output):
    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.dense(hidden) + residual + hidden.mean()


class HandsItToTwo(Layer):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.intermediate(x)
        return self.output(hidden, x) + hidden.mean()


def with_second(second: Module) -> Module:
    return Sequential(Linear(6, 6), GELU(), second)


def hooked() -> Module:
    model = Mlp()
    model.fc2.register_forward_hook(lambda *arguments: None)
    return model


def shared() -> Module:
    linear = Linear(6, 6)
    return Sequential(linear, GELU(), linear)


def hooked_between() -> Module:
    model = Layer()
    model.intermediate.register_forward_hook(lambda *arguments: None)
    return model


def with_part(name: str, part: Module) -> Module:
    model = Layer()
    setattr(model, name, part)
    return model


NOT_RECOMPUTED = {
    "subclass": (lambda: with_second(SubclassedLinear(6, 6)), "SubclassedLinear comes after it"),
    "dropout": (lambda: with_second(torch.nn.Dropout()), "Dropout comes after it"),
    "last": (lambda: Sequential(Linear(6, 6), GELU()), "no Linear is seen"),
    "hook": (hooked, "has hooks"),
    "shared": (shared, "is shared"),
    "something between": (Dropped, "no Linear is seen"),
    "seen between": (SeenBetween, "no Linear is seen"),
    "hook between": (hooked_between, "no Linear is seen"),
    "second result": (lambda: with_part("intermediate", ReturnsBoth()), "no Linear is seen"),
    "read twice": (lambda: with_part("output", ReadsItTwice()), "no Linear is seen"),
    "handed to two": (HandsItToTwo, "no Linear is seen"),
}


@pytest.mark.parametrize("case", NOT_RECOMPUTED)
def test_not_recomputed(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, why = NOT_RECOMPUTED[case]
    model = make()
    replacement = replace_activations(model, recompute=True)
    ((_, kinds),) = changes(replacement).items()
    assert kinds == (GELU, nn.GELU)
    (reason,) = replacement.not_recomputed.values()
    assert why in reason and not reasons(replacement)
    printed = capsys.readouterr().out
    assert "1 changed, 0 left alone, 1 not recomputed" in printed
    assert f"not recomputed: {reason}" in printed


# What sources show


def test_hand_over() -> None:
    assert handed_over(Layer) == {"intermediate": "output"}
    assert (returned(Intermediate), taken(Output)) == ("act", "dense")


@pytest.mark.parametrize("cls", [ReturnsBoth, Output, Module], ids=lambda cls: cls.__name__)
def test_nothing_is_returned(cls: type[Module]) -> None:
    assert returned(cls) == ""


@pytest.mark.parametrize("cls", [ReadsItTwice, Module], ids=lambda cls: cls.__name__)
def test_nothing_is_taken(cls: type[Module]) -> None:
    assert taken(cls) == ""


def test_handed_to_two() -> None:
    assert handed_over(HandsItToTwo) == {}
