"""The command line against a real API server: what it makes, what it leaves behind, and how it ends."""

import asyncio
import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ddpjob import DDPJob, JobFailed
from ddpjob.cli.app import app
from ddpjob_core.api.errors import AlreadyExists, NotFound, TooLong, UsageProblem
from ddpjob_core.api.resources import CONFIG_MAPS, JOBS
from ddpjob_core.api.status import Phase
from tests.apiserver.controlplane import ApiError, Client, ControlPlane
from tests.apiserver.stage import Stage, all_run, phase_is, set_stage, until
from tests.apiserver.terminal import OnTerminal

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "manifests/examples/digits.yaml"
SCRIPTED = ROOT / "manifests/examples/script.yaml"
REPORT = {
    "exitCode": 1,
    "failures": [
        {
            "rank": 1,
            "localRank": 0,
            "exitCode": 7,
            "time": 1.0,
            "message": "ValueError: bad batch",
            "traceback": "Traceback ...\nValueError: bad batch",
        }
    ],
}


class Program:
    """`ddpjob` in a namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._options = ["--kubeconfig", str(kubeconfig), "-n", namespace]

    def __call__(self, command: str, *arguments: str) -> Result:
        """Run a command; whatever it does, it shows no traceback and raises nothing of its own."""
        done = CliRunner().invoke(app, [command, *self._options, *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Traceback (most" not in done.stderr
        return done

    def json(self, command: str, *arguments: str) -> Any:
        """Its answer with -o json."""
        done = self(command, "-o", "json", *arguments)
        return json.loads(done.stdout)


@pytest.fixture
def program(control_plane: ControlPlane, namespace: str) -> Program:
    return Program(control_plane.admin_kubeconfig, namespace)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


def config_maps(admin: Client, namespace: str) -> dict[str, Any]:
    found = admin.items(f"/api/v1/namespaces/{namespace}/configmaps")
    return {each["metadata"]["name"]: each for each in found if not each["metadata"]["name"].startswith("kube-root")}


def jobs(admin: Client, namespace: str) -> list[str]:
    return [
        each["metadata"]["name"] for each in admin.items(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs")
    ]


async def test_a_script_is_run_to_its_end_and_what_it_brought_goes_with_it(
    control_plane: ControlPlane, tmp_path: Path, script: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        arguments = ("--name", "works", "--nodes", "2", "--image", "i", str(script), "5", "--lr", "0.1")
        following = asyncio.ensure_future(asyncio.to_thread(ddpjob, "run", *arguments))
        await until("the pods run", lambda: all_run(stage, "works", 2))
        program = await stage.admin.kube.get(CONFIG_MAPS, stage.namespace, "works-program")
        assert program["data"] == {"train.py": "print('hello')\n"}
        assert program["metadata"]["ownerReferences"][0]["name"] == "works"
        assert (await stage.job("works"))["spec"]["trainer"]["args"] == ["5", "--lr", "0.1"]
        stage.kubelet.exits.update({"works-a0-0": 0, "works-a0-1": 0})
        done = await following
        assert done.exit_code == 0, done.output
        assert "works has succeeded" in done.stderr
        assert (await asyncio.to_thread(ddpjob, "delete", "works", "--yes")).exit_code == 0
        await until("nothing is left of it", lambda: nothing_left(stage, "works"))


async def test_a_failed_job_exits_with_1_and_names_the_rank(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        stage.kubelet.exits.update({"fails-a0-0": 0, "fails-a0-1": 1})
        stage.kubelet.termination_messages["fails-a0-1"] = json.dumps(REPORT)
        manifest = tmp_path / "fails.yaml"
        manifest.write_text(JOB.format(name="fails", more="restart: {maxRestarts: 0}"))
        done = await asyncio.to_thread(ddpjob, "run", "-f", str(manifest))
        assert done.exit_code == 1, done.output
        assert "rank 1 exited with code 7: ValueError: bad batch" in done.stderr
        await until("its event is there", lambda: has_event(stage, "fails", "RestartsNotAllowed"))
        story = await asyncio.to_thread(ddpjob.json, "why", "fails")
        assert (story["rootCause"]["rank"], story["rootCause"]["exitCode"]) == (1, 7)
        assert [event["reason"] for event in story["events"]][-1] == "RestartsNotAllowed"
        shown = (await asyncio.to_thread(ddpjob, "why", "fails")).stdout
        assert "ValueError: bad batch" in shown
        assert "What to do" in shown
        checks = await asyncio.to_thread(ddpjob.json, "doctor", "fails")
        assert {check["name"]: check["outcome"] for check in checks}["End"] == "FAIL"
        job = await asyncio.to_thread(
            partial(DDPJob, "fails", namespace=stage.namespace, kubeconfig=str(control_plane.admin_kubeconfig))
        )
        with pytest.raises(JobFailed, match=r"rank 1 exited with code 7(.|\n)*ValueError: bad batch"):
            await asyncio.to_thread(job.result)


async def test_a_job_is_resized_only_while_it_is_suspended(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        await stage.create("digits", nodes=2)
        await until("the pods run", lambda: all_run(stage, "digits", 2))
        refused = await asyncio.to_thread(ddpjob, "scale", "digits", "--nodes", "3")
        assert refused.exit_code == 2
        assert "can change only while it is suspended" in refused.stderr
        assert "ddpjob suspend digits" in refused.stderr
        assert (await asyncio.to_thread(ddpjob, "suspend", "digits", "--wait")).exit_code == 0
        assert await phase_is(stage, "digits", "Suspended")
        assert (await asyncio.to_thread(ddpjob, "scale", "digits", "--nodes", "3")).exit_code == 0
        assert (await asyncio.to_thread(ddpjob, "resume", "digits")).exit_code == 0
        await until("more pods run", lambda: all_run(stage, "digits", 3))
        status = await asyncio.to_thread(ddpjob.json, "status", "digits")
        assert (status["nodesAskedFor"], status["attempt"]) == (3, 1)


async def has_event(stage: Stage, name: str, reason: str) -> bool:
    return reason in await stage.events(name)


async def nothing_left(stage: Stage, name: str) -> bool:
    return not await stage.children(name)


JOB = """\
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata:
  name: {name}
spec:
  nodes: 2
  procsPerNode: 1
  trainer:
    image: i
    script: train.py
  {more}
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: b}\n---\n"
# Only the API server's rules refuse it: the rendezvous' port among those of the metrics.
REFUSED = "rendezvous: {port: 9401}"


def test_what_only_the_api_server_refuses_is_reported_with_its_line_and_leaves_nothing_behind(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(CONFIG_MAP + JOB.format(name="refused", more=REFUSED))
    done = program("run", "-f", str(manifest))
    assert done.exit_code == 2
    assert f"{manifest}:16: spec.rendezvous.port: " in done.stderr
    assert "choose another" in done.stderr
    assert config_maps(admin, namespace) == {}
    assert jobs(admin, namespace) == []


def test_what_was_made_before_something_was_refused_is_removed_again(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(CONFIG_MAP + CONFIG_MAP.replace("other", "No_Name") + JOB.format(name="fine", more=""))
    done = program("run", "-f", str(manifest))
    assert done.exit_code == 2
    assert f"{manifest}:8: metadata.name: " in done.stderr
    assert config_maps(admin, namespace) == {}
    assert jobs(admin, namespace) == []


def test_a_script_whose_config_map_cannot_be_made_leaves_no_job(
    program: Program, admin: Client, namespace: str, script: Path
) -> None:
    taken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "line-program", "namespace": namespace}}
    admin.create(taken)
    done = program("run", "--no-follow", "--name", "line", "--image", "i", str(script))
    assert done.exit_code == 2
    assert "line-program" in done.stderr
    assert jobs(admin, namespace) == []


def test_a_name_that_is_taken_is_reported_with_the_job_that_has_it(program: Program) -> None:
    assert program("run", "--no-follow", "-f", str(DIGITS)).exit_code == 0
    done = program("run", "--no-follow", "-f", str(DIGITS))
    assert done.exit_code == 2
    assert "DDPJob digits already exists and is Pending" in done.stderr
    assert "ddpjob delete digits" in done.stderr


def test_the_other_objects_in_the_file_of_a_job_are_created_with_it_and_updated_the_next_time(
    program: Program, admin: Client, namespace: str, tmp_path: Path
) -> None:
    assert program("run", "--no-follow", "-f", str(SCRIPTED)).exit_code == 0
    assert "train.py" in config_maps(admin, namespace)["line"]["data"]
    changed = tmp_path / "changed.yaml"
    text = SCRIPTED.read_text().replace("range(200)", "range(300)")
    changed.write_text(text.replace("  name: line\nspec", "  name: two\nspec"))
    assert program("run", "--no-follow", "-f", str(changed)).exit_code == 0
    assert "range(300)" in config_maps(admin, namespace)["line"]["data"]["train.py"]
    assert jobs(admin, namespace) == ["line", "two"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_dry_run_prints_is_what_kubectl_would_apply(
    program: Program, admin: Client, namespace: str, script: Path, form: str
) -> None:
    done = program("run", "--dry-run", "-o", form, "--name", "dry", "--image", "i", "-e", "A=1", str(script), "--flag")
    assert done.exit_code == 0
    manifests = list(yaml.safe_load_all(done.stdout))
    if form == "json":
        manifests = manifests[0]["items"]
    assert [manifest["kind"] for manifest in manifests] == ["ConfigMap", "DDPJob"]
    for manifest in manifests:
        manifest["metadata"].setdefault("namespace", namespace)
        admin.create(manifest, dryRun="All")
    assert jobs(admin, namespace) == []


@pytest.mark.parametrize("example", ["digits", "checkpoint", "script", "message-passing-mpirun"])
def test_the_api_server_accepts_what_is_rendered(program: Program, example: str) -> None:
    done = program("render", "--dry-run", "server", "-f", str(ROOT / f"manifests/examples/{example}.yaml"))
    assert done.exit_code == 0, done.stderr
    assert "refused" not in done.stderr
    assert {"Service", "ConfigMap", "Pod"} <= {manifest["kind"] for manifest in yaml.safe_load_all(done.stdout)}


def test_a_field_of_a_pod_that_the_api_server_does_not_know_is_found_by_rendering(
    program: Program, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(JOB.format(name="wrong", more="template: {spec: {nodeSelektor: {a: b}}}"))
    assert program("render", "-f", str(manifest)).exit_code == 0
    done = program("render", "--dry-run", "server", "-f", str(manifest))
    assert done.exit_code == 2
    assert "Pod wrong-a0-0: refused" in done.stderr
    assert "nodeSelektor" in done.stderr


def test_jobs_are_listed_as_a_table_as_json_and_over_all_namespaces(
    program: Program, control_plane: ControlPlane
) -> None:
    other = control_plane.new_namespace()
    for command in ("status", "top"):
        assert program.json(command) == []
    program("run", "--no-follow", "-f", str(DIGITS))
    Program(control_plane.admin_kubeconfig, other)("run", "--no-follow", "-f", str(DIGITS))
    assert [job["name"] for job in program.json("status")] == ["digits"]
    assert {other} < {job["namespace"] for job in program.json("top", "-A")}
    table = program("top", "--once").stdout.split("\n")
    assert table[0].split()[:3] == ["NAME", "STATE", "NODES"]
    assert table[1].split()[:2] == ["digits", "Pending"]
    assert "NAMESPACE" in program("status", "-A").stdout


@pytest.mark.parametrize("command", ["status", "why", "logs", "suspend", "resume", "delete", "doctor"])
def test_a_job_that_does_not_exist_is_exit_code_4(program: Program, command: str) -> None:
    done = program(command, "nobody")
    assert done.exit_code == 4
    assert "there is no DDPJob nobody in namespace" in done.stderr


def test_a_log_without_pods_is_reported(program: Program) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    done = program("logs", "digits")
    assert done.exit_code == 4
    assert "digits has no pods" in done.stderr


def test_deleting_without_a_terminal_needs_yes(program: Program, admin: Client, namespace: str) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    done = program("delete", "digits")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert jobs(admin, namespace) == ["digits"]


def test_a_user_without_permission_learns_what_is_missing_with_exit_code_3(
    control_plane: ControlPlane, namespace: str
) -> None:
    # The operator's own account: it may list jobs, but create none and read no pod's log.
    operator = Program(control_plane.operator_kubeconfig, namespace)
    done = operator("run", "--no-follow", "-f", str(DIGITS))
    assert done.exit_code == 3
    assert "cannot create resource" in done.stderr
    assert "ddpjob doctor" in done.stderr
    checks = {check["name"]: check for check in operator.json("doctor")}
    assert checks["Permissions"]["outcome"] == "FAIL"
    assert "create ddpjobs" in checks["Permissions"]["message"]
    assert checks["Nodes"]["outcome"] == "SKIP"


def test_the_doctor_finds_an_installation_without_an_operator(program: Program) -> None:
    done = program("doctor")
    assert done.exit_code == 1
    checks = {check["name"]: check for check in program.json("doctor")}
    assert checks["API server"]["outcome"] == checks["DDPJob API"]["outcome"] == "OK"
    assert checks["Operator"]["outcome"] == "FAIL"
    assert "kubectl apply -k manifests/base" in checks["Operator"]["remedy"]
    assert checks["Permissions"]["outcome"] == "OK"


def test_a_cluster_that_does_not_answer_is_exit_code_3(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    broken = tmp_path / "kubeconfig"
    broken.write_text(yaml.safe_dump(config))
    nowhere = Program(broken, namespace)
    for arguments in (("status",), ("run", "-f", str(DIGITS)), ("doctor",)):
        done = nowhere(*arguments)
        assert done.exit_code == 3, done.output
        assert "https://127.0.0.1:1 cannot be reached" in done.output


@pytest.mark.parametrize(
    ("content", "arguments", "code", "text"),
    [
        (None, (), 3, "does not exist"),
        ("a: [", (), 2, "cannot be used"),
        ("{}", (), 2, "cannot be used"),
        ("contexts: [{name: a, context: {cluster: c}}]", ("--context", "b"), 2, "choose one of: a"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], code: int, text: str
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    done = Program(path, "default")("status", *arguments)
    assert done.exit_code == code, done.output
    assert str(path) in done.stderr
    assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "nothing to run"),
        (("nothere.py",), "nothere.py cannot be read"),
        (("-f", "nothere.yaml"), "nothere.yaml cannot be read"),
        (("-f", str(DIGITS), "--image", "i"), "-f takes everything from the file"),
        (("--module", "a.b"), "--image is missing"),
        (("--nodes", "0", "x.py"), "greater than or equal to 1"),
        (("--nosuch",), "No such option"),
    ],
)
def test_an_option_that_cannot_be_is_exit_code_2(program: Program, arguments: tuple[str, ...], text: str) -> None:
    done = program("run", *arguments)
    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


def test_from_python_a_job_is_made_changed_and_removed(
    control_plane: ControlPlane, namespace: str, admin: Client, script: Path
) -> None:
    place = {"namespace": namespace, "kubeconfig": str(control_plane.admin_kubeconfig)}
    job = DDPJob.submit(script, "5", image="i", nodes=2, name="line", env={"A": "1"}, **place)
    assert repr(job) == f"DDPJob('line', namespace='{namespace}', phase='Pending')"
    assert list(config_maps(admin, namespace)) == ["line-program"]
    with pytest.raises(AlreadyExists, match="DDPJob line already exists"):
        DDPJob.submit(script, image="i", name="line", **place)
    with pytest.raises(UsageProblem, match="only while it is suspended"):
        job.scale(3)
    job.suspend()
    job.scale(3)
    job.resume()
    found = DDPJob("line", **place)
    assert found.status.phase is Phase.PENDING
    assert admin.get(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs/line")["spec"]["nodes"] == 3
    # Nobody works on it: what ends is the patience.
    seen = found.watch(timeout=0.0)
    assert next(seen).phase is Phase.PENDING
    with pytest.raises(TooLong, match="line is still Pending"):
        next(seen)
    job.delete()
    job.delete()
    with pytest.raises(NotFound, match="there is no DDPJob line"):
        DDPJob("line", **place)


def test_from_python_a_block_removes_its_job(control_plane: ControlPlane, namespace: str, admin: Client) -> None:
    place = {"namespace": namespace, "kubeconfig": str(control_plane.admin_kubeconfig)}
    with DDPJob.from_file(DIGITS, **place) as job:
        assert jobs(admin, namespace) == [job.name]
    assert jobs(admin, namespace) == []
    with pytest.raises(ApiError, match="not found"):
        admin.get(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs/digits")


def test_ctrl_c_stops_watching_and_not_the_job(control_plane: ControlPlane, namespace: str, admin: Client) -> None:
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    terminal = OnTerminal("run", *place, "-f", str(DIGITS))
    terminal.wait_for("the operator has not seen it yet")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert f"ddpjob suspend digits -n {namespace} stops it" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert jobs(admin, namespace) == ["digits"]


def test_colours_appear_on_a_terminal_alone_and_not_with_no_color(
    control_plane: ControlPlane, namespace: str, program: Program
) -> None:
    red = "\x1b[31m"
    arguments = ("doctor", "--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = OnTerminal(*arguments, environment=environment)
        assert terminal.end() == 1
        assert (red in terminal.shown) is coloured
        assert "it has no deployment" in terminal.shown
    assert "\x1b" not in program("doctor").output


def test_deleting_asks_on_a_terminal_and_no_means_no(
    control_plane: ControlPlane, namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    for answer, code, left in (("n", 1, ["digits"]), ("y", 0, [])):
        terminal = OnTerminal("delete", *place, "digits")
        terminal.wait_for("Delete?")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
        assert jobs(admin, namespace) == left


def test_the_namespace_comes_from_the_context_unless_one_is_named(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    config = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    own = {"name": "own", "context": {**config["contexts"][0]["context"], "namespace": namespace}}
    config["contexts"].append(own)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    def listed(*options: str) -> list[str]:
        done = CliRunner().invoke(app, ["status", "-o", "json", *options], env={"KUBECONFIG": str(path)})
        return [job["namespace"] for job in json.loads(done.stdout)]

    assert listed("--context", "own") == [namespace]
    assert listed("--context", "own", "-n", "default") == []
    assert listed() == []


def test_the_shell_completes_names_of_jobs(control_plane: ControlPlane, namespace: str, program: Program) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    words = f"ddpjob why -n {namespace} di"
    variables = {
        "_DDPJOB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "KUBECONFIG": str(control_plane.admin_kubeconfig),
    }
    done = CliRunner().invoke(app, [], env=variables, prog_name="ddpjob")
    assert done.stdout.split() == ["digits"]


def test_a_log_that_no_node_gives_is_an_error_and_not_an_empty_one(
    namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    uid = admin.get(JOBS.path(namespace, "digits"))["metadata"]["uid"]
    labels = {"ddpjob.dev/uid": uid, "ddpjob.dev/attempt": "0", "ddpjob.dev/ordinal": "0"}
    admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "digits-a0-0", "namespace": namespace, "labels": labels},
            # No such node answers.
            "spec": {"nodeName": "nowhere", "containers": [{"name": "trainer", "image": "i"}]},
        }
    )
    done = program("logs", "digits")
    assert done.exit_code != 0
    assert "the log of digits-a0-0 cannot be read" in done.stderr


def test_top_shows_jobs_as_they_come(control_plane: ControlPlane, namespace: str, program: Program) -> None:
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    terminal = OnTerminal("top", *place, "--interval", "0.5")
    terminal.wait_for("LOSS HISTORY")
    assert "digits" not in terminal.shown
    program("run", "--no-follow", "-f", str(DIGITS))
    terminal.wait_for("digits")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown


def test_a_user_who_may_only_read_jobs_still_gets_their_status_and_most_of_the_story(
    control_plane: ControlPlane, namespace: str, admin: Client, program: Program, tmp_path: Path
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    reader = Program(reader_of_jobs(control_plane, namespace, tmp_path / "kubeconfig"), namespace)
    assert reader("status", "digits").exit_code == 0
    story = reader("why", "digits")
    assert story.exit_code == 0
    assert "digits is Pending" in story.stdout
    assert "continuing without events" in story.stderr
    assert "continuing without pods" in story.stderr
    for refused in (reader("logs", "digits"), reader("suspend", "digits"), reader("delete", "digits", "--yes")):
        assert refused.exit_code == 3
        assert "forbidden" in refused.stderr
    assert jobs(admin, namespace) == ["digits"]


def reader_of_jobs(control_plane: ControlPlane, namespace: str, path: Path) -> Path:
    """The kubeconfig of an account that may read DDPJobs and nothing else."""
    admin, group = control_plane.admin, "rbac.authorization.k8s.io"
    metadata = {"name": "reader", "namespace": namespace}
    rules = [{"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs"], "verbs": ["get", "list", "watch"]}]
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    admin.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    admin.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = admin.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/reader/token", asked)
    config = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    path.write_text(yaml.safe_dump(config))
    return path
