"""`make test`: every stage of the tests, cheap failures first, and one plain line at the end."""

import argparse
import dataclasses
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from hack.cache import BUILD, ROOT, only_one
from hack.checks.side_by_side import side_by_side
from hack.checks.torch_tests import TRAINER, Run, run_in_image, run_with_newest_torch
from hack.cluster.kind import IPV6_CLUSTER, has_ipv6
from hack.cluster.programs import (
    ASSETS,
    HELM_VERSIONS,
    helm_program,
    kwok_program,
    programs_folder,
    terraform_programs,
)
from hack.cluster.session import cluster_with_images
from hack.console import StepError, say
from hack.images.image import ALL_IMAGES, EXAMPLES, IMAGES, PROMETHEUS

_RESULTS: Final = BUILD / "results"
_NOTHING_COLLECTED: Final = 5


@dataclass(frozen=True)
class Tally:
    """How many tests passed, failed and were skipped; a check that is not a test counts as one failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """The sum of two stages."""
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def line(self) -> str:
        """The closing line."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


FAILURE: Final = Tally(failed=1)


@dataclass(frozen=True)
class Stage:
    """A stage by name and what runs it.

    Attributes:
        name: as the person at the terminal reads it.
        run: runs it.
        with_next: whether it runs while the next one does, its output held back until both have ended.
    """

    name: str
    run: Callable[[], Tally]
    with_next: bool = False


def read_results(text: str) -> Tally:
    """What pytest's JUnit file says."""
    suites = list(ET.fromstring(text).iter("testsuite"))  # noqa: S314 - written by our own pytest

    def total(*names: str) -> int:
        return sum(int(suite.get(name, "0")) for suite in suites for name in names)

    failed, skipped = total("failures", "errors"), total("skipped")
    # A test that fails in its body and in its teardown is two entries of one test.
    return Tally(max(0, total("tests") - failed - skipped), failed, skipped)


def has_tests(folder: Path) -> bool:
    """Whether there is any test file."""
    return any(folder.rglob("test_*.py"))


def verdict(code: int, results: Path) -> Tally:
    """The tally of a run of pytest.

    Args:
        code: its exit code.
        results: its JUnit file.
    """
    if code == _NOTHING_COLLECTED:
        say("  pytest collected no tests from a folder that has test files, which counts as a failure")
        return FAILURE
    tally = read_results(results.read_text()) if results.is_file() else Tally()
    if code != 0 and tally.failed == 0:
        say(f"  pytest ended with exit code {code} though no test failed")
        return tally + FAILURE
    return tally


def pytest_stage(name: str, variables: Callable[[], Mapping[str, str]] = dict, *options: str, of: str = "") -> Stage:
    """A stage that runs pytest on a folder of tests/.

    Args:
        name: of the stage.
        variables: what the tests need in the environment.
        options: of pytest.
        of: the folder, where it is not called as the stage.
    """

    def run() -> Tally:
        folder = ROOT / "tests" / (of or name)
        if not has_tests(folder):
            say("  no tests yet")
            return Tally()
        environment = {**os.environ, **variables()}
        results = _RESULTS / f"{name}.xml"
        results.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", *options, f"--junitxml={results}", str(folder)]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        return verdict(code, results)

    return Stage(name, run)


def module_stage(name: str, *command: str) -> Stage:
    """A stage that runs a module of hack/."""

    def run() -> Tally:
        code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
        return Tally() if code == 0 else FAILURE

    return Stage(name, run)


def torch_stage(name: str, run: Callable[[Path], Run], of: str = "torch", *, with_next: bool = False) -> Stage:
    """A stage that runs tests of a folder of tests/ in an image that has torch."""

    def tally() -> Tally:
        if not has_tests(ROOT / "tests" / of):
            say("  no tests yet")
            return Tally()
        done = run(BUILD / f"log/{name}.log")
        return verdict(done.code, done.results)

    return Stage(name, tally, with_next)


def _kind_ipv6() -> Tally:
    """What depends on the family of addresses, on a cluster of IPv6 alone, which is removed again."""
    if os.environ.get("USE_EXISTING_CLUSTER") == "1" or not has_ipv6():
        say("  skipped: it needs a cluster of its own, and a machine with IPv6")
        return Tally(skipped=1)
    results = _RESULTS / "kind-ipv6.xml"
    results.unlink(missing_ok=True)
    # In processes of their own: which cluster it is, its modules read once.
    environment = {**os.environ, "DDPJOB_CLUSTER_NAME": IPV6_CLUSTER, "DDPJOB_IP_FAMILY": "ipv6"}

    def run(*command: str) -> int:
        return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False).returncode

    try:
        code = run("hack.cluster.session", "pytest", "-q", f"--junitxml={results}", "tests/kind/test_ip_families.py")
        return verdict(code, results)
    finally:
        run("hack.cluster.kind", "--delete")


def _programs() -> Mapping[str, str]:
    own = os.environ.get("KUBEBUILDER_ASSETS")
    if own:
        return {"KUBEBUILDER_ASSETS": own}
    with only_one("programs", say):
        return {"KUBEBUILDER_ASSETS": str(programs_folder(BUILD / "log/programs.log", ASSETS))}


def _helm(versions: Sequence[str]) -> Mapping[str, str]:
    with only_one("programs", say):
        found = [str(helm_program(version, BUILD / "log/helm.log")) for version in versions]
    return {"DDPJOB_HELM": os.pathsep.join(found)}


def _programs_and_kwok() -> Mapping[str, str]:
    programs = _programs()
    with only_one("programs", say):
        return {**programs, "DDPJOB_KWOK": str(kwok_program(BUILD / "log/kwok.log"))}


def _terraform() -> Mapping[str, str]:
    with only_one("programs", say):
        return {"DDPJOB_TERRAFORM": str(terraform_programs(BUILD / "log/terraform.log"))}


def stages(*, full: bool) -> list[Stage]:
    """All stages in their order."""
    # Set up once, for two stages.
    cluster = functools.cache(lambda: cluster_with_images(ALL_IMAGES if full else (*IMAGES, PROMETHEUS)))
    # Each takes minutes to build.
    helms = HELM_VERSIONS if full else HELM_VERSIONS[-1:]
    always = [
        module_stage("lint", "hack.lint"),
        module_stage("verify", "hack.generate", "--check"),
        # It waits for containers most of the time.
        dataclasses.replace(pytest_stage("promtool", dict, *([] if full else ["-m", "not full"])), with_next=True),
        pytest_stage("unit", dict, *side_by_side(more=1)),
        pytest_stage("terraform", _terraform, *side_by_side(), *([] if full else ["-m", "not full"])),
        torch_stage("torch", functools.partial(run_in_image, TRAINER, "torch", full=full)),
        # Half of their time they wait.
        pytest_stage("apiserver", lambda: {**_programs(), **_helm(helms)}, *side_by_side(more=3, most=6)),
        pytest_stage("kind", cluster, *side_by_side(more=1), "-m", "not alone" if full else "not alone and not full"),
        # In the time in which a test at a time waits for pods.
        torch_stage(
            "examples",
            functools.partial(run_in_image, EXAMPLES, "examples", full=full, spare=True),
            of="examples",
            with_next=True,
        ),
        pytest_stage(
            "kind-alone",
            (lambda: {**cluster(), **_helm(helms)}) if full else cluster,
            *("-m", "alone" if full else "alone and not full"),
            of="kind",
        ),
    ]
    longer = [
        torch_stage("torch-newest", run_with_newest_torch),
        pytest_stage("scale", _programs_and_kwok),
        Stage("kind-ipv6", _kind_ipv6),
    ]
    return [*always, *longer] if full else always


def one_line(text: str) -> Tally | None:
    """The tally in a closing line, None where the text is another one."""
    found = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", text.strip())
    return Tally(*(int(number or 0) for number in found.groups())) if found else None


class BackgroundStage:
    """A stage in a process of its own, whose output is shown when it has ended."""

    def __init__(self, stage: Stage, command: Sequence[str]) -> None:
        """Start it.

        Args:
            stage: what is run.
            command: runs that stage alone, and prints its closing line last.
        """
        self._name = stage.name
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 closed with the process
        self._begun = time.monotonic()
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._output, stderr=self._output)

    def tally(self) -> Tally:
        """Wait for it to end, show its output, and return its tally."""
        code = self._process.wait()
        took = time.monotonic() - self._begun
        self._output.seek(0)
        *lines, last = self._output.read().decode(errors="replace").strip().splitlines() or [""]
        found = one_line(last)
        shown = lines if found else [*lines, last]
        shown = [line for line in shown if line.strip() and not line.startswith(f"== {self._name}")]
        tally = found or Tally()
        if code != 0 and tally.failed == 0:
            tally += FAILURE
        say("\n".join([f"\n== {self._name} (ran concurrently)", *shown]))
        say(f"== {self._name}: {tally.line()} in {took:.0f} s")
        return tally

    def stop(self) -> None:
        """End it, if it has not ended."""
        self._process.terminate()
        self._process.wait()
        self._output.close()


def by_itself(stage: Stage) -> list[str]:
    """The command that runs one stage."""
    full = ["--full"] if os.environ.get("DDPJOB_FULL") == "1" else []
    return [sys.executable, "-m", "hack.checks.stages", *full, "--only", stage.name]


def run_stages(todo: list[Stage], *, keep_going: bool, command: Callable[[Stage], Sequence[str]] = by_itself) -> Tally:
    """Run stages; one that failed ends the run, unless `keep_going` is set.

    Args:
        todo: in their order.
        keep_going: whether the others run after one that failed.
        command: runs the one stage that it is given.
    """
    total = Tally()
    held_back: list[BackgroundStage] = []
    try:
        for place, stage in enumerate(todo):
            rest = [later.name for later in todo[place + 1 :]]
            if stage.with_next and rest:
                held_back.append(BackgroundStage(stage, command(stage)))
                continue
            tally = sum((held.tally() for held in held_back), _run(stage))
            held_back.clear()
            total += tally
            if tally.failed and rest and not keep_going:
                say(f"\nnot run, since a stage failed: {', '.join(rest)} (KEEP_GOING=1 runs them anyway)")
                break
    finally:
        for held in held_back:
            held.stop()
    return total


def _run(stage: Stage) -> Tally:
    say(f"\n== {stage.name}")
    begun = time.monotonic()
    try:
        tally = stage.run()
    except StepError as error:
        say(f"  {error}")
        tally = FAILURE
    say(f"== {stage.name}: {tally.line()} in {time.monotonic() - begun:.0f} s")
    return tally


def main() -> None:
    """Run the stages; exit with an error where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also run the slow stages")
    parser.add_argument("--only", metavar="STAGE", help="run only this stage")
    _RESULTS.mkdir(parents=True, exist_ok=True)
    arguments = parser.parse_args()
    # For tests that run in full only.
    os.environ["DDPJOB_FULL"] = "1" if arguments.full else "0"
    os.environ.setdefault("DDPJOB_TESTS_SINCE", datetime.now(UTC).isoformat())
    todo = stages(full=arguments.full)
    if arguments.only:
        if arguments.only not in (names := [stage.name for stage in todo]):
            parser.error(f"--only must be one of {', '.join(names)}")
        todo = [stage for stage in todo if stage.name == arguments.only]
    total = run_stages(todo, keep_going=os.environ.get("KEEP_GOING") == "1")
    say(f"\n{total.line()}")
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
