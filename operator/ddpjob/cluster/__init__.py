"""The client of the API server: a small synchronous one and what is done with it, without any display."""
