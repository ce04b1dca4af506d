"""The machinery that carries decisions out, the same for a cluster and for one machine."""
