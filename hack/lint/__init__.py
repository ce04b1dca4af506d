"""What `make lint` runs: the usual linters, and checks of this repository's own."""
