from hack.clean import our_images


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
    # 4 was pulled by another user, 6 was built by another user on our base image, 7 has nothing to do with us.
    assert our_images(images, ["1", "2", "3", "5", "6"]) == [
        "docker.io/library/ddpjob-trainer:cpu",
        "docker.io/library/ddpjob-trainer:cpu-0123",
        "localhost/ddpjob-kind-node:77ad",
        "docker.io/library/debian:trixie-slim",
        "5",
    ]
