"""Which branches depend on loaded numbers, in code by hand."""

import pytest

from machine_code.data_flow import branches_on_loads
from machine_code.sass import decode

LOADS = [("LDG.E.128", "R4,desc[UR4][R2.64]", ""), ("LDG.E.128", "R4[R2.64]", "")]  # of sm_80
BRANCH = "BRA", "0x100", "@!P0"


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    ("between", "branches"),
    [
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
    ],
)  # fmt: skip
def test_branches_on_loads(
    between: list[tuple[str, str, str]], branches: int, load: tuple[str, str, str]
) -> None:
    assert branches_on_loads([decode(*x) for x in [load, *between, BRANCH]]) == branches


def test_numbers_of_the_round_before() -> None:
    ahead = [("FSETP.GT.AND", "P0,PT,R4,1,PT", ""), BRANCH, LOADS[0]]
    assert branches_on_loads([decode(*x) for x in ahead]) == 1
