"""The whole operator in front of a real API server, given what nobody should write, from numbered seeds."""
