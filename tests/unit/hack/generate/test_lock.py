from hack.generate.lock import TARGET, closure, entries, generated, needed_by, operator_packages

LOCK = """\
# This file was made by a resolver.
aiohttp==3.14.5 \\
    --hash=sha256:01
    # via
    #   ddpjob (pyproject.toml)
    #   kopf
kopf==1.45.2 \\
    --hash=sha256:02
    # via ddpjob (pyproject.toml)
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:03
    # via ddpjob (pyproject.toml)
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:04
    # via ddpjob (pyproject.toml)
Typing_Extensions==4.16.0 \\
    --hash=sha256:05
    # via aiohttp
"""


def test_what_a_package_needs_is_found_through_others() -> None:
    assert closure(entries(LOCK), ["kopf"]) == {"kopf", "aiohttp", "typing-extensions"}


def test_a_package_that_is_locked_for_older_and_newer_pythons_keeps_both_entries() -> None:
    assert entries(LOCK)["numpy"].count("--hash") == 2


def test_who_needs_a_package_stands_in_its_comments_alone() -> None:
    assert needed_by(entries(LOCK)["aiohttp"]) == {"ddpjob", "kopf"}


def test_the_operator_needs_its_extra_and_what_everybody_needs() -> None:
    project = """\
[project]
dependencies = ["pydantic>=2,<3"]
[project.optional-dependencies]
operator = ["kopf>=1.45.2,<1.46"]
"""
    assert operator_packages(project) == ["pydantic", "kopf"]


def test_the_lock_of_the_operators_image_is_what_requirements_lock_says() -> None:
    assert TARGET.read_text() == generated(), "python -m hack.generate.lock writes it anew"
