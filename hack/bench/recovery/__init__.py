"""`make bench-recovery`: how long a training stands still after a fault, beside plain torchrun under the same one."""
