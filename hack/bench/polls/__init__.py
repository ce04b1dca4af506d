"""What a poll of a job's progress costs the operator."""
