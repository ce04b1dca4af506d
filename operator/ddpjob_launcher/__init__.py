"""What runs first in a training pod: the standard library only, Python >= 3.8.

The operator imports only `archive`, which packs it into the one file that a pod gets. There are three kinds of process:

    guard    the container's first process: forwards signals, reaps orphans, outlives an agent that is killed
    agent    its child: waits for node 0, runs torchrun or another launcher, writes the report (see ddpjob_core.wire)
    worker   one per rank: runs the program as `python program` would and records its exception

A launcher is a module with an `AGENT`, which the row of spec.launcher in ddpjob_core.api.launchers names.
"""
