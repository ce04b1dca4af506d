"""What a spare node's pod cannot have: what its container is given when it starts, and is a node's alone."""

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from ddpjob_core.api.constants import LABEL_ATTEMPT, LABEL_ORDINAL
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.environment import OF_A_NODE

_REFERENCES: Final = (*(f"$({name})" for name in OF_A_NODE), f"['{LABEL_ORDINAL}']", f"['{LABEL_ATTEMPT}']")


def node_reference(spec: DDPJobSpec) -> str | None:
    """The first reference in the job's text to what its node alone has, such as $(DDPJOB_NODE_RANK); None without one.

    Kubernetes puts the value in when the container starts, and a spare node is none then.
    """
    texts = _texts([spec.template, spec.trainer.model_dump(mode="json")])
    return next((each for text in texts for each in _REFERENCES if each in text), None)


def _texts(value: JsonValue) -> Iterator[str]:
    # Without recursion: a template may be deep.
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
