"""A rank: runs every check; the first rank prints the failures of all.

RANK, WORLD_SIZE and STORE, a file that the ranks share, are environment variables.
"""

import os
import sys
import traceback
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.pytorch.distributed import (  # noqa: F401
    dispatch,
    masks,
    operators,
    placements,
    training,
)
from tests.pytorch.distributed.ranks import CHECKS

torch.set_num_threads(1)
dist.init_process_group(
    "gloo",
    init_method=f"file://{os.environ['STORE']}",
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
    timeout=timedelta(seconds=60),
)
report = dist.new_group()  # which a check that fails on one rank does not confuse
failed = []
for name, check in CHECKS.items():
    failure = None
    try:
        check()
    except (Exception, pytest.fail.Exception):
        failure = traceback.format_exc()
    of_all = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, failure, group=report)
    failures = [f"{name}, rank {rank}: {f}" for rank, f in enumerate(of_all) if f]
    failed += failures
    if 0 < len(failures) < dist.get_world_size():
        failed.append("not continued: the ranks are no longer at the same place")
        break
if dist.get_rank() == 0:
    print(*failed or [f"{len(CHECKS)} checks passed"], sep="\n")
dist.destroy_process_group()
sys.exit(bool(failed))
