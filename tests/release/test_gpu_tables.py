"""What the docs say of a GPU's measurements: each table by hand, and none of what is missing."""

from pathlib import Path

from bench import runs
from docs.gpu_tables import LIGER, of_gpu
from tests.release.test_tables import record

MACHINE = {"device": "GPU X", "versions": {"torch": "2.11.0"}, "date": "2026-11-26"}
LARGE = 2**27


def measured(side: str, us: float, elements: int = LARGE, **changed) -> dict:
    return record(side, us, elements, **{"dtype": "bfloat16", "roof": 100.0, **changed})


def lines(results: list[dict], folder: Path) -> list[str]:
    """Without padding."""
    text = of_gpu({"machine": MACHINE, "results": results}, "GPU X", folder)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_line_for_a_family(tmp_path: Path) -> None:
    gelu = [measured("cuda", 4, roof=98), measured("eager", 8)]
    lalu = {"op": "gate", "gate": "laplace"}
    gelu += [measured("cuda", 2, roof=95.6, **lalu), measured("eager", 10, **lalu)]
    coded = [measured("cuda", 3, op="gate saving 8 bits", roof=90)]
    plain = [measured("cuda", 3, op="gate saving x", roof=1)]
    triton = [measured("triton", 4, op="cdf_gate", dtype="float32", roof=80)]
    small = [measured("cuda", 1, 2**26, roof=10)]
    found = lines([*coded, *gelu, *plain, *triton, *small], tmp_path)
    assert found[4:8] == [
        "| operator | bfloat16 forward |",
        "| ------------------------- | ----------------- |",
        "| gate | 96-98 %, 2.0-5.0x |",
        "| derivative in 8 or 4 bits | 90 % |",
    ]
    assert "| `cdf_gate` | 80 % |" in found
    assert not any("graph" in line or "packages" in line or "layer" in line for line in found)


def test_small_tensors(tmp_path: Path) -> None:
    results = [
        measured(side, us + i, elements, **{"us in a graph": us / 2, "host us": us - i})
        for i, elements in enumerate((2**12, 2**24))
        for side, us in (("cuda", 4), ("eager", 6))
    ]
    found = lines(results, tmp_path)
    assert "| operator | gate | pass | 2^12 | 2^24 | host |" in found
    numbers = "4.0 / 6.0; 2.0 / 3.0 | 5.0 / 7.0; 2.0 / 3.0 | 4.0 / 6.0"
    assert f"| `gelu` | `normal` | forward | {numbers} |" in found


def test_peers(tmp_path: Path) -> None:
    results = [measured("cuda", 4, ULP=0.5), measured("eager", 8, ULP=128.25)]
    results += [measured("compile", 5), measured(LIGER, 6, ULP=1.0)]
    found = lines(results, tmp_path)
    assert any("over its inputs" in line for line in found)
    assert "| operator | gate | pass | cuda | eager | compile | liger_kernel |" in found
    expected = "4.0, 0.5 | 8.0, 128 | 5.0 | 6.0, 1"
    assert f"| `gelu` | `normal` | bfloat16 forward | {expected} |" in found


def test_other_tables(tmp_path: Path) -> None:
    block = {"mlp": "gelu", "features": 8, "layers": 1, "tokens": 9, "dtype": "bfloat16"}
    block |= {"mode": "torch", "kept bytes": 2_000_000, "peak bytes": 3_000_000, "us": 1500}
    sizes = {"tokens": 1, "features": 2, "hidden": 3, "dtype": "bfloat16"}
    product = sizes | {"pass": "forward", "what": "addmm", "us": 12.4}
    other = product | {"tokens": 4, "us": 13.6}
    gated = product | {"what": "addmm, gelu_kernels", "us": 15.5}
    compiled = block | {"mode": "torch, compiled", "kept bytes": None}
    runs.write_csv([block, compiled], tmp_path / "block-gelu-bfloat16-gpu-x.csv")
    runs.write_csv([block], tmp_path / "block-gelu-bfloat16-gpu-y.csv")
    runs.write_csv([product, gated, other], tmp_path / "epilogue-bfloat16-gpu-x.csv")
    found = lines([], tmp_path)
    assert found.count("| torch | 1.50 | 2 | 3 |") == 1
    assert "| torch, compiled | 1.50 | | 3 |" in found
    assert "| pass | what | 1 x 2 x 3 | 4 x 2 x 3 |" in found
    assert "| forward | addmm | 12 | 14 |" in found
    assert "| forward | share of the gate | 20.0% | |" in found
