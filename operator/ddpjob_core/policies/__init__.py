"""The rules of a job's life, one per file. `ddpjob_core.decide` tries them in order; the first that applies decides."""
