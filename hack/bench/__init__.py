"""Benchmarks: recovery from a fault, and what the library costs a training."""
