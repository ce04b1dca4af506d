"""The rules of a job's life, a file each. `ddpjob_core.decide` asks them in order; the first that applies decides."""
