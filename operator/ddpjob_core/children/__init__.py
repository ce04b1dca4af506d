"""The objects that a DDPJob owns, as manifests: pure functions of the job and the attempt."""
