"""The examples of manifests/policies, each in a namespace of its own: other tests use the same control plane."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.apiserver.controlplane import ApiError, Client, ControlPlane, Json, path_of, wait_for


@contextmanager
def applied(plane: ControlPlane, file: Path, namespace: str, refused: Json) -> Iterator[None]:
    """A policy with its binding, which holds in one namespace.

    Args:
        plane: where.
        file: with the two.
        namespace: where it holds.
        refused: what it refuses, once it does.
    """
    policy, binding = yaml.safe_load_all(file.read_text())
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": selector}
    for manifest in (policy, binding):
        plane.admin.apply(manifest)
    wait_for(lambda: refusal(plane.admin, refused), "the policy to hold")
    yield
    for manifest in (binding, policy):
        plane.admin.delete(path_of(manifest))


def refusal(admin: Client, manifest: Json) -> str:
    """Why an object is refused, "" if it is not."""
    try:
        admin.create(manifest, dryRun="All")
    except ApiError as error:
        return error.message
    return ""
