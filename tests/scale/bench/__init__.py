"""How fast pods are created, compared with a client that does nothing else and with Kubernetes' own Jobs."""
