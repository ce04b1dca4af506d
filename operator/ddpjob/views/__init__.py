"""What a user sees, as plain data: pure functions of a job's status, its events and the time."""
