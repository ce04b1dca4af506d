import pytest

from hack.images.dockerfile import DockerfileError, needs

DOCKERFILE = """\
# Syntax that a person writes.
FROM --platform=linux/amd64 docker.io/library/debian:trixie-slim AS packages
RUN apt-get install -y \\
# a comment within a command
      python3
COPY requirements.lock /requirements.lock

FROM packages AS torch
COPY --chown=1000:1000 images/a.py images/b.pth /usr/lib/
RUN --mount=type=bind,from=tools,target=/tools true

FROM scratch AS tools
COPY tools/run /run

FROM docker.io/library/debian:bookworm-slim
COPY --from=packages /opt /opt
COPY src /src
"""


def test_a_target_needs_the_files_and_bases_of_every_stage_that_it_is_made_from() -> None:
    found = needs(DOCKERFILE, "torch")
    assert found.base_images == ("docker.io/library/debian:trixie-slim",)
    assert found.files == ("images/a.py", "images/b.pth", "requirements.lock", "tools/run")


def test_without_a_target_the_last_stage_is_meant() -> None:
    found = needs(DOCKERFILE)
    assert found.base_images == ("docker.io/library/debian:bookworm-slim", "docker.io/library/debian:trixie-slim")
    assert found.files == ("requirements.lock", "src")


def test_a_stage_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(DockerfileError, match="'gpu'"):
        needs(DOCKERFILE, "gpu")
