"""`make bench-recovery`: how long training is interrupted by a fault, compared with plain torchrun."""
