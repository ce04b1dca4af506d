"""Which samples a rank reads, in which order, and from where after a resume."""
