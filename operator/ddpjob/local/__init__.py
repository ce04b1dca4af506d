"""A DDPJob without a cluster: its nodes are groups of processes on this machine."""
