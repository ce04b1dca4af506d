"""How long the agents of many nodes take to meet, on one machine."""
