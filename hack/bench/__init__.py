"""Benchmarks: recovery from a fault, and the overhead of the trainer library."""
