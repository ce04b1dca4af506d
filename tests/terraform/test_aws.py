"""The module that provisions machines or a cluster on AWS: format, schema, and what it would provision."""

import re
from pathlib import Path

import pytest
import yaml

from hack.cache import ROOT
from hack.terraform.tofu import Tofu
from tests.terraform.conftest import MODULE

TESTS = sorted(MODULE.glob("tests/*.tftest.hcl"))
VARIABLES = (MODULE / "variables.tf").read_text()
BY_VARIABLE = {text.split('"')[1]: text for text in re.split(r"(?m)^(?=variable )", VARIABLES) if text.strip()}
CONDITION = re.compile(r"(?m)^( +condition +=) .*$")
RUN = re.compile(r'(?m)^run "(\w+)"')
MISTAKES = [
    pytest.param(test, run, mistake, id=f"{test}-{run}-{place}")
    for test, runs in yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text()).items()
    for run, mistakes in runs.items()
    for place, mistake in enumerate(mistakes)
]

# What no version of the provider that the module allows would accept.
MISUSES = [
    (("ec2.tf", "key_name_prefix", "key_name_prefixes"), "Unsupported argument"),
    (("ec2.tf", "  public_key      = var.ssh_public_key\n", ""), "Missing required argument"),
    (("ec2.tf", "  root_block_device {", "  root_disk {"), "Unsupported block type"),
    (
        ("eks.tf", "update_default_version = true", 'update_default_version = "perhaps"'),
        "Incorrect attribute value type",
    ),
    (("eks.tf", "node[0].latest_version", "node[0].newest_version"), "Unsupported attribute"),
    (("network.tf", '"aws_internet_gateway"', '"aws_gateway_to_the_internet"'), "Invalid resource type"),
]


def change(module: Path, file: str, old: str, new: str) -> None:
    text = (module / file).read_text()
    assert old in text, f"{file} does not have: {old}"
    (module / file).write_text(text.replace(old, new))


def keep_runs(file: Path, *names: str) -> None:
    """Leave out all other runs, except those that make the state that one of these looks at."""
    head, *runs = re.split(r"(?m)^(?=run )", file.read_text())
    stateless, _, stateful = "".join(runs).partition("# From here on")
    kept = [run for run in re.split(r"(?m)^(?=run )", stateless) if set(RUN.findall(run)) & set(names)]
    state = f"# From here on{stateful}" if set(RUN.findall(stateful)) & set(names) else ""
    file.write_text("\n".join([head, *kept, state]))


def test_it_has_the_usual_format(tofu: Tofu) -> None:
    code, said = tofu("fmt", "-check", "-diff", "-recursive", str(MODULE), cwd=MODULE)
    assert code == 0, said


def test_it_is_valid(tofu: Tofu, module: Path) -> None:
    code, said = tofu("validate", cwd=module)
    assert code == 0, said


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name.partition(".")[0])
def test_it_would_provision_what_its_tests_say(tofu: Tofu, module: Path, file: Path) -> None:
    code, said = tofu("test", f"-filter=tests/{file.name}", cwd=module)
    assert code == 0, said
    assert f"Success! {len(RUN.findall(file.read_text()))} passed, 0 failed." in said


@pytest.mark.parametrize(("test", "run", "mistake"), MISTAKES)
def test_a_mistake_is_noticed(tofu: Tofu, module: Path, test: str, run: str, mistake: dict[str, str]) -> None:
    keep_runs(module / f"tests/{test}.tftest.hcl", run)
    change(module, **mistake)
    code, said = tofu("test", f"-filter=tests/{test}.tftest.hcl", cwd=module)
    assert code != 0, said
    assert f'run "{run}"... fail' in said
    assert "Test assertion failed" in said, said


def test_every_run_but_the_refused_ones_notices_some_mistake() -> None:
    runs = {(file.name.partition(".")[0], run) for file in TESTS for run in RUN.findall(file.read_text())}
    assert {run for run in runs if run[0] != "refused"} == {mistake.values[:2] for mistake in MISTAKES}


@pytest.mark.parametrize(("change_of", "complaint"), MISUSES, ids=[complaint for _, complaint in MISUSES])
def test_what_the_provider_does_not_have_is_refused(
    tofu: Tofu, module: Path, change_of: tuple[str, str, str], complaint: str
) -> None:
    change(module, *change_of)
    code, said = tofu("validate", cwd=module)
    assert code != 0, said
    assert complaint in said


def test_a_version_of_the_provider_that_the_module_does_not_allow_is_refused(tofu: Tofu, module: Path) -> None:
    change(module, "versions.tf", ">= 6.0, < 7.0", ">= 7.0")
    code, said = tofu("init", "-backend=false", "-upgrade", cwd=module)
    assert code != 0, said


def test_nothing_is_refused_without_its_check(tofu: Tofu, module: Path) -> None:
    unchecked = [CONDITION.sub(rf"\1 var.{name} == var.{name}", text) for name, text in BY_VARIABLE.items()]
    (module / "variables.tf").write_text("".join(unchecked))
    (module / "machines.tf").write_text(CONDITION.sub(r"\1 self == self", (module / "machines.tf").read_text()))
    code, said = tofu("test", "-filter=tests/refused.tftest.hcl", cwd=module)
    assert code != 0
    assert "Failure! 0 passed" in said, said


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, text in BY_VARIABLE.items() for place in range(len(CONDITION.findall(text)))],
)
def test_every_check_of_a_variable_refuses_something(tofu: Tofu, module: Path, name: str, place: int) -> None:
    text = BY_VARIABLE[name]
    found = list(CONDITION.finditer(text))[place]
    unchecked = f"{text[: found.start()]}{found[1]} var.{name} == var.{name}{text[found.end() :]}"
    (module / "variables.tf").write_text(VARIABLES.replace(text, unchecked))
    refused = module / "tests/refused.tftest.hcl"
    runs = re.split(r"(?m)^(?=run )", refused.read_text())
    keep_runs(refused, *(RUN.findall(run)[0] for run in runs if f"[var.{name}]" in run))
    code, said = tofu("test", "-filter=tests/refused.tftest.hcl", cwd=module)
    assert code != 0, said


def test_every_refusal_names_the_variable_first() -> None:
    for name, text in BY_VARIABLE.items():
        for message in re.findall(r'error_message = "(.*)"', text):
            assert message.startswith(f"{name} "), message
    for message in re.findall(r'error_message = "(.*)"', (MODULE / "machines.tf").read_text()):
        assert message.split()[0] in BY_VARIABLE, message


def test_the_docs_name_every_variable_and_output() -> None:
    docs = (ROOT / "docs/terraform.md").read_text()
    outputs = re.findall(r'(?m)^output "(\w+)"', (MODULE / "outputs.tf").read_text())
    missing = [name for name in [*BY_VARIABLE, *outputs] if f"`{name}`" not in docs]
    assert not missing


def test_the_provider_of_the_tests_provisions_nothing(tofu: Tofu, module: Path) -> None:
    code, said = tofu("apply", "-auto-approve", "-input=false", '-var=allowed_cidrs=["203.0.113.7/32"]', cwd=module)
    assert code != 0
    assert "knows only the schema" in said, said
