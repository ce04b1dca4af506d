"""Run a module or a program against the cluster: python -m hack.session hack.demo, or -- kubectl get nodes."""

import os
import sys
from collections.abc import Mapping

from hack.cache import only_one
from hack.cluster import LOG, ensure_cluster, existing_cluster
from hack.console import StepError, main_guard, say
from hack.engine import choose_engine
from hack.images import provide_images
from hack.programs import programs_folder


def cluster_with_images() -> Mapping[str, str]:
    """A cluster that is well, with this tree's images: the variables by which programs find them.

    Raises:
        StepError: a step of the set-up failed.
    """
    with only_one("set-up", say):
        engine = choose_engine(LOG)
        if os.environ.get("USE_EXISTING_CLUSTER") == "1":
            return {**existing_cluster(), **provide_images(engine, programs_folder(LOG))}
        cluster = ensure_cluster(engine, LOG)
        return {**cluster.environment, **provide_images(engine, cluster.programs)}


def main() -> None:
    """Become the program, with the cluster's variables."""
    arguments = sys.argv[1:]
    command = arguments[1:] if arguments[0] == "--" else [sys.executable, "-m", *arguments]
    try:
        os.environ.update(cluster_with_images())
    except StepError as error:
        main_guard(error)
    os.execvp(command[0], command)  # noqa: S606 - the program that the person at the keyboard named


if __name__ == "__main__":
    main()
