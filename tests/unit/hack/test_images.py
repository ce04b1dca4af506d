import re

import pytest

from hack.build_settings import pip_configuration, pip_settings
from hack.cache import ROOT
from hack.clean import our_images
from hack.dockerfile import DockerfileError, needs
from hack.images import ALL_IMAGES, STAGES_LABEL, Image, left_over, nodes_that_lack, older_names

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


IMAGE = Image("ddpjob-trainer:cpu", "images/trainer/Dockerfile", "trainer", "DDPJOB_TRAINER_IMAGE")
KEYED = IMAGE.keyed("0123456789abcdef")


def listing(**digests: str) -> str:
    names = {"current": KEYED, "plain": IMAGE.local_name, "older": IMAGE.keyed("fedcba9876543210")}
    rows = [
        f"{names[name]} application/vnd.oci sha256:{digest} 1.1 GiB linux/amd64 -" for name, digest in digests.items()
    ]
    return "REF TYPE DIGEST SIZE PLATFORMS LABELS\n" + "\n".join(rows) + "\n"


def test_an_image_is_named_as_a_node_looks_it_up() -> None:
    assert IMAGE.local_name == "docker.io/library/ddpjob-trainer:cpu"
    assert KEYED == "docker.io/library/ddpjob-trainer:cpu-0123456789abcdef"


def test_a_node_lacks_an_image_that_is_missing_or_stale() -> None:
    listings = {
        "current": listing(current="aa", plain="aa"),
        "empty": listing(),
        "older": listing(older="bb", plain="bb"),
        "renamed": listing(current="aa", plain="bb"),
    }
    assert nodes_that_lack(listings, IMAGE, KEYED) == ["empty", "older", "renamed"]


def test_only_what_an_image_was_before_is_forgotten() -> None:
    assert older_names(listing(current="aa", plain="aa", older="bb"), IMAGE, KEYED) == [IMAGE.keyed("fedcba9876543210")]


def test_docker_writes_no_registry_before_the_names_of_its_own() -> None:
    docker = "ddpjob-trainer:cpu\nddpjob-trainer:cpu-0123456789abcdef\nddpjob-trainer:cpu-fedcba9876543210\n"
    assert older_names(docker, IMAGE, KEYED) == ["ddpjob-trainer:cpu-fedcba9876543210"]


def test_of_left_over_stages_those_stay_that_the_build_made_or_found_in_its_cache() -> None:
    made, cached, older = ("sha256:" + digit * 64 for digit in "abc")
    said = f"STEP 1/2: FROM debian AS packages\n--> {made.removeprefix('sha256:')[:11]}\n--> Using cache {'b' * 64}\n"
    assert left_over(f"{made}\n{older}\n{cached}\n", said) == [older]


def test_stages_are_labelled_with_the_name_of_the_image_that_they_are_built_for() -> None:
    texts = {image: (ROOT / image.dockerfile).read_text() for image in ALL_IMAGES}
    labels = {
        image: re.findall(rf"^LABEL {re.escape(STAGES_LABEL)}=(.*)$", text, re.MULTILINE)
        for image, text in texts.items()
    }
    assert {image.name: found for image, found in labels.items() if found} == {
        "ddpjob-operator:dev": ["ddpjob-operator"],
        "ddpjob-prometheus:dev": ["ddpjob-prometheus"],
        "ddpjob-torch:cpu": ["ddpjob-examples"],
        "ddpjob-trainer:cpu": ["ddpjob-examples"],
        "ddpjob-examples:cpu": ["ddpjob-examples"],
    }


def test_clean_removes_our_names_and_what_has_no_name_and_nobody_elses() -> None:
    images = """\
1 docker.io/library/ddpjob-trainer cpu
1 docker.io/library/ddpjob-trainer cpu-0123
2 localhost/ddpjob-kind-node 77ad
3 docker.io/library/debian trixie-slim
4 docker.io/library/debian bookworm-slim
5 <none> <none>
6 localhost/somebodys-image latest
7 <none> <none>
"""
    # 4 was pulled by somebody, 6 was built by somebody on our base image, 7 has nothing to do with us.
    assert our_images(images, ["1", "2", "3", "5", "6"]) == [
        "docker.io/library/ddpjob-trainer:cpu",
        "docker.io/library/ddpjob-trainer:cpu-0123",
        "localhost/ddpjob-kind-node:77ad",
        "docker.io/library/debian:trixie-slim",
        "5",
    ]


def test_the_environments_pip_settings_win_over_those_of_files() -> None:
    settings = pip_settings(
        ":env:.timeout='180'\nglobal.timeout='15'\nglobal.index-url='https://index.invalid/simple'\n"
    )
    assert settings == {"timeout": "180", "index-url": "https://index.invalid/simple"}


def test_a_build_is_told_where_packages_are_and_not_where_to_put_them() -> None:
    settings = {
        "extra-index-url": "https://a.invalid https://b.invalid",
        "target": "/elsewhere",
        "cert": "/host/only.pem",
    }
    assert pip_configuration(settings, "/inside.pem") == (
        "[global]\nextra-index-url = https://a.invalid\n    https://b.invalid\ncert = /inside.pem\n"
    )
