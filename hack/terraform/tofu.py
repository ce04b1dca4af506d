"""OpenTofu as the tests run it: with one provider, from a folder, and without a network."""

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.terraform.schema import provider_schema

_ADDRESS: Final = "registry.opentofu.org/hashicorp/aws"


@dataclass(frozen=True)
class Tofu:
    """Runs OpenTofu.

    Attributes:
        program: of OpenTofu.
        configuration: its command line's, which names the only place where it finds providers.
        schema: what the provider answers with.
    """

    program: Path
    configuration: Path
    schema: Path

    def __call__(self, *arguments: str, cwd: Path) -> tuple[int, str]:
        """Exit code and output.

        Args:
            arguments: of OpenTofu.
            cwd: the folder of the module.
        """
        # Variables of the person who runs the tests could change arguments, or say where state and plugins are.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "TOFU_", "AWS_"))}
        own = {
            "TF_CLI_CONFIG_FILE": str(self.configuration),
            "DDPJOB_PROVIDER_SCHEMA": str(self.schema),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_CLI_ARGS": "-no-color",
        }
        command = [str(self.program), *arguments]
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**inherited, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def tofu_with_provider(programs: Path, types: Iterable[tuple[str, str]], work: Path) -> Tofu:
    """OpenTofu, and the provider for AWS where it looks for it.

    Args:
        programs: the folder of OpenTofu, the provider's program, and the bindings that it stands for.
        types: which resources and data sources the provider knows, as in provider_schema.
        work: a folder to write to.

    Raises:
        SchemaError: the bindings are not of the form that is read here.
    """
    (bindings,) = programs.glob("*.whl")
    schema = provider_schema(bindings, types)
    (work / "schema.json").write_text(json.dumps(schema.content))
    tofu = Tofu(programs / "tofu", work / "tofurc", work / "schema.json")
    mirror = work / "mirror"
    tofu.configuration.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
    _, version = tofu("version", "-json", cwd=work)
    folder = mirror / _ADDRESS / schema.version / json.loads(version)["platform"]
    folder.mkdir(parents=True)
    (folder / "terraform-provider-aws").symlink_to(programs / "provider")
    return tofu
