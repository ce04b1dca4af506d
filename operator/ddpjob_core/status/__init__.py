"""What the status of a job says: conditions, columns, events, and when they are written."""
