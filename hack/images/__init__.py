"""The images of this repository: what they are made of, and how nodes get them."""
