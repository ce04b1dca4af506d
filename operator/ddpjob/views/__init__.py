"""What a user is shown, as plain data: pure functions of a job's status, of its events and of the clock."""
