"""Checkpoints: what is copied, how it is written without pickle, and which one a resume takes."""
