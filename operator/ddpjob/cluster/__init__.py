"""A user's way to the API server: a small synchronous client and what is done with it, free of any display."""
