"""What a user hands in: files, names and programs, checked before anything is sent."""
