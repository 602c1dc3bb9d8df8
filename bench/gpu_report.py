"""The JSON file of `make gpu`: it lists every stage from the start, and is always complete."""

import hashlib
import shutil
from pathlib import Path

from bench.runs import RESULTS, ROOT, load, save

COMMIT = "GELU_KERNELS_COMMIT"  # in the environment: the commit, where there is no repository
SOURCES = ("CMakeLists.txt", "bench", "csrc", "gelu_kernels", "setup.py", "tests", "triton_kernels")
MADE = ("*.so", "*.pyc")  # of the sources
COUNTED = ("passed", "failure", "error", "skipped")


def digest_of_sources() -> str:
    """Changes with anything that a result may depend on."""
    files = [file for name in SOURCES for file in [ROOT / name, *(ROOT / name).rglob("*")]]
    found = hashlib.sha256()
    for file in sorted(files):
        is_source = not any(map(file.match, MADE)) and file.parent != RESULTS
        if file.is_file() and is_source:
            found.update(f"{file.relative_to(ROOT)} {file.stat().st_size}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()


class Report:
    """`state` is where a second call finds what the first left; `output` is a copy of it."""

    def __init__(self, state: Path, output: Path, machine: dict[str, object]) -> None:
        self.state, self.output = state, output
        run_of = {"sources": digest_of_sources(), "device": machine["device"]}
        new = {"machine": machine, "run of": run_of, "tests": {}, "stages": {}, "results": []}
        new["tables"] = {}
        before = load(state) if state.exists() else {}
        self.contents = before if before.get("run of") == run_of else new
        if self.contents is new:  # files that stages wrote are of other sources
            shutil.rmtree(state.parent, ignore_errors=True)

    @property
    def stages(self) -> dict[str, dict]:
        return self.contents["stages"]

    def add(self, name: str, result: dict[str, object]) -> None:
        """Moves a stage's measurements to those of all stages, and counts its tests."""
        self.stages[name] = result
        found = result.get("found")
        if isinstance(found, dict) and "results" in found:
            others = [record for record in self.contents["results"] if record["stage"] != name]
            own = [{**record, "stage": name} for record in found.pop("results")]
            self.contents["results"] = others + own
        if isinstance(found, dict) and "tables" in found:
            self.contents["tables"] |= found.pop("tables")
        self.contents["tests"] = self.count_tests()
        self.write()

    def count_tests(self) -> dict[str, int]:
        found = [stage.get("found") for stage in self.stages.values()]
        tests = [counts for counts in found if isinstance(counts, dict) and "failures" in counts]
        return {outcome: sum(counts[outcome] for counts in tests) for outcome in COUNTED}

    def write(self) -> None:
        for path in (self.state, self.output):
            save(self.contents, path)
