"""What a request to the API server costs the operator's process."""
