"""The kind cluster: its engine, nodes, programs and storage, and the operator on it."""
