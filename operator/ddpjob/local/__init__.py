"""The same DDPJob without a cluster: its nodes are groups of processes of this machine."""
