"""torch.compile around every public operator: one graph for all shapes, autocast, checkpointing,
compiled autograd, CUDA graphs; and what fake tensors are told.

Values, layouts and export: test_operators.py, test_soi.py. Fusion: test_fusion.py. Packages:
test_aot_inductor.py.
"""

from collections.abc import Callable, Sequence

import pytest
import soi_oracle
import torch
from test_layout import LAYOUTS
from test_operators import bf16_close, close
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, reference

ops = torch.ops.gelu_kernels
SEED = 4


def gelu_reference(x: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    return reference.gelu(x.double() + bias)


def soi_reference(x: Tensor, bias: Tensor | None = None, call: int = 0) -> Tensor:
    """With the mask of the seed that this call draws after manual_seed(SEED)."""
    torch.manual_seed(SEED)
    for _ in range(call + 1):
        seed = int(torch.empty((), dtype=torch.int64).random_(2**63 - 1))
    m = soi_oracle.kept(x.float(), None if bias is None else bias.float(), seed, "normal")
    return m * (x.double() if bias is None else x.double() + bias)


Function = Callable[..., Tensor]
# Each with its reference and the number of its inputs.
CALLS: dict[str, tuple[Function, Function, int]] = {
    "gelu": (functional.gelu, gelu_reference, 1),
    "bias_gelu": (functional.bias_gelu, gelu_reference, 2),
    "soi_map": (functional.soi_map, soi_reference, 1),
    "bias_soi_map": (functional.bias_soi_map, soi_reference, 2),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> tuple[Function, Function, int]:
    torch.compiler.reset()
    return CALLS[request.param]


def inputs(count: int, rows: int = 6, columns: int = 5, device: str = "cpu") -> list[Tensor]:
    return [torch.randn(rows, columns, device=device), torch.randn(columns, device=device)][:count]


def gradients(f: Function, leaves: Sequence[Tensor]) -> list[Tensor]:
    """f's value and the gradients of a weighted sum of it, in float64."""
    torch.manual_seed(SEED)
    y = f(*leaves)
    weights = torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)
    return [
        y.detach().double(),
        *map(Tensor.double, torch.autograd.grad((y * weights).sum(), leaves)),
    ]


def check(f: Function, expected: Function, tensors: Sequence[Tensor], **tolerance: float) -> None:
    ours = gradients(f, [t.detach().requires_grad_() for t in tensors])
    theirs = gradients(expected, [t.detach().double().requires_grad_() for t in tensors])
    torch.testing.assert_close(ours, theirs, **(tolerance or close))


# Graphs


def test_one_graph_for_all_shapes(call) -> None:
    f, expected, count = call
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend=counter)
    for rows, columns in ((6, 5), (7, 5), (2, 40), (300, 3)):
        check(compiled, expected, inputs(count, rows, columns))
    assert counter.frame_count == 1


def test_a_second_shape_makes_the_graph_dynamic(call) -> None:
    f, expected, count = call
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(f, fullgraph=True, backend=counter)
    for rows in (6, 7, 8, 300):
        check(compiled, expected, inputs(count, rows))
    assert counter.frame_count == 2


def test_autocast(call) -> None:
    """F.gelu keeps the dtype that it gets; so do these, and the bias follows."""
    f, expected, count = call
    x, *bias = inputs(count)
    leaves = [x.bfloat16().requires_grad_(), *(t.requires_grad_() for t in bias)]
    counter = CompileCounterWithBackend("aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(f, fullgraph=True, backend=counter)
        y, *grads = gradients(compiled, leaves)
        assert compiled(x, *bias).dtype == torch.float32
    biases = [t.detach().bfloat16() for t in bias]
    doubles = [t.detach().double().requires_grad_() for t in (leaves[0], *biases)]
    for ours, e in zip((y, *grads), gradients(expected, doubles), strict=True):
        torch.testing.assert_close(ours, e, **bf16_close)
    dx, *dbias = torch.autograd.grad(compiled_under_autocast(f, leaves).sum(), leaves)
    assert dx.dtype == torch.bfloat16 and all(t.dtype == torch.float32 for t in dbias)


def compiled_under_autocast(f: Function, leaves: Sequence[Tensor]) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.compile(f, fullgraph=True, backend="aot_eager")(*leaves)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_checkpoint(call, backend: str) -> None:
    """Recomputation in backward draws the mask that forward drew."""
    f, expected, count = call

    def block(*tensors: Tensor) -> Tensor:
        return checkpoint(f, *tensors, use_reentrant=False) * 1.0

    check(torch.compile(block, fullgraph=True, backend=backend), expected, inputs(count))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_autograd_of_a_compiled_forward(call) -> None:
    f, expected, count = call
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    compiler = torch.compile(backend="aot_eager", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(compiler):
        for rows in (6, 7):
            check(compiled, expected, inputs(count, rows))


# CUDA graphs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_in_cuda_graphs(call) -> None:
    f, _, count = call
    compiled = torch.compile(f, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):  # a warm-up, a capture, replays
        leaves = [t.requires_grad_() for t in inputs(count, 64, 520, "cuda")]
        torch.compiler.cudagraph_mark_step_begin()
        ours = [t.clone() for t in gradients(compiled, leaves)]
        torch.testing.assert_close(ours, gradients(f, leaves), rtol=1e-6, atol=1e-6)


# Fake tensors


# Of x, bias, dy, seed and mask.
def halves(x: Tensor) -> Tensor:
    return torch.cat([x, x], -1)


OPERATORS: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "fused_gelu": lambda x, bias, dy, seed, mask: ops.fused_gelu(x),
    "fused_bias_gelu": lambda x, bias, dy, seed, mask: ops.fused_bias_gelu(x, bias),
    "soi_map": lambda x, bias, dy, seed, mask: ops.soi_map(x),
    "fused_bias_soi_map": lambda x, bias, dy, seed, mask: ops.fused_bias_soi_map(x, bias),
    "gate_forward": lambda x, bias, dy, seed, mask: ops.gate_forward(x, bias, "normal"),
    "gate_backward": lambda x, bias, dy, seed, mask: ops.gate_backward(dy, x, bias, "normal"),
    "gate_backward_bias": lambda x, bias, dy, seed, mask: ops.gate_backward_bias(
        dy, x, bias, "normal"
    ),
    "gate_double_backward": lambda x, bias, dy, seed, mask: ops.gate_double_backward(
        dy, dy, x, bias, "normal"
    ),
    "fused_gate": lambda x, bias, dy, seed, mask: ops.fused_gate(x, bias, gate="normal"),
    "fused_glu": lambda x, bias, dy, seed, mask: ops.fused_glu(x, dy),
    "fused_glu of halves": lambda x, bias, dy, seed, mask: ops.fused_glu(halves(x)),
    "glu_forward": lambda x, bias, dy, seed, mask: ops.glu_forward(x, dy, "normal"),
    "glu_backward": lambda x, bias, dy, seed, mask: ops.glu_backward(dy, x, dy, "normal"),
    "glu_halves_forward": lambda x, bias, dy, seed, mask: ops.glu_halves_forward(
        halves(x), "normal"
    ),
    "glu_halves_backward": lambda x, bias, dy, seed, mask: ops.glu_halves_backward(
        dy, halves(x), "normal"
    ),
    "soi_forward": lambda x, bias, dy, seed, mask: ops.soi_forward(x, bias, seed, "normal"),
    "soi_backward": lambda x, bias, dy, seed, mask: ops.soi_backward(dy, mask),
    "soi_backward_bias": lambda x, bias, dy, seed, mask: ops.soi_backward_bias(dy, mask),
}


def description(results: Tensor | tuple[Tensor, ...]) -> list[tuple]:
    tensors = [results] if isinstance(results, Tensor) else results
    return [(t.shape, t.stride(), t.storage_offset(), t.dtype, t.device) for t in tensors]


def operands(x: Tensor) -> tuple[Tensor, ...]:
    mask = torch.zeros((x.numel() + 7) // 8, dtype=torch.uint8)
    return (
        x,
        torch.randn(x.size(-1)).to(x.dtype),
        torch.randn(x.shape).to(x.dtype),
        SEED_TENSOR,
        mask,
    )


SEED_TENSOR = torch.tensor(SEED)


def test_every_operator_is_here() -> None:
    registered = {
        name.split("::")[1]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("gelu_kernels::")
    }
    # This one comes with DTensor, and test_distributed.py has it.
    assert {name.split()[0] for name in OPERATORS} == registered - {"soi_forward_shard"}


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fake_tensors(op: str, dtype: torch.dtype) -> None:
    """Shape, strides, offset, dtype and device are told as they turn out to be."""
    for name, layout in LAYOUTS.items():
        if name.startswith("conjugate") or name == "one row of many":
            continue
        x = layout(lambda *shape: torch.randn(shape).to(dtype))
        arguments = operands(x)
        real = description(OPERATORS[op](*arguments))
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(t) for t in arguments]
            assert description(OPERATORS[op](*fakes)) == real, name


@pytest.mark.parametrize("op", OPERATORS)
def test_fake_tensors_on_another_device(op: str) -> None:
    with FakeTensorMode():
        x, bias, dy = (torch.empty(shape, device="cuda") for shape in ((6, 5), (5,), (6, 5)))
        seed = torch.empty((), dtype=torch.int64, device="cuda")
        mask = torch.empty(4, dtype=torch.uint8, device="cuda")
        results = OPERATORS[op](x, bias, dy, seed, mask)
        for t in [results] if isinstance(results, Tensor) else results:
            assert t.device.type == "cuda"
