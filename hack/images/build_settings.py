"""This machine's pip settings, lent to an image build by mounts: nothing of them stays in the image."""

import ast
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hack.cluster.engine import Engine, Source
from hack.console import output_of

_CONFIGURATION: Final = ".config/pip"
_SYSTEM_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
# Where packages come from and how patiently; settings about where they are installed would change the image.
_PASSED_ON: Final = frozenset(
    (
        "default-timeout",
        "extra-index-url",
        "index-url",
        "no-index",
        "proxy",
        "retries",
        "timeout",
        "trusted-host",
    )
)


def pip_settings(listing: str) -> dict[str, str]:
    """Options of `pip config list`; the environment's win over those of files.

    Args:
        listing: lines such as `global.timeout='60'` and `:env:.cert='/path'`.
    """
    settings: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in listing.splitlines():
        name, equals, value = line.partition("=")
        section, dot, option = name.rpartition(".")
        if equals and dot:
            (from_environment if section == ":env:" else settings)[option] = str(ast.literal_eval(value))
    return settings | from_environment


def pip_configuration(settings: Mapping[str, str], authorities: str | None) -> str:
    """A pip.conf for the build.

    Args:
        settings: pip's settings on this machine.
        authorities: file inside the build with the certificate authorities to trust, if any.
    """
    lines = ["[global]"]
    for option in sorted(_PASSED_ON & settings.keys()):
        values = settings[option].split()
        lines.append(f"{option} = " + "\n    ".join(values))
    if authorities is not None:
        lines.append(f"cert = {authorities}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def build_settings(engine: Engine) -> Iterator[list[str]]:
    """Arguments for the engine's `build`; docker gets none, it has no mounts in builds and a registry at hand.

    They go into root's home: a mount over a folder that every image has leaves no trace of it there.
    """
    if engine.program == "docker":
        yield []
        return
    settings = pip_settings(output_of([sys.executable, "-m", "pip", "config", "list"]) or "")
    authorities = _authorities(settings)
    # Addresses of package indexes may hold passwords: a temporary folder is readable by its owner alone.
    with tempfile.TemporaryDirectory(prefix="ddpjob-build-") as home:
        folder = Path(home) / _CONFIGURATION
        folder.mkdir(parents=True)
        inside = f"/root/{_CONFIGURATION}/authorities.pem"
        if authorities is not None:
            shutil.copy(authorities, folder / "authorities.pem")
        (folder / "pip.conf").write_text(pip_configuration(settings, inside if authorities else None))
        network = ["--network=host"] if engine.source is Source.BUILD else []
        yield [*network, f"--volume={home}:/root"]


def _authorities(settings: Mapping[str, str]) -> Path | None:
    """The certificate authorities that this machine trusts: those that pip is configured with, else the system's."""
    told = settings.get("cert") or os.environ.get("SSL_CERT_FILE")
    found = Path(told) if told else _SYSTEM_AUTHORITIES
    return found if found.is_file() else None
