"""The Helm chart: what it shares with the manifests, and what follows from the schema of its values."""
