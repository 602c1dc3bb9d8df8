"""The table of the instructions that the kernels issue for an element."""

from bench.markdown import table
from machine_code import budgets
from machine_code.cases import BACKENDS, GATES, Case
from machine_code.machines import MACHINES

ARCHITECTURE, LIMIT_OF = "sm_90", "H100"
# Core operators by dtype, and whether they have vectors along the columns.
SHOWN = {
    "bfloat16": {
        "gate_forward": False,
        "gate_backward": False,
        "gate_backward_bias": True,
        "glu_forward": False,
        "glu_backward": False,
        "glu_backward_weight": True,
        "soi_forward": False,
        "soi_cdf_forward": True,
        "cdf_gate_forward": True,
        "cdf_gate_backward": True,
    },
    "float32": {"gate_forward": False, "gate_backward": False},
}


def slots() -> str:
    """The most that a test allows, of every backend, for the gates that have a budget."""
    most = budgets.read()
    counted = {case.gate for case in most}
    gates = [gate for gate in GATES if gate in counted]
    machine = MACHINES[LIMIT_OF]
    rows = []
    for dtype, operators in SHOWN.items():
        for op, biased in operators.items():
            cases = [
                [Case(op, gate, dtype, biased, backend) for backend in BACKENDS] for gate in gates
            ]
            counts = ("/".join(f"{most[x][ARCHITECTURE]:.0f}" for x in both) for both in cases)
            limit = machine.limit(cases[0][0].moved)
            rows.append((f"`{op}`", dtype, *counts, f"{limit:.0f}"))
    return table(("core operator", "dtype", *(f"`{gate}`" for gate in gates), "limit"), rows)
