import re

from hack.cache import ROOT
from hack.images.build import STAGES_LABEL, left_over
from hack.images.image import ALL_IMAGES, Image, older_names
from hack.images.load import nodes_that_lack

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
