"""Enforces NetworkPolicies on a node of the kind cluster, where its image is built here. See docs/adr/0018."""
