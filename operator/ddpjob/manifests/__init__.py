"""What a user submits: files, names and programs, checked before anything is sent."""
