"""promtool from the image that the tests of the cluster run Prometheus from: it need not be on this machine."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.cache import ROOT, only_one
from hack.cluster.engine import Engine, choose_engine
from hack.console import say
from hack.images.build import build_images
from hack.images.image import PROMETHEUS


@dataclass(frozen=True)
class Promtool:
    """Runs promtool in a container that sees this repository, at /repo, and one more folder."""

    engine: Engine
    image: str

    def __call__(self, *arguments: str, work: Path) -> tuple[int, str]:
        """Exit code and output.

        Args:
            arguments: of promtool; paths below /repo or /work.
            work: folder that the container sees as /work.
        """
        command = [self.engine.program, "run", "--rm", "--network=none"]
        command += ["-v", f"{ROOT}:/repo:ro", "-v", f"{work}:/work:ro", "-w", "/repo"]
        command += ["--entrypoint", "/usr/bin/promtool", self.image, *arguments]
        done = subprocess.run(
            command, env={**os.environ, **self.engine.environment}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


def promtool_in_image(log: Path) -> Promtool:
    """Promtool, its image built where it is not there.

    Raises:
        StepError: the image cannot be had.
    """
    with only_one("prometheus image", say):
        engine = choose_engine(log)
        return Promtool(engine, build_images(engine, log, [PROMETHEUS])[PROMETHEUS])
