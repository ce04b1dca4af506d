"""`make bench-resize`: how long training is interrupted when a job changes its size."""
