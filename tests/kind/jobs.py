"""DDPJobs and the objects that go with them, as the kind tests apply them."""

import os
from typing import Any

TRAINER_IMAGE = os.environ.get("DDPJOB_TRAINER_IMAGE", "ddpjob-trainer:cpu")
EXAMPLES_IMAGE = os.environ.get("DDPJOB_EXAMPLES_IMAGE", "ddpjob-examples:cpu")
OPERATOR_IMAGE = os.environ.get("DDPJOB_OPERATOR_IMAGE", "ddpjob-operator:dev")
TORCH_IMAGE = os.environ.get("DDPJOB_TORCH_IMAGE", "ddpjob-torch:cpu")


def ddpjob(name: str, *, nodes: int = 2, procs: int = 1, trainer: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "procsPerNode": procs, "trainer": trainer, **spec},
    }


def digits(
    name: str, *, epochs: int = 8, nodes: int = 2, procs: int = 2, extra: tuple[str, ...] = (), **spec: Any
) -> dict[str, Any]:
    return ddpjob(
        name,
        nodes=nodes,
        procs=procs,
        trainer={
            "image": TRAINER_IMAGE,
            "module": "ddpjob_trainer.examples.digits",
            "args": ["--total-epochs", str(epochs), "--save-every", "5", "--batch-size", "32", *extra],
        },
        **spec,
    )


def program(name: str, source: str) -> dict[str, Any]:
    """A ConfigMap that carries a script."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"main.py": source},
    }


def scripted(name: str, *, config_map: str, nodes: int = 2, procs: int = 1, **spec: Any) -> dict[str, Any]:
    """A job that runs the script of a ConfigMap in the plain torch image."""
    template = spec.pop("template", {})
    pod_spec = template.get("spec", {})
    volumes = [{"name": "program", "configMap": {"name": config_map}}, *pod_spec.get("volumes", [])]
    return ddpjob(
        name,
        nodes=nodes,
        procs=procs,
        trainer={
            "image": TORCH_IMAGE,
            "script": "/program/main.py",
            "volumeMounts": [{"name": "program", "mountPath": "/program"}],
        },
        template={**template, "spec": {**pod_spec, "volumes": volumes}},
        **spec,
    )
