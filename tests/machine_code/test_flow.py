"""The ways through instructions, and which branches depend on loaded numbers, in code by hand."""

import re
from itertools import product

from machine_code.control_flow import ControlFlow, narrow_accesses
from machine_code.data_flow import branches_on_loads
from machine_code.sass import decode

LOADS = [("LDG.E.128", "R4,desc[UR4][R2.64]", ""), ("LDG.E.128", "R4[R2.64]", "")]  # of sm_80
BRANCH = "BRA", "0x100", "@!P0"


# What lies between a load and a branch, and whether the branch depends on the load.
BETWEEN = [
    ([("FSETP.GT.AND", "P0,PT,R7,1,PT", "")], 1),
    ([("FSETP.GT.AND", "P0,PT,R8,1,PT", "")], 0),  # the vector is R4 to R7
    ([("ISETP.GE.AND", "P0,PT,R3,0x1,PT", "")], 0),  # a count of rows
    ([("ISETP.GE.AND", "P1,P0,R6,0x1,PT", "")], 1),  # the second result
    ([("IADD3", "R8,P0,R4,R9,RZ", "")], 1),  # a carry
    ([("FFMA2", "R8,R4,R10,R12", ""), ("FSETP.GT.AND", "P0,PT,R9,1,PT", "")], 1),
    ([("FSETP.GT.AND", "P1,PT,R5,1,PT", ""), ("MOV", "R8,0x1", "@P1")]
     + [("ISETP.NE.AND", "P0,PT,R8,RZ,PT", "")], 1),
    ([("MOV", "R4,0x1", ""), ("FSETP.GT.AND", "P0,PT,R4,1,PT", "")], 0),
    ([("MOV", "R4,0x1", "@P2"), ("FSETP.GT.AND", "P0,PT,R4,1,PT", "")], 1),
]  # fmt: skip


def test_branches_on_loads() -> None:
    for load, (between, branches) in product(LOADS, BETWEEN):
        code = [decode(*x) for x in [load, *between, BRANCH]]
        assert branches_on_loads(code) == branches, (load, between)


def test_numbers_of_the_round_before() -> None:
    ahead = [("FSETP.GT.AND", "P0,PT,R4,1,PT", ""), BRANCH, LOADS[0]]
    assert branches_on_loads([decode(*x) for x in ahead]) == 1


def assemble(text: str) -> ControlFlow:
    lines = [re.match(r"(@\S+ )?(\S+) ?(.*)", line.strip()) for line in text.strip().splitlines()]
    return ControlFlow([decode(m[2], m[3], (m[1] or "").strip()) for m in lines])


def test_control_flow() -> None:
    """The path takes the vectors, not the short cut, and goes round no loop; the loop is the one
    with vectors; NOPs do not count."""
    flow = assemble("""
        @P0 EXIT
        @P1 BRA 0x40
        LDG.E.U16 R0,desc[UR4][R2.64]
        BRA 0x70
        LDG.E.128 R0,desc[UR4][R2.64]
        NOP
        IADD3 R3,R3,0x10,RZ
        LDG.E.128 R4,desc[UR4][R2.64]
        STG.E.128 desc[UR4][R2.64],R0
        @P2 BRA 0x70
        LDG.E.U16 R0,desc[UR4][R2.64]
        @P3 BRA 0xa0
        EXIT
    """)
    path = [instruction.name for instruction in flow.vector_path()]
    assert path == ["EXIT", "BRA", "LDG", "IADD3", "LDG", "STG", "BRA", "LDG", "BRA", "EXIT"]
    loop, around = ([x.name for x in part] for part in flow.vector_loop())
    assert loop == ["LDG", "STG", "BRA"]
    assert around == ["EXIT", "BRA", "LDG", "IADD3", "LDG", "BRA", "EXIT"]


def test_narrow_side_of_a_predicated_branch() -> None:
    wide, other = "@P1 LDG.E.128 R0,desc[UR4][R2.64]\n", "@!P1 LDG.E.U16 R0,desc[UR4][R2.64]\n"
    assert len(narrow_accesses(assemble(wide + other + "EXIT").vector_path())) == 0
    assert len(narrow_accesses(assemble(other + "EXIT").vector_path())) == 1
