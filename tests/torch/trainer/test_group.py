"""How processes meet, and what becomes of one whose peers do not answer."""

import re

from training import ranks_started

WAITS_FOR_THE_OTHER = """
import threading
from datetime import timedelta
import torch
from ddpjob_trainer import *
with process_group(current_environment(), timeout=timedelta(seconds=8)) as group:
    if group.first:
        torch.distributed.all_reduce(torch.ones(1))
    print("HANGS", flush=True)
    threading.Event().wait()
"""


def test_a_collective_that_a_rank_never_joins_fails_after_the_timeout_of_the_group() -> None:
    with ranks_started(2, "-c", WAITS_FOR_THE_OTHER) as (waits, hangs):
        code, said = waits.end()
        assert hangs.running
    assert code != 0
    assert "HANGS" not in said
    assert re.search(r"[Tt]imed out", said), said
