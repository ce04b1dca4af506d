"""What takes the place of a directive that is not carried over, where PBS and Slurm have the same one."""

from typing import Final

ARRAY: Final = "not carried over: apply one job for each index, each with a name of its own"
BEGIN: Final = "not carried over: a job starts when it is applied"
DEPENDENCY: Final = "not carried over: wait for the other job before this one is applied: kubectl wait ddpjob/NAME"
HOLD: Final = "not carried over: spec.suspend: true keeps a job from starting"
LOGS: Final = "not carried over: ddpjob logs, or kubectl logs, shows what the pods write"
MAIL: Final = "not carried over: ddpjob run, or kubectl wait --for=condition=Succeeded, tells when it has ended"
PRIORITY: Final = "not carried over: priorityClassName of spec.template sets a priority"
QUOTA: Final = "not carried over: -n chooses the namespace, whose quota takes the place of an account's"
RESTART: Final = "not carried over: spec.restart says what happens after a failure"
SCRATCH: Final = "not carried over: an emptyDir volume of spec.template is a node's scratch space"
UNKNOWN: Final = "not carried over: it says nothing about nodes, CPUs, memory, GPUs or time"
WORKING_FOLDER: Final = "not carried over: spec.trainer.workingDir is the working directory"
