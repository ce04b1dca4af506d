"""The messages between pods and operator, each defined once."""
