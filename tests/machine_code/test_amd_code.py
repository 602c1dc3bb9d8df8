"""What Triton makes of its kernels for an AMD GPU, read in assembly: no GPU is needed."""

import re

import pytest

from machine_code import triton_code
from machine_code.cases import OPERATORS

pytestmark = pytest.mark.slow

AMD = "gfx942"
ACCESS = re.compile(r"(global|buffer|flat)_(load|store|atomic)")
WIDE = re.compile(r"(global|buffer)_(load|store)_dwordx4")
MASK = re.compile(r"(global|buffer)_(load_[us]byte|store_byte|load_dwordx2)")  # and its seed
UNALIGNED = "unaligned gate_forward normal float64"
SPILLED_SCALARS = {
    "cdf_gate_backward normal float32 located": 20,
    "cdf_gate_backward normal_tanh float32 located": 20,
    "cdf_gate_backward logistic_1702 float32 located": 12,
    "cdf_gate_backward logistic float32 located": 12,
    "cdf_gate_backward laplace float32 located": 10,
    "cdf_gate_backward cauchy float32 located": 12,
    "glu_backward_weight cauchy float32 weighted": 2,
    "soi_forward normal bfloat16 biased": 4,
    "soi_forward laplace bfloat16 biased": 4,
}


@pytest.fixture(scope="module")
def amd_kernels() -> dict[str, str]:
    if missing := triton_code.missing_tools():
        pytest.skip(f"needs {', '.join(missing)}")
    return triton_code.amd_code(AMD)


def vector_accesses(assembly: str, masked: bool = False) -> set[str]:
    """Those on the ways from the entry to the exit, or round a loop, with no narrow access but for
    a mask."""
    code = re.findall(r"^(\.LBB\w+)(?=:)|^\t([a-z]+_\w+)(?: +(\.LBB\w+))?", assembly, re.M)
    labels = {label: i for i, (label, _, _) in enumerate(code) if label}
    open_, seen = [0], set()
    while open_:
        i = open_.pop()
        _, opcode, target = code[i]
        is_narrow = ACCESS.match(opcode) and not WIDE.match(opcode)
        if i in seen or (is_narrow and not (masked and MASK.match(opcode))):
            continue
        seen.add(i)
        if target:
            open_.append(labels[target])
        if opcode not in ("s_branch", "s_endpgm"):
            open_.append(i + 1)
    found = {code[i][1] for i in seen}
    wide = {opcode.partition("_")[2] for opcode in found if WIDE.match(opcode)}
    return wide if "s_endpgm" in found else set()


def has_scratch(assembly: str) -> bool:
    numbers = re.findall(r"\.(?:private_segment_fixed_size|vgpr_spill_count): +(\d+)", assembly)
    assert len(numbers) == 2
    return any(map(int, numbers)) or bool(re.search(r"\tscratch_", assembly))


def spilled_scalars(assembly: str) -> int:
    return int(re.search(r"\.sgpr_spill_count: +(\d+)", assembly)[1])


def has_amd_doubles(assembly: str) -> bool:
    return bool(re.search(r"\tv_\w*f64", assembly))


def short(kernels: dict[str, str]) -> dict[str, str]:
    return {name: assembly for name, assembly in kernels.items() if "float64" not in name}


def test_amd_vectors(amd_kernels: dict[str, str]) -> None:
    mapped = {name: x for name, x in short(amd_kernels).items() if "partial" not in name}
    assert {name.split()[0] for name in mapped} == {op.name for op in OPERATORS}
    both = {"load_dwordx4", "store_dwordx4"}
    assert not [
        name
        for name, assembly in mapped.items()
        if vector_accesses(assembly, masked=name.startswith("soi_")) != both
    ]


def test_amd_scratch(amd_kernels: dict[str, str]) -> None:
    assert not [name for name, assembly in amd_kernels.items() if has_scratch(assembly)]


def test_amd_scalars(amd_kernels: dict[str, str]) -> None:
    """Scalars for which registers do not suffice are kept in lanes of vector registers, not in
    memory."""
    spilled = {name: spilled_scalars(assembly) for name, assembly in amd_kernels.items()}
    assert not {name: n for name, n in spilled.items() if n > SPILLED_SCALARS.get(name, 0)}


def test_amd_doubles(amd_kernels: dict[str, str]) -> None:
    assert not [name for name, x in short(amd_kernels).items() if has_amd_doubles(x)]


def test_amd_checks_find_faults(amd_kernels: dict[str, str]) -> None:
    unaligned = amd_kernels[UNALIGNED]
    assert vector_accesses(unaligned) == set()
    assert has_amd_doubles(unaligned)
    spilling = re.sub(r"(vgpr_spill_count: +)0", r"\g<1>4", unaligned)
    assert not has_scratch(unaligned) and has_scratch(spilling)
