"""What replaces a directive that is not carried over, if PBS and Slurm both have it."""

from typing import Final

ARRAY: Final = "not carried over: apply one job per index, each with its own name"
BEGIN: Final = "not carried over: a job starts when it is applied"
DEPENDENCY: Final = "not carried over: wait for the other job before you apply this one: kubectl wait ddpjob/NAME"
HOLD: Final = "not carried over: spec.suspend: true prevents a job from starting"
LOGS: Final = "not carried over: ddpjob logs and kubectl logs show the output of every pod"
MAIL: Final = "not carried over: ddpjob run and kubectl wait --for=condition=Succeeded return when it has ended"
PRIORITY: Final = "not carried over: priorityClassName of spec.template sets the priority"
QUOTA: Final = "not carried over: -n chooses the namespace, whose quota replaces that of an account"
RESTART: Final = "not carried over: spec.restart says what happens after a failure"
SCRATCH: Final = "not carried over: use an emptyDir volume of spec.template as scratch space"
UNKNOWN: Final = "not carried over: it says nothing about nodes, CPUs, memory, GPUs or time"
WORKING_FOLDER: Final = "not carried over: spec.trainer.workingDir sets the working directory"
