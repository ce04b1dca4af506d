"""Everything that a release consists of, built into a folder: the same commit gives the same bytes."""
