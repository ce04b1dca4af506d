"""install.yaml: the definition of DDPJobs and the operator in one file, for `kubectl apply`."""

import subprocess
from pathlib import Path
from typing import Final

import yaml

from hack.console import StepError
from hack.images.image import IMAGES
from hack.release.settings import Release

_MANIFESTS: Final = "manifests"
_KUSTOMIZATION: Final = "kustomization.yaml"
# Kustomize does not know that these kinds have no namespace, and gives them that of the others.
_WITHOUT_NAMESPACE: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_HEADER: Final = "# ddpjob {version}: kubectl apply --server-side -f install.yaml\n"


def install_file(sources: Path, kubectl: Path, release: Release) -> str:
    """The text of the file, as kustomize makes it of manifests/base.

    Args:
        sources: a copy of the repository, in which a file is left.
        kubectl: the program.
        release: what is released.

    Raises:
        StepError: kubectl refused.
    """
    image = {"name": IMAGES[0].name.partition(":")[0], "newName": release.operator_image, "newTag": release.version}
    # Next to what it names: kustomize reads nothing above its own folder.
    (sources / _MANIFESTS / _KUSTOMIZATION).write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                # The definition and the namespace come before what needs them.
                "sortOptions": {"order": "fifo"},
                "resources": ["crd/ddpjobs.yaml", "base"],
                "images": [image],
                "patches": [
                    {"target": {"kind": f"^{kind}$"}, "patch": "- {op: remove, path: /metadata/namespace}"}
                    for kind in _WITHOUT_NAMESPACE
                ],
            }
        )
    )
    done = subprocess.run(
        [str(kubectl), "kustomize", str(sources / _MANIFESTS)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StepError(f"kubectl kustomize failed: {done.stderr.strip()}")
    return _HEADER.format(version=release.version) + done.stdout
