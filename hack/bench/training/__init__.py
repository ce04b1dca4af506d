"""The measured overhead of the trainer library."""
