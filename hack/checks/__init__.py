"""What `make test` runs, and where."""
