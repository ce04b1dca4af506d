"""Objects, statuses, termination messages and answers that are wrong at random places, each from one number."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import yaml
from hostile import ANYTHING, FAILED, NUMBERS, REPORTED, TEXTS, TIMES

from ddpjob_core.api.constants import API_VERSION, KIND, LABEL_ATTEMPT, LABEL_JOB, LABEL_ORDINAL
from tests.apiserver.controlplane import ROOT, Json

EXAMPLES: Final = ROOT / "manifests/examples"
FEW_NODES: Final = 24
"""Larger jobs only cost time, and are tested by themselves."""
NAME: Final = "fuzz"
_DEEP: Final = "@deep "
_DIGITS: Final = "@digits "
_DEPTHS: Final = (33, 200, 990, 5_000, 9_900)
_LONG: Final = ("x" * 70_000, "9" * 8_000 + "x", "e" * 300, "-" * 64, "A" * 253, "a." * 127)
_ODD: Final = ("1e999", "-0", "0x10", "1Ki", "-3", "1000000Ei", "true", "null", "../../etc", "a/b/c", "{{x}}", "$(A)")
_FINITE: Final = tuple(each for each in NUMBERS if isinstance(each, int | float) and abs(each) <= 1e300)
"""The API server takes no others."""
_TIMES: Final = TIMES[:7]
"""Those that a clock can show."""
_WRITABLE: Final = tuple(each for each in ANYTHING if not isinstance(each, int | float) or each in (True, *_FINITE))
_UNKNOWN: Final = ("fromTheFuture", "", "__proto__", "x" * 300, "a.b/c", "é", "status", "spec", "metadata")
_STATES: Final = ("waiting", "running", "terminated")
_PHASES: Final = ("Pending", "Running", "Failed", "Succeeded", "Unknown")
_CONDITIONS: Final = (
    *("PodScheduled", "Ready", "ContainersReady", "Initialized", "DisruptionTarget", "PodReadyToStartContainers"),
)
_REASONS: Final = (
    *("", "Error", "Completed", "OOMKilled", "Evicted", "StartError", "ContainerCannotRun", "Unschedulable"),
    *("ImagePullBackOff", "CreateContainerConfigError", "NodeLost", "DeletionByTaintManager", "PreemptionByScheduler"),
)

Edit = Callable[[Random], object]


def random_of(kind: str, seed: int) -> Random:
    """What all of one seed is drawn from."""
    return Random(f"{kind} {seed}")  # noqa: S311 a draw that can be repeated


def text_of(value: object) -> bytes:
    """The JSON of a value. What is too deep or too large for a JSON library to write is put in as text."""
    text = json.dumps(value)
    for depth in _DEPTHS:
        text = text.replace(f'"{_DEEP}{depth}"', '{"x":' * depth + "1" + "}" * depth)
    return text.replace(f'"{_DIGITS}"', "9" * 60_000).encode()


def mutate(value: Any, rng: Random, times: int) -> None:
    """Change an object or a list at so many places."""
    for _ in range(times):
        _mutate(value, rng)


def _mutate(value: Any, rng: Random) -> None:
    if isinstance(value, dict) and rng.random() < 0.1:
        value[rng.choice(_UNKNOWN)] = _any(rng)
        return
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    inner = value[key]
    if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
        _mutate(inner, rng)
        return
    drawn = rng.random()
    if drawn < 0.15:
        del value[key]
    elif drawn < 0.25 and isinstance(value, list):
        value.extend(copy.deepcopy(inner) for _ in range(rng.choice((1, 3, 300))))
    else:
        value[key] = _like(inner, rng) if drawn < 0.6 else _any(rng)


def _like(value: object, rng: Random) -> object:
    """Something else of the same type, which a schema may let pass."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value, value + 1, value * 2, *(-1, 0, 1, 2, 3, 5, 60, 255, 1000, 86_400), *_FINITE))
    if isinstance(value, str):
        return rng.choice((*TEXTS, *TIMES, *_LONG, *_ODD))
    return _any(rng)


def _any(rng: Random) -> object:
    special = (f"{_DEEP}{rng.choice(_DEPTHS)}", _DIGITS, ["a"] * 3_000, {str(n): n for n in range(500)})
    return copy.deepcopy(rng.choice(special if rng.random() < 0.1 else (*_WRITABLE, *_LONG, *_ODD)))


@cache
def bases() -> tuple[Json, ...]:
    """The jobs of the examples, and some with what these leave out."""
    found = [each for path in sorted(EXAMPLES.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
    jobs = [each for each in found if each and each["kind"] == KIND]
    return (*jobs, *(_job(spec) for spec in SPECS))


TRAINER: Final[Json] = {"image": "i", "script": "t.py"}
SPECS: Final[tuple[Json, ...]] = (
    {"restart": {"maxRestarts": 1000, "backoffSeconds": 0}},
    {"restart": {"maxRestarts": 0}, "cleanPodPolicy": "All"},
    {"restart": {"backoffSeconds": 0, "rules": [{"action": "Ignore", "exitCodes": [1, 7]}]}, "cleanPodPolicy": "None"},
    {"restart": {"rules": [{"action": "Fail", "reasons": ["Evicted"]}, {"action": "Restart", "message": "e"}]}},
    {"elastic": {"minNodes": 1, "maxNodes": 6}, "restart": {"maxProcessRestarts": 3}},
    {"launcher": "mpirun", "restart": {"backoffSeconds": 0}},
    {"rendezvous": {"backend": "static"}, "restart": {"backoffSeconds": 0}},
    {"progressDeadline": {"seconds": 10, "action": "Restart"}, "slowRank": {"action": "Replace"}},
    {"startupDeadline": {"seconds": 5, "action": "Restart"}, "restart": {"windowSeconds": 5}},
    {"activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 1},
    {"checkpoint": {"size": "1Gi"}, "template": {"spec": {"terminationGracePeriodSeconds": 0}}},
)
TEMPLATE: Final[Json] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}, "creationTimestamp": None},
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}, "requests": {"memory": "1Gi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "securityContext": {"runAsUser": 1000},
            },
            {"name": "sidecar", "image": "i", "ports": [{"containerPort": 80}], "restartPolicy": "Always"},
        ],
        "initContainers": [{"name": "init", "image": "i", "args": ["a"]}],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "key", "secret": {"secretName": "k"}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "nodeSelector": {"a": "b"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
        "schedulingGates": [{"name": "wait.example.com/a"}],
        "terminationGracePeriodSeconds": 5,
        "imagePullSecrets": [{"name": "a"}],
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a"]}],
        "securityContext": {"fsGroup": 5},
    },
}


def _job(spec: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"nodes": 4, "procsPerNode": 1, "trainer": TRAINER, **copy.deepcopy(spec)},
    }


def spec_for(number: int) -> Json:
    """The spec of a job whose pods are written to."""
    job: Json = _job(SPECS[number % len(SPECS)])["spec"]
    return job


def job_of(seed: int) -> Json:
    """A DDPJob."""
    rng = random_of("job", seed)
    raw = copy.deepcopy(rng.choice(bases()))
    where = rng.choice(("template", "template", "trainer", "spec", "spec", "spec", "all"))
    if where == "template":
        raw["spec"]["template"] = copy.deepcopy(TEMPLATE)
        if rng.random() < 0.5:
            raw["spec"]["procsPerNode"] = "auto"
    part = {"all": raw, "spec": raw["spec"]}.get(where) or raw["spec"][where]
    mutate(part, rng, rng.choice((1, 1, 1, 2, 4)))
    return _kept_small(raw, f"{NAME}-{seed}")


def changed(job: Json, seed: int) -> Json:
    """The same job after a change of its spec."""
    rng = random_of("change", seed)
    raw = copy.deepcopy(job)
    if isinstance(raw.get("spec"), dict):
        raw["spec"].update(rng.choice(({}, {"suspend": True}, {"suspend": False}, {"nodes": rng.randint(1, 5)})))
        if rng.random() < 0.5:
            mutate(raw["spec"], rng, 1)
    return _kept_small(raw, job["metadata"]["name"])


def _kept_small(raw: Json, name: str) -> Json:
    metadata = raw["metadata"] if isinstance(raw.get("metadata"), dict) else {}
    # What keeps an object from being deleted is not the concern of the operator.
    raw["metadata"] = {**metadata, "name": name, "finalizers": []}
    spec = raw.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("nodes"), int) and spec["nodes"] > FEW_NODES:
        spec["nodes"] = 3 if spec["nodes"] < 10_001 else spec["nodes"]
    return raw


def status_of(status: object, seed: int) -> object:
    """The status of a job as a user with the right to write it has left it."""
    rng = random_of("status", seed)
    raw = copy.deepcopy(status) if isinstance(status, dict) and status else {"phase": "Running", "attempt": 0}
    mutate(raw, rng, rng.choice((1, 1, 2, 5)))
    return raw


def pod_status_of(seed: int) -> Json:
    """The status of a pod, with the termination messages of `message_of` among others."""
    rng = random_of("pod", seed)
    conditions = [
        {
            "type": kind,
            "status": rng.choice(("True", "False", "Unknown")),
            "reason": rng.choice((*_REASONS, *TEXTS)),
            "message": rng.choice(TEXTS),
            "lastTransitionTime": rng.choice(_TIMES),
        }
        for kind in _CONDITIONS
        if rng.random() < 0.4
    ]
    status: Json = {
        "phase": rng.choice(_PHASES),
        "reason": rng.choice((*_REASONS, *TEXTS)),
        "message": rng.choice(TEXTS),
        "conditions": conditions,
        "containerStatuses": [_container("trainer", rng)],
        "startTime": rng.choice(_TIMES),
    }
    if rng.random() < 0.3:
        status["initContainerStatuses"] = [_container("init", rng)]
    if rng.random() < 0.2:
        status["containerStatuses"].append(_container("sidecar", rng))
    # What has the right form is taken; one place that has not costs the whole write.
    if rng.random() < 0.4:
        mutate(status, rng, 1)
    return status


def _container(name: str, rng: Random) -> Json:
    state = rng.choice(_STATES)
    inside: dict[str, Json] = {
        "waiting": {"reason": rng.choice((*_REASONS, *TEXTS)), "message": rng.choice(TEXTS)},
        "running": {"startedAt": rng.choice(_TIMES)},
        "terminated": _terminated(rng, message_of(rng.randrange(10**6))),
    }
    found: Json = {"name": name, "image": "i", "imageID": "", "ready": rng.random() < 0.5, "restartCount": 0}
    found["state"] = {state: inside[state]}
    if rng.random() < 0.2:
        found["restartCount"] = rng.choice((-1, 3, 2**31 - 1))
        found["lastState"] = {"terminated": _terminated(rng, "")}
    return found


def _terminated(rng: Random, message: str) -> Json:
    return {
        "exitCode": rng.choice((0, 0, 1, 1, 2, 7, 137, 143, 255, -1, 2**31 - 1)),
        "signal": rng.choice((0, 0, 9, 15, -1, 2**31 - 1)),
        "reason": rng.choice(_REASONS),
        "message": message,
        "startedAt": rng.choice(_TIMES),
        "finishedAt": rng.choice(_TIMES),
    }


def message_of(seed: int) -> str:
    """A termination message."""
    rng = random_of("message", seed)
    report: Json = {
        "exitCode": 1,
        "stopped": rng.random() < 0.3,
        "stoppedBy": rng.choice(("SIGTERM", None)),
        "generation": rng.choice((0, 1, 2, None)),
        "processRestarts": rng.randrange(3),
        "failures": [_some(rng, FAILED) for _ in range(rng.choice((0, 1, 2, 40)))],
        "progress": _some(rng, REPORTED),
    }
    mutate(report, rng, rng.choice((0, 1, 1, 3)))
    text = text_of(report).decode()
    cut = rng.randrange(len(text))
    return rng.choice(
        (text, text, text, text[:cut], text[cut:], text * 3, str(rng.choice(TEXTS)), "[" * 4_000, _noise(rng))
    )


def ended_of(seed: int) -> Json:
    """The status of a pod that has ended with the termination message of this seed."""
    rng = random_of("ended", seed)
    ended = _terminated(rng, message_of(seed))
    state = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    phase = "Failed" if ended["exitCode"] else "Succeeded"
    return {"phase": phase, "containerStatuses": [{**state, "state": {"terminated": ended}}]}


def foreign_pod_of(job: str, uid: str, seed: int) -> Json:
    """A pod that another user has made to look like one of the job's."""
    rng = random_of("foreign", seed)
    attempt, ordinal = rng.choice(("0", "0", "1", "999999999", "x", "-1", "")), rng.choice(("0", "1", "77", "x", "00"))
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": job, "uid": uid, "controller": True}
    metadata: Json = {
        "name": rng.choice((f"{job}-a{attempt}-{ordinal}", f"{NAME}-foreign-{seed}")).lower().strip("-"),
        "labels": {"app.kubernetes.io/managed-by": "ddpjob", LABEL_JOB: rng.choice((job, "other"))},
        "annotations": {"ddpjob.dev/membership": rng.choice(("", "{", "7", "x" * 5_000))},
    }
    metadata["labels"].update({LABEL_ATTEMPT: attempt, LABEL_ORDINAL: ordinal})
    if rng.random() < 0.6:
        metadata["ownerReferences"] = [owner]
    spec = {"containers": [{"name": rng.choice(("trainer", "sidecar")), "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _some(rng: Random, names: Sequence[str]) -> Json:
    return {name: rng.choice(NUMBERS if rng.random() < 0.6 else ANYTHING) for name in names if rng.random() < 0.5}


def _noise(rng: Random) -> str:
    return "".join(chr(rng.randrange(1, 0xD800)) for _ in range(rng.choice((1, 40, 4_096, 60_000))))


@dataclass(frozen=True)
class Served:
    """What an endpoint sends: `parts` with `pause` seconds after each; cut off without an end where `reset` is set."""

    parts: tuple[bytes, ...]
    pause: float = 0.0
    reset: bool = False


def good_answer(step: int) -> Served:
    """What a healthy rank answers."""
    return Served((_http(text_of({"step": step, "secondsSinceStep": 0.1, "activity": "step"})),))


def answer_of(seed: int) -> Served:
    """What a rank answers on /progress."""
    rng = random_of("answer", seed)
    raw: Any = {"step": seed, "activity": rng.choice(("step", "data", "starting", "finished")), **_some(rng, REPORTED)}
    if rng.random() < 0.3:
        raw["slowest"] = _some(rng, ("rank", "factor", "what"))
    if rng.random() < 0.2:
        raw["waiting"] = {"reason": "NameNotResolved", "message": rng.choice(TEXTS)}
    mutate(raw, rng, rng.choice((0, 1, 3)))
    body = text_of(raw)
    if rng.random() < 0.2:
        odd = (b"[" * 60_000, b"", b"null", b"NaN", b"\xff\xfe" + body, body.decode().encode("utf-16"), body * 400)
        body = rng.choice((*odd, b"\xef\xbb\xbf" + body, body[: rng.randrange(len(body) + 1)], b"9" * 60_000))
    if rng.random() < 0.6:
        return Served((_http(body),))
    whole = rng.choice(_HEADS)(body, rng)
    if rng.random() < 0.1:
        cuts = sorted(rng.randrange(len(whole) + 1) for _ in range(6))
        parts = (whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True))
        return Served(tuple(parts), pause=rng.choice((0.001, 0.05, 0.6)))
    if rng.random() < 0.1:
        return Served((whole[: rng.randrange(len(whole) + 1)],), reset=rng.random() < 0.5)
    return Served((whole,))


def _http(body: bytes, status: bytes = b"200 OK", *lines: bytes) -> bytes:
    head = (b"HTTP/1.0 " + status, b"Content-Type: application/json", *lines)
    return b"\r\n".join((*head, b"", body))


def _first_line(body: bytes, rng: Random) -> bytes:
    lines = (b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 2e2 OK", b"HTTP/1.1 \xb2\xb0\xb0", b"HTTP/9 200", b"GET / HTTP/1.1")
    return rng.choice((*lines, b"HTTP/1.1 99999 x", b"HTTP/1.1 -20", b"HTTP/1.1 200" * 2_000)) + b"\r\n\r\n" + body


def _length(body: bytes, rng: Random) -> bytes:
    right = str(len(body)).encode()
    odd = (b"-1", b"0", b"1", b"9" * 5_000, b"+5", b"5, 5", b"\xb2", b"0x10", right + b"0", b"1e3", b"", right)
    return _http(body, b"200 OK", b"Content-Length: " + rng.choice(odd))


def _status(body: bytes, rng: Random) -> bytes:
    other = (b"100 Continue", b"204 No Content", b"301 Moved", b"404 Not Found", b"500 Oops", b"000 x", b"999 x")
    return _http(body, rng.choice(other), b"Location: http://127.0.0.1:1/")


def _header(body: bytes, rng: Random) -> bytes:
    odd = (
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        b"X: " + b"y" * 20_000,
        b": ",
        b"\x00\xff",
        b"a\nb",
    )
    return _http(body, b"200 OK", *[rng.choice(odd)] * rng.choice((1, 1, 50)))


def _garbage(_: bytes, rng: Random) -> bytes:
    return rng.choice((b"", b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01", rng.randbytes(3_000)))


_HEADS: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (_first_line, _length, _status, _header, _garbage)
