"""NVIDIA GPUs for a static roofline: the numbers of each, their sources, and the time of a kernel.

Only an H200 was measured by this project (docs/internals/roofline.md); the rest is prediction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Lanes of a processor in a cycle. Four schedulers issue an instruction for 32 threads each. The
# other numbers are from the table "Throughput of Native Arithmetic Instructions" in the CUDA C++
# Programming Guide, and ptxas 13.0 spaces independent instructions accordingly: MUFU by 8 cycles,
# the ALU's by 2, and FFMA by 1, on compute capability 8.0 by 2.
HOPPER = {"issue": 128, "FMA": 128, "ALU": 64, "MUFU": 16, "FP64": 64}
LANES = {"sm_80": {**HOPPER, "FMA": 64, "FP64": 32}, "sm_90": HOPPER, "sm_100": HOPPER}

# The pipes, as NVIDIA describes them (forums.developer.nvidia.com/t/302018 and /108729). IMAD has
# only half of the FMA's lanes: launches.py counts what that costs. MUFU's pipe also converts
# integers and float64.
PIPES = {
    "FMA": {"FADD", "FFMA", "FMUL", "IMAD"},
    "MUFU": {"F2F", "F2I", "I2F", "MUFU", "POPC"},
    "FP64": {"DADD", "DFMA", "DMNMX", "DMUL", "DSETP"},
}
# ptxas spaces these by 2 cycles: packed float32 saves slots and no arithmetic. A B200 was measured
# at 120 float32 lanes in a cycle (NVIDIA/cudnn-frontend#1178). HADD2 converts float16.
AT_64_LANES = {"FADD2", "FFMA2", "FMUL2", "HADD2", "HFMA2", "HMUL2"}
# Memory, control and uniform instructions: bytes stand for their own pipes, which are not counted.
ISSUE_ONLY = {"ATOM", "ATOMG", "BAR", "BRA", "BSSY", "BSYNC", "CALL", "DEPBAR", "EXIT", "LD", "LDC"}
ISSUE_ONLY |= {"LDCU", "LDG", "LDGDEPBAR", "LDGSTS", "LDS", "RED", "RET", "S2R", "S2UR", "SHFL"}
ISSUE_ONLY |= {"ST", "STG", "STS", "WARPSYNC"}


def pipe(name: str) -> str | None:
    """Of an instruction. One that is not named is the ALU's: logic, shifts, integers, comparisons,
    minima, selections, moves, and F2FP, which converts two floats to 16 bits and which ptxas spaces
    by 2 cycles from itself and from FMNMX."""
    if name in ISSUE_ONLY or name.startswith("U"):
        return None
    if name in AT_64_LANES:
        return "FMA"
    return next((pipe for pipe, names in PIPES.items() if name in names), "ALU")


def by_pipe(architecture: str, instructions: Mapping[str, float]) -> dict[str, float]:
    """Instructions as lanes of their pipes, and IMADs."""
    found = {"IMAD": instructions.get("IMAD", 0)}
    for name, count in instructions.items():
        if key := pipe(name):
            share = LANES[architecture][key] / 64 if name in AT_64_LANES else 1
            found[key] = found.get(key, 0) + share * count
    return found


@dataclass(frozen=True)
class Prediction:
    picoseconds: dict[str, float]  # for an element, of each resource as if the others took none

    @property
    def bound(self) -> str:
        return max(self.picoseconds, key=self.picoseconds.__getitem__)

    @property
    def percent(self) -> float:
        """Upper bound, in % of a copy's speed: as if all overlapped and nothing had a latency."""
        return 100 * (self.picoseconds["memory"] / self.picoseconds[self.bound])


@dataclass(frozen=True)
class Machine:
    name: str
    device: str  # as its driver calls it
    architecture: str
    processors: int
    clock: float  # GHz, assumed while memory is busy
    bandwidth: float  # TB/s, the vendor's
    copied: float  # TB/s, measured: bytes read and bytes written
    latency: float  # cycles, of a load while nothing else is loaded
    in_flight: int  # kB of loads under way that fill the memory, for a processor
    sources: tuple[str, str, str, str, str, str]  # of these six numbers

    def lanes(self, name: str) -> float:
        """In a picosecond."""
        return LANES[self.architecture][name] * self.processors * self.clock / 1000

    def limit(self, moved: float) -> float:
        """Slots for an element while its bytes pass through memory."""
        return moved / self.copied * self.lanes("issue")

    def predict(
        self, moved: float, slots: float, instructions: Mapping[str, float] | None = None
    ) -> Prediction:
        """From what an element needs: bytes, issue slots and, by name, instructions."""
        pipes = by_pipe(self.architecture, instructions or {})
        return self.predict_pipes(moved, {"issue": slots, **pipes})

    def predict_pipes(self, moved: float, pipes: Mapping[str, float]) -> Prediction:
        """The same from instructions by pipe, issue among them."""
        times = {name: x / self.lanes(name) for name, x in pipes.items() if name != "IMAD"}
        return Prediction({"memory": moved / self.copied, **times})


H200_CLOCK = "measured in turns with a copy; at its limit of 700 W 1.8"
H200_COPY = "bench/results/nvidia-h200.csv: copies of 64 MiB, 256 MiB and 1 GiB, less their start"
HOPPER_LATENCY = "markdewing/AI_kernels, latency: GH200"
IN_FLIGHT = "NVIDIA/cccl: cub's cc_to_min_bytes_in_flight, by experiment"

_ALL = [
    Machine(
        *("A100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 1.41, 2.039, 1.737, 466, 16),
        (
            "A100 whitepaper",
            "A100 whitepaper: boost",
            "A100 80GB SXM datasheet",
            "RRZE-HPC/gpu-benches, gpu-stream/a100_80.txt: scale",
            "arXiv:2402.13499, table of latencies",
            IN_FLIGHT,
        ),
    ),
    Machine(
        *("H100", "NVIDIA H100 80GB HBM3", "sm_90", 132, 1.7, 3.35, 3.0, 690, 32),
        (
            "H100 whitepaper",
            "below the maximum, 1.98; tile-ai/TileOPs#1588: not even 1.83 is held at full load",
            "H100 SXM datasheet",
            "KernelBench timings: F.gelu of 1.6e9 float32",
            HOPPER_LATENCY,
            IN_FLIGHT,
        ),
    ),
    Machine(
        *("H200", "NVIDIA H200", "sm_90", 132, 1.98, 4.8, 4.28, 690, 48),
        (
            "H100 whitepaper: the same processor",
            H200_CLOCK,
            "H200 SXM datasheet",
            H200_COPY,
            HOPPER_LATENCY,
            IN_FLIGHT,
        ),
    ),
    Machine(
        *("B200", "NVIDIA B200", "sm_100", 148, 1.75, 8.0, 6.7, 860, 64),
        (
            "pytorch/ao#4002: by its driver",
            "below the maximum, 1.965; Dao-AILab/flash-attention#2488 locks 1.755",
            "Blackwell datasheet; a later one has 7.7",
            "NVIDIA/cccl#7391: 2^28 float32 to as many",
            "markdewing/AI_kernels, latency: B200",
            IN_FLIGHT,
        ),
    ),
]
MACHINES = {machine.name: machine for machine in _ALL}
