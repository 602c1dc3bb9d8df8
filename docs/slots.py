"""The table of the instructions that the kernels issue for an element."""

from bench.markdown import table
from gelu_kernels.operators.table import core
from machine_code import budgets
from machine_code.cases import BACKENDS, GATES, Case, biases
from machine_code.machines import MACHINES

ARCHITECTURE, LIMIT_OF = "sm_90", "H100"
# Core operators by dtype.
SHOWN = {
    "bfloat16": (
        *("gate_forward", "gate_backward", "gate_backward_bias"),
        *("glu_forward", "glu_backward", "glu_backward_weight"),
        *("soi_forward", "soi_cdf_forward", "cdf_gate_forward", "cdf_gate_backward"),
    ),
    "float32": ("gate_forward", "gate_backward"),
}


def slots() -> str:
    """The most that a test allows, of every backend, for the gates that have a budget."""
    most = budgets.read()
    counted = {case.gate for case in most}
    gates = [gate for gate in GATES if gate in counted]
    machine = MACHINES[LIMIT_OF]
    rows = []
    for dtype, operators in SHOWN.items():
        for op in operators:
            biased = biases(core(op))[0]  # where it may have none, it has none
            cases = [
                [Case(op, gate, dtype, biased, backend) for backend in BACKENDS] for gate in gates
            ]
            counts = ("/".join(f"{most[x][ARCHITECTURE]:.0f}" for x in both) for both in cases)
            limit = machine.limit(cases[0][0].moved)
            rows.append((f"`{op}`", dtype, *counts, f"{limit:.0f}"))
    return table(("core operator", "dtype", *(f"`{gate}`" for gate in gates), "limit"), rows)
