"""What is known of a job, and what follows from it: its attempt, its root cause, a stall, a lost node."""
