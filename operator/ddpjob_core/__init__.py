"""What the operator knows and decides: no cluster, no framework, no clock. Only `engine` uses an event loop."""
