"""`make release`: all files of a release, built from the last commit."""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Final

from hack.cache import BUILD, ROOT, only_one
from hack.cluster.programs import programs_folder
from hack.console import StepError, main_guard, say
from hack.project import project_version
from hack.release import changelog
from hack.release.build import CHECKSUMS, build_release
from hack.release.image_sboms import image_sboms
from hack.release.settings import Release
from hack.release.sources import commit_time, tracked_files, uncommitted

_KUBECTL: Final = "kubectl"
# What krew's manifest says unless RELEASE_URL is set: a name that never exists.
_NOWHERE: Final = "https://releases.example/ddpjob"


def _kubectl() -> Path:
    """The kubectl whose kustomize renders the manifests: the one that the tests use."""
    own = os.environ.get("KUBEBUILDER_ASSETS")
    if own:
        return Path(own) / _KUBECTL
    with only_one("programs", say):
        return programs_folder(BUILD / "log/programs.log", (_KUBECTL,)) / _KUBECTL


def _check(version: str) -> None:
    """Refuse what nobody could build again.

    Raises:
        StepError: there are changes that are not committed, or the changelog does not know this version.
    """
    changed = uncommitted(ROOT)
    if changed:
        raise StepError(f"a release is built from a commit; commit or remove: {', '.join(changed)}")
    dated = changelog.check((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not dated[:1].isdigit():
        say(f"release: CHANGELOG.md gives no date for {version}: a rehearsal")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    parser.add_argument("--output", type=Path, default=BUILD / "release", help="folder for the files; emptied first")
    images = parser.add_mutually_exclusive_group()
    images.add_argument(
        "--image-archives",
        action="store_true",
        help="add the images as files; they are built so that two builds of the same packages are the same bytes",
    )
    images.add_argument(
        "--without-images", action="store_true", help="leave out the images' SBOMs, for which the images are built"
    )
    arguments = parser.parse_args()
    output: Path = arguments.output.absolute()
    try:
        version = project_version()
        _check(version)
        release = Release(
            version,
            commit_time(ROOT),
            registry=os.environ.get("IMAGE_REGISTRY", ""),
            url=(os.environ.get("RELEASE_URL") or f"{_NOWHERE}/v{version}").rstrip("/"),
        )
        if arguments.without_images:
            say("release: without the images' SBOMs (--without-images)")
        output.parent.mkdir(parents=True, exist_ok=True)
        # Next to the output: images are moved and not copied.
        with tempfile.TemporaryDirectory(prefix=".images-", dir=output.parent) as folder:
            archives = Path(folder) if arguments.image_archives else None
            log = BUILD / "log/images.log"
            sboms = {} if arguments.without_images else image_sboms(release, log, archives=archives)
            names = build_release(tracked_files(ROOT), release, _kubectl(), output, sboms, archives=archives)
    except StepError as error:
        main_guard(error)
    say(f"\nddpjob {version} in {output}:\n" + "".join(f"  {name}\n" for name in names))
    say((output / CHECKSUMS).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
