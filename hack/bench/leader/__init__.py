"""How long the jobs have no leader, and what a standby costs."""
