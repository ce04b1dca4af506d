"""The training loop: settings, steps of the optimizer, epochs, evaluations, early stopping."""
