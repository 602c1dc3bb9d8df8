"""The SOI map as an operator: derivatives for a given mask, layouts, transforms, errors.

Which elements are kept is what soi_oracle.py says; all else follows from that.
"""

import copy
import subprocess
import sys
from collections.abc import Callable

import bits
import pytest
import soi_oracle
import torch
from test_layout import LAYOUTS
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from gelu_kernels import _C, functional, nn, reference

ops = torch.ops.gelu_kernels

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SEED = 0x123456789ABCDEF

# vmap of an operator without a batching rule is a loop, with this warning.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")


def forward(x: Tensor, bias: Tensor | None = None, gate: str = "normal", *index: int) -> Tensor:
    return ops.soi_forward(x, bias, torch.tensor(SEED, device=x.device), gate, *index)[0]


def kept(x: Tensor, bias: Tensor | None = None, gate: str = "normal") -> Tensor:
    return soi_oracle.kept(x, bias, SEED, gate).to(x.device)


def same(a: Tensor, b: Tensor) -> bool:
    return bits.differing(a, b) == 0


# Values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype, gate, device):
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-7, -1e-7], device=device)
    x = x.to(dtype).repeat(1000).view(1000, 7)
    y = forward(x, None, gate)
    assert y[:, 0].isnan().all()
    assert (y[:, 1] == torch.inf).all()
    assert same(y[:, 2], torch.zeros(1000, dtype=dtype, device=device))
    expected = soi_oracle.select(kept(x, None, gate), x)
    assert same(y, expected)  # what is dropped is +0, what is kept keeps its sign
    assert (bits.patterns(y[:, 4]) == 0).any() and (bits.patterns(y[:, 4]) != 0).any()
    zero = torch.zeros(7, dtype=dtype, device=device)
    assert same(forward(x, zero, gate), soi_oracle.select(kept(x, zero, gate), x + zero))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1000, 100_003])
def test_sizes(size, biased, device):
    for x in (torch.randn(size, device=device), torch.randn(3, size, device=device)):
        bias = torch.randn(size, device=device) if biased else None
        y, mask = ops.soi_forward(x, bias, torch.tensor(SEED, device=device), "normal")
        expected_y, expected_mask = soi_oracle.expected(x, bias, SEED, "normal")
        assert same(y, expected_y) and torch.equal(mask, expected_mask)
        dy = torch.randn_like(x)
        assert same(ops.soi_backward(dy, mask), soi_oracle.select(kept(x, bias), dy))


def test_scalars(device):
    x = torch.tensor(0.3, device=device)
    y, mask = ops.soi_forward(x, None, torch.tensor(SEED, device=device), "normal")
    assert y.shape == () and mask.shape == (1,)
    assert same(y, soi_oracle.select(kept(x), x))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty(shape, device):
    x = torch.empty(shape, device=device, requires_grad=True)
    bias = torch.randn(shape[-1], device=device, requires_grad=True)
    y = functional.bias_soi_map(x, bias)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape and not bias.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.startswith("conjugate")])
def test_layouts(layout, dtype, device, request):
    """Elements are numbered in row-major order, whatever the strides."""

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch.float64).to(dtype)

    x, dy = LAYOUTS[layout](random), LAYOUTS[layout](random)
    interpreted = request.node.callspec.params["device"] == "triton_interpreter"
    if interpreted and x.numel() >= 1000 * x.size(-1):
        pytest.skip("needs a GPU: Triton's interpreter takes a minute for so many rows")
    for bias in (None, random(2 * x.size(-1) + 1)[1::2]):
        y, mask = ops.soi_forward(x, bias, torch.tensor(SEED, device=device), "normal")
        assert y.stride() == torch.empty_like(x).stride()
        expected_y, expected_mask = soi_oracle.expected(x, bias, SEED, "normal")
        assert same(y, expected_y) and torch.equal(mask, expected_mask)
        for t in (dy, dy.contiguous(), random().expand_as(x)):
            expected_dx = soi_oracle.select(kept(x, bias), t)
            dx, dbias = ops.soi_backward_bias(t, mask)
            assert dx.stride() == torch.empty_like(t).stride()
            assert same(dx, expected_dx)
            assert same(ops.soi_backward(t, mask), expected_dx)
            exact = expected_dx.double().flatten(0, -2).sum(0) if x.dim() > 1 else expected_dx
            eps = torch.finfo(dtype).eps
            scale = expected_dx.double().abs().flatten(0, -2).sum(0) if x.dim() > 1 else 1
            assert ((dbias.double() - exact).abs() <= 64 * eps * scale + 1e-30).all()


def test_the_bias_gradient_is_summed_as_that_of_the_gate(device):
    """g'(40) is 1: gate_backward_bias sums the very numbers that a mask of ones keeps."""
    for shape in ((1000, 37), (3, 2000), (5000, 600)):
        dy = torch.randn(shape, device=device)
        mask = torch.full(((dy.numel() + 7) // 8,), 255, dtype=torch.uint8, device=device)
        _, dbias = ops.soi_backward_bias(dy, mask)
        x, bias = torch.full_like(dy, 40), torch.zeros(shape[1], device=device)
        _, expected = ops.gate_backward_bias(dy, x, bias, "normal")
        assert same(dbias, expected)


def test_threads():
    x, bias = torch.randn(1001, 777), torch.randn(777)
    results = []
    for threads in (1, 2, 5):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        y, mask = ops.soi_forward(x, bias, torch.tensor(SEED), "normal")
        results.append((y, mask, *ops.soi_backward_bias(x, mask)))
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(same, (t.float() for t in results[0]), (t.float() for t in other)))
    assert same(results[0][0], soi_oracle.expected(x, bias, SEED, "normal")[0])


CAPABILITY = """
import torch
from gelu_kernels import _C
print(_C.build_info()["cpu_capability"])
torch.manual_seed(0)
x, bias = 3 * torch.randn(100, 999), torch.randn(999)
for gate in ("normal", "normal_tanh", "logistic_1702"):
    for b in (None, bias):
        y, mask = torch.ops.gelu_kernels.soi_forward(x, b, torch.tensor(5), gate)
        print(hash(mask.numpy().tobytes()), hash(y.numpy().tobytes()))
t = _C.soi_thresholds(torch.linspace(-7, 7, 2**20), "normal")
print(hash(t.numpy().tobytes()))
"""


def test_instruction_sets_give_the_same_bits(monkeypatch):
    from gelu_kernels import _C

    monkeypatch.setenv("PYTHONHASHSEED", "0")
    outputs = {}
    for name in _C.build_info()["cpu_capabilities"].split():
        monkeypatch.setenv("GELU_KERNELS_CPU_CAPABILITY", name)
        result = subprocess.run([sys.executable, "-c", CAPABILITY], capture_output=True, text=True)
        if "this processor does not have it" in result.stderr:
            continue
        assert result.returncode == 0, result.stderr
        used, outputs[name] = result.stdout.split("\n", 1)
        assert used == name
    assert "default" in outputs and len(set(outputs.values())) == 1


# Derivatives


def inputs(biased: bool, device: str = "cpu", dtype: torch.dtype = torch.float64) -> list[Tensor]:
    x = torch.linspace(-2, 2.1, 15, dtype=dtype, device=device).view(3, 5)
    bias = torch.linspace(-0.1, 0.2, 5, dtype=dtype, device=device)
    return [t.requires_grad_() for t in ([x, bias] if biased else [x])]


@pytest.fixture(params=[False, True], ids=["x", "x+bias"])
def biased(request) -> bool:
    return request.param


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradient(dtype, biased, gate, device):
    leaves = [t.detach().to(dtype).requires_grad_() for t in inputs(biased, device, torch.float64)]
    bias = leaves[1] if biased else None
    y = forward(leaves[0], bias, gate)
    dy = torch.randn_like(y)
    y.backward(dy)
    m = kept(leaves[0], bias, gate)
    assert m.any() and not m.all()
    dx = soi_oracle.select(m, dy)
    assert same(leaves[0].grad, dx)
    if biased:
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(bias.grad.double(), dx.double().sum(0), rtol=eps, atol=4 * eps)


def test_a_dropped_gradient_is_zero_not_a_product(device):
    x = torch.linspace(-2, 2, 40, device=device, requires_grad=True)
    y = forward(x)
    y.backward(torch.full_like(y, torch.inf))
    assert same(x.grad, soi_oracle.select(kept(x), torch.full_like(x, torch.inf)))


def test_gradcheck(biased, device):
    leaves = inputs(biased, device)
    # No bit may flip where the numerical derivative looks: the mask is that of the leaves.
    mask = ops.soi_forward(*leaves, *([] if biased else [None]), torch.tensor(SEED), "normal")[1]
    for step in (-1e-6, 1e-6):
        moved = [t.detach() + step for t in leaves]
        assert torch.equal(kept(*moved), kept(*(t.detach() for t in leaves)))
    assert not mask.requires_grad
    check = {"check_batched_grad": True}
    assert gradcheck(forward, leaves, check_forward_ad=True, **check)
    assert gradgradcheck(forward, leaves, check_fwd_over_rev=True, check_rev_over_rev=True, **check)
    dy = torch.randn_like(leaves[0]).requires_grad_()
    for op in (ops.soi_backward, ops.soi_backward_bias):
        assert gradcheck(lambda dy, op=op: op(dy, mask), dy, check_forward_ad=True, **check)
        assert gradgradcheck(lambda dy, op=op: op(dy, mask), dy, check_fwd_over_rev=True)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, n: grad(lambda *t: (f(*t) ** 2).sum(), argnums=tuple(range(n))),
        lambda f, n: hessian(lambda *t: (f(*t) ** 2).sum(), argnums=tuple(range(n))),
        lambda f, n: jacrev(f, argnums=tuple(range(n))),
        lambda f, n: jacfwd(f, argnums=tuple(range(n))),
        lambda f, n: lambda *t: jvp(f, t, tuple(torch.cos(s) for s in t)),
    ],
    ids=["grad", "hessian", "jacrev", "jacfwd", "jvp"],
)
def test_function_transforms(transform, biased, device):
    tensors = [t.detach() for t in inputs(biased, device)]
    m = kept(*tensors).to(torch.float64)

    def expected(x: Tensor, bias: Tensor | float = 0.0) -> Tensor:
        return m * (x + bias)

    ours, theirs = (transform(f, len(tensors))(*tensors) for f in (forward, expected))
    torch.testing.assert_close(ours, theirs)


def test_jacobians_of_examples(biased, device):
    tensors = [t.detach() for t in inputs(biased, device)]
    in_dims = (0,) + (None,) * (len(tensors) - 1)
    expected = [torch.diag(kept(row, *tensors[1:]).double()) for row in tensors[0]]
    for jacobian in (jacfwd, jacrev):
        ours = vmap(jacobian(forward), in_dims, randomness="same")(*tensors)
        assert torch.equal(ours, torch.stack(expected))


@pytest.mark.parametrize("dual", [0, 1], ids=["x", "bias"])
def test_one_tangent_alone(dual, device):
    tensors = [t.detach() for t in inputs(True, device)]
    tangent = torch.randn_like(tensors[dual])
    m = kept(*tensors)
    with forward_ad.dual_level():
        tensors[dual] = forward_ad.make_dual(tensors[dual], tangent)
        ours = forward_ad.unpack_dual(forward(*tensors)).tangent
    assert same(ours, soi_oracle.select(m, tangent.expand(m.shape)))


@pytest.mark.parametrize("wanted", [0, 1], ids=["x", "bias"])
def test_one_input_alone_requires_grad(wanted, device):
    tensors = [t.detach().clone() for t in inputs(True, device)]
    tensors[wanted].requires_grad_()
    forward(*tensors).sum().backward()
    m = kept(*(t.detach() for t in tensors)).double()
    assert torch.equal(tensors[wanted].grad, m if wanted == 0 else m.sum(0))
    assert tensors[1 - wanted].grad is None


def test_a_bit_for_an_element_is_saved(biased, device):
    x = torch.randn(100, 80, device=device, requires_grad=True)
    bias = torch.randn(80, device=device, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t) or t.clone(), lambda t: t * 1
    ):
        y = functional.bias_soi_map(x, bias) if biased else functional.soi_map(x)
    assert [t.nbytes for t in saved] == [1000]
    m = (y.detach() != 0).float()
    y.sum().backward()
    assert torch.equal(x.grad, m)
    if biased:
        torch.testing.assert_close(bias.grad, m.sum(0))


def test_graphs_are_freed(device):
    x = torch.randn(9, device=device, requires_grad=True)
    y = functional.soi_map(x)
    dy = torch.ones_like(y)
    torch.autograd.grad(y, x, dy)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, x, dy)
    assert not functional.soi_map(x.detach()).requires_grad
    with torch.inference_mode():
        assert functional.soi_map(x).is_inference()


def test_modifying_the_mask_raises(device):
    x = torch.randn(9, device=device, requires_grad=True)
    y, mask = ops.soi_forward(x, None, torch.tensor(1, device=device), "normal")
    mask.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant, biased):
    """Recomputation draws the same mask."""
    leaves = inputs(biased)
    call = functional.bias_soi_map if biased else functional.soi_map
    y = checkpoint(call, *leaves, use_reentrant=reentrant)
    m = (y.detach() != 0).double()
    functional.soi_map(torch.zeros(3))  # other draws come between
    y.sum().backward()
    assert torch.equal(leaves[0].grad, m)


# Transforms and compilers


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ["soi_forward", "soi_backward", "soi_backward_bias"])
def test_opcheck(op, dtype, grad, biased):
    x = torch.randn(3, 8).to(dtype).requires_grad_(grad)
    bias = torch.randn(8).to(dtype).requires_grad_(grad) if biased else None
    if op == "soi_forward":
        arguments = x, bias, torch.tensor(3), "normal", 5, 8, 11
    else:
        arguments = x, torch.arange(3, dtype=torch.uint8)
    torch.library.opcheck(getattr(ops, op).default, arguments)


@pytest.mark.parametrize("shape", [(0, 8), (5, 1), (2, 3, 4, 8)], ids=str)
def test_opcheck_of_the_public_operators(shape):
    # Two runs of a random operator differ: only what does not compare them.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    x = torch.randn(shape, requires_grad=True)
    bias = torch.randn(shape[-1], requires_grad=True)
    for t in (x, x.transpose(0, 1)):
        leaf = t.detach().requires_grad_()
        torch.library.opcheck(ops.soi_map.default, (leaf,), test_utils=tests)
    torch.library.opcheck(ops.fused_bias_soi_map.default, (x, bias), test_utils=tests)


def test_schemas_and_tags():
    assert str(ops.soi_map.default._schema) == (
        'gelu_kernels::soi_map(Tensor x, *, str gate="normal", Generator? generator=None) -> Tensor'
    )
    for op in (ops.soi_map, ops.fused_bias_soi_map):
        assert torch.Tag.nondeterministic_seeded in op.default.tags
    for op in (ops.soi_forward, ops.soi_backward, ops.soi_backward_bias):
        assert torch.Tag.nondeterministic_seeded not in op.default.tags
        assert torch.Tag.pt2_compliant_tag in op.default.tags


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(backend, dynamic):
    def step(x: Tensor, bias: Tensor) -> Tensor:
        return functional.bias_soi_map(functional.soi_map(x * 1.5, gate="normal_tanh"), bias) * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (6, 7) if dynamic else (6,):
        x, bias = torch.randn(rows, 5), torch.randn(5)
        results = []
        for f in (step, compiled):
            leaves = [t.clone().requires_grad_() for t in (x, bias)]
            torch.manual_seed(4)
            y = f(*leaves)
            y.sum().backward()
            results.append([y.detach(), *(t.grad for t in leaves)])
        torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec")
@pytest.mark.parametrize("decomposed", [False, True])
def test_export(decomposed, biased):
    """The program draws a seed in each call, the one that an eager call draws."""

    class Layer(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return functional.bias_soi_map(*inputs) if biased else functional.soi_map(*inputs)

    leaves = [t.detach() for t in inputs(biased)]
    rows = torch.export.Dim("rows", min=2)
    shapes = ({0: rows}, *[None] * (len(leaves) - 1))
    program = torch.export.export(Layer(), tuple(leaves), dynamic_shapes=(shapes,), strict=True)
    if decomposed:
        program = program.run_decompositions()
        assert ops.soi_forward.default in {node.target for node in program.graph.nodes}
    x = torch.randn(100, *leaves[0].shape[1:], dtype=leaves[0].dtype)
    results = []
    for f in (Layer(), program.module()):
        torch.manual_seed(3)
        results.append([f(x, *leaves[1:]) for _ in range(2)])
    for eager, exported in zip(*results, strict=True):
        assert same(eager, exported)
    assert not torch.equal(*results[1])


def test_deterministic_algorithms(biased, device):
    """In this mode torch fills new tensors with NaN: what is not written is seen too."""
    x, *bias = (t.detach().float().to(device) for t in inputs(biased))
    torch.use_deterministic_algorithms(True)
    try:
        y = forward(x, *bias)
    finally:
        torch.use_deterministic_algorithms(False)
    assert same(y, forward(x, *bias)) and not y.isnan().any()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_autograd(biased):
    torch._dynamo.reset()
    for _ in range(2):  # the second from its cache
        leaves = inputs(biased)
        y = forward(*leaves)
        with torch._dynamo.compiled_autograd._enable(
            torch.compile(backend="aot_eager", fullgraph=True)
        ):
            y.sum().backward()
        m = kept(*(t.detach() for t in leaves)).double()
        assert torch.equal(leaves[0].grad, m)
        if biased:
            assert torch.equal(leaves[1].grad, m.sum(0))


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape)


def test_vmap_randomness(biased):
    x, bias = torch.ones(5, 400), [zeros(400)] if biased else []
    call = functional.bias_soi_map if biased else functional.soi_map
    in_dims = (0, *(None for _ in bias))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(call, in_dims)(x, *bias)
    torch.manual_seed(1)
    alone = call(x[0], *bias)
    torch.manual_seed(1)
    same_for_all = vmap(call, in_dims, randomness="same")(x, *bias)
    assert all(torch.equal(row, alone) for row in same_for_all)
    different = vmap(call, in_dims, randomness="different")(x, *bias)
    assert len({tuple(row.tolist()) for row in different}) == 5
    unbatched = vmap(lambda _: call(x[0], *bias), randomness="different")(torch.arange(5))
    assert len({tuple(row.tolist()) for row in unbatched}) == 5
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda _: call(x[0], *bias))(torch.arange(5))


@pytest.mark.parametrize(
    "in_dims", [(0, None, None), (1, None, None), (0, 0, None), (0, None, 0), (None, 0, 0)], ids=str
)
@pytest.mark.parametrize("batch", [0, 4])
def test_vmap_of_the_core_operators(in_dims, batch, device):
    def operand(in_dim: int | None, *shape: int) -> Tensor:
        if in_dim is not None:
            shape = (*shape[:in_dim], batch, *shape[in_dim:])
        return torch.randn(shape, device=device)

    x, bias = operand(in_dims[0], 2, 7), operand(in_dims[1], 7)
    seed = torch.arange(batch, device=device) if in_dims[2] == 0 else torch.tensor(7, device=device)
    y, mask = vmap(lambda *t: ops.soi_forward(*t, "normal"), in_dims)(x, bias, seed)
    assert y.shape == (batch, 2, 7) and mask.shape == (batch, 2)
    for i in range(batch):
        own = [
            t if d is None else t.select(d, i)
            for t, d in zip((x, bias, seed), in_dims, strict=True)
        ]
        expected_y, expected_mask = soi_oracle.expected(*own[:2], int(own[2]), "normal")
        assert same(y[i], expected_y) and torch.equal(mask[i], expected_mask)
    dy = torch.randn_like(y)
    dx, dbias = vmap(ops.soi_backward_bias)(dy, mask)
    for i in range(batch):
        expected_dx, expected_dbias = ops.soi_backward_bias(dy[i], mask[i])
        assert same(dx[i], expected_dx)
        torch.testing.assert_close(dbias[i], expected_dbias)


def test_nested_vmap():
    x = torch.randn(3, 4, 9)
    f = vmap(vmap(forward, randomness="same"), randomness="same")
    for i in range(3):
        for j in range(4):
            assert same(f(x)[i, j], forward(x[i, j]))


# Modules


def test_module(device):
    for gate, approximate in _C.gates():
        layer = nn.SOIMap(gate)
        x = torch.randn(50, 60, device=device)
        torch.manual_seed(2)
        y = layer(x)
        torch.manual_seed(2)
        assert same(y, functional.soi_map(x, gate=gate))
        assert ((y == 0) | (y == x)).all() and 0.3 < (y != 0).float().mean() < 0.7
        other = copy.deepcopy(layer).eval()
        torch.testing.assert_close(other(x), reference.gelu(x, approximate))
        assert repr(other) == f"SOIMap(gate={gate!r})"


def test_autocast():
    x, bias = torch.randn(3, 7).bfloat16(), torch.randn(7, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.bias_soi_map(x, bias)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert bias.grad.dtype == torch.float32
    with pytest.raises(TypeError, match="fused_bias_soi_map: bias must have the dtype of x"):
        functional.bias_soi_map(x, bias)


# Bad input

x, seed, mask = torch.ones(2, 3), torch.tensor(1), torch.zeros(1, dtype=torch.uint8)

BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "integer x": (lambda: functional.soi_map(x.int()), TypeError, "soi_map: x must be float64"),
    "sparse x": (lambda: ops.soi_map(x.to_sparse()), TypeError, "soi_map: x must be a strided"),
    "approximate": (
        lambda: functional.soi_map(x, gate="erf"),
        ValueError,
        "soi_map: gate must be one of",
    ),
    "bias too short": (
        lambda: functional.bias_soi_map(x, x[0, :2]),
        ValueError,
        "fused_bias_soi_map: bias must be as long",
    ),
    "integer x, bias": (
        lambda: functional.bias_soi_map(x.int(), x[0]),
        TypeError,
        "fused_bias_soi_map: x must be float64",
    ),
    "generator elsewhere": (
        lambda: functional.soi_map(x.to("meta"), generator=torch.Generator()),
        ValueError,
        "soi_map: generator must be on the device of x, meta, got cpu",
    ),
    "generator elsewhere, bias": (
        lambda: functional.bias_soi_map(x.to("meta"), x[0].to("meta"), generator=torch.Generator()),
        ValueError,
        "fused_bias_soi_map: generator must be on the device of x, meta, got cpu",
    ),
    "seed of another dtype": (
        lambda: ops.soi_forward(x, None, seed.int(), "normal"),
        TypeError,
        "soi_forward: seed must be int64, got",
    ),
    "seeds": (
        lambda: ops.soi_forward(x, None, seed.view(1), "normal"),
        ValueError,
        "soi_forward: seed must be 0-d, got 1",
    ),
    "seed elsewhere": (
        lambda: ops.soi_forward(x, None, seed.to("meta"), "normal"),
        ValueError,
        "soi_forward: seed must be on the device of x",
    ),
    "gate": (
        lambda: ops.soi_forward(x, None, seed, "none"),
        ValueError,
        "soi_forward: gate must be one of",
    ),
    "integer x of the core operator": (
        lambda: ops.soi_forward(x.int(), None, seed, "normal"),
        TypeError,
        "soi_forward: x must be float64",
    ),
    "offset": (
        lambda: ops.soi_forward(x, None, seed, "normal", -1),
        ValueError,
        "soi_forward: offset must not be negative, got -1",
    ),
    "row_length": (
        lambda: ops.soi_forward(x, None, seed, "normal", 0, -2),
        ValueError,
        "soi_forward: row_length must not be negative, got -2",
    ),
    "dtype of the mask": (
        lambda: ops.soi_backward(x, mask.bool()),
        TypeError,
        "soi_backward: mask must be uint8, got",
    ),
    "size of the mask": (
        lambda: ops.soi_backward_bias(x, mask.repeat(2)),
        ValueError,
        "soi_backward_bias: mask must be a vector .* 1 bytes, got shape \\[2\\]",
    ),
    "shape of the mask": (
        lambda: ops.soi_backward(x, mask[0]),
        ValueError,
        "soi_backward: mask must be a vector",
    ),
    "mask elsewhere": (
        lambda: ops.soi_backward(x, mask.to("meta")),
        ValueError,
        "soi_backward: mask must be on the device of dy",
    ),
    "integer dy": (
        lambda: ops.soi_backward(x.int(), mask),
        TypeError,
        "soi_backward: dy must be float64",
    ),
    "0-d dy": (
        lambda: ops.soi_backward_bias(x[0, 0], mask),
        ValueError,
        "soi_backward_bias: dy must have a last dimension",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_errors(kind):
    call, error, message = BAD[kind]
    with pytest.raises(error, match=f"gelu_kernels::{message}"):
        call()


def test_errors_under_grad_and_vmap():
    leaf = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(ValueError, match="soi_forward: seed must be 0-d"):
        ops.soi_forward(leaf, None, seed.view(1), "normal")
    with pytest.raises(ValueError, match="soi_backward: mask must be a vector"):
        vmap(ops.soi_backward, (0, None))(leaf, mask.repeat(2))
    with pytest.raises(ValueError, match="soi_backward_bias: mask must be a vector"):
        ops.soi_backward_bias(leaf, mask.repeat(2))
    with pytest.raises(TypeError, match="soi_map: x must be float64"):
        vmap(functional.soi_map, randomness="same")(torch.ones(2, 3).int())
