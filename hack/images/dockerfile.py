"""What a build target of a Dockerfile is made of: base images and files of the build context."""

import re
from dataclasses import dataclass


class DockerfileError(Exception):
    """The Dockerfile has no such target, or holds what this reader does not understand."""


@dataclass(frozen=True)
class Needs:
    """What has to be there before a target is built."""

    base_images: tuple[str, ...]
    files: tuple[str, ...]


@dataclass
class _Stage:
    names: tuple[str, ...]
    origin: str
    copied_from: list[str]
    files: list[str]


def needs(text: str, target: str = "") -> Needs:
    """The base images and the files that a target takes, through every stage that it is made from.

    Args:
        text: the Dockerfile.
        target: name of a stage; "" is the last one.

    Raises:
        DockerfileError: there is no such stage.
    """
    stages = _stages(text)
    names = {name: stage for stage in stages for name in stage.names}
    if not stages or (target and target not in names):
        raise DockerfileError(f"no stage {target!r} in the Dockerfile")
    waiting = [names[target] if target else stages[-1]]
    seen: list[_Stage] = []
    images: set[str] = set()
    while waiting:
        stage = waiting.pop()
        if stage in seen:
            continue
        seen.append(stage)
        for source in (stage.origin, *stage.copied_from):
            if source in names:
                waiting.append(names[source])
            else:
                images.add(source)
    files = {file for stage in seen for file in stage.files}
    return Needs(tuple(sorted(images - {"scratch"})), tuple(sorted(files)))


def _stages(text: str) -> list[_Stage]:
    stages: list[_Stage] = []
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in joined.splitlines():
        words = line.split()
        instruction = words[0].upper() if words else ""
        if instruction == "FROM":
            arguments = [word for word in words[1:] if not word.startswith("--")]
            named = len(arguments) == len(["image", "AS", "name"])
            names = (str(len(stages)), *([arguments[2]] if named else []))
            stages.append(_Stage(names, arguments[0], [], []))
        elif instruction in ("COPY", "ADD") and stages:
            _read_copy(stages[-1], words[1:])
        elif instruction == "RUN" and stages:
            stages[-1].copied_from += re.findall(r"--mount=\S*\bfrom=([^,\s]+)", line)
    return stages


def _read_copy(stage: _Stage, words: list[str]) -> None:
    source = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
    if source is not None:
        stage.copied_from.append(source)
        return
    stage.files += [word for word in words if not word.startswith("--")][:-1]
