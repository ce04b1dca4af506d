"""The version of the project, which the operator writes into its Lease and the command line compares with its own.

`python -m hack.generate` takes it from pyproject.toml.
"""

from typing import Final

RELEASE: Final = "0.1.0"
ANNOTATION_RELEASE: Final = "ddpjob.dev/version"
"""On the Lease of an operator: the version of the program that holds it."""
