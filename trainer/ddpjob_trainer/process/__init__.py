"""This process and its peers: its place, the group, exchanges between ranks, stops, and signs of where a rank hangs."""
