"""`make bench-recovery`: how long a training stands still after a fault, next to plain torchrun under the same one."""
