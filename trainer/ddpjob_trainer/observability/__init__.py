"""What a training shows while it runs: listeners, log lines, progress, metrics."""
