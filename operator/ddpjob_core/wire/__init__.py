"""What pods and operator say to each other, each message defined once."""
