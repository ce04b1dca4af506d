"""What a forked operator runs, in a module that loads nothing else."""

import os
import sys
from pathlib import Path

from ddpjob_core.engine.controller import Controller
from ddpjob_operator.__main__ import main

LOADED = ["ddpjob_operator.__main__", "ddpjob_operator.kubeconfig", "tests.apiserver.forked"]
"""What is loaded before the first fork."""

# What it finds out is kept for the process, and so for those that are forked.
Controller.prepare()


def operate(log: Path, arguments: list[str], kubeconfig: str, pod: str = "") -> None:
    """Be `python -m ddpjob_operator`, with its output at the end of a log."""
    if pod:
        os.environ.update(POD_NAME=pod, POD_UID=pod)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = arguments
    os.environ["KUBECONFIG"] = kubeconfig
    sys.exit(main())
