"""What `make demo` prints while a person watches."""

import itertools
from typing import Any

import pytest

from hack import demo


def test_a_line_is_printed_when_more_than_the_age_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = iter(["digits Running 1/9 1s", "digits Running 1/9 2s", "digits Running 2/9 3s", "digits Succeeded 9/9 4s"])
    phases = iter(["Running", "Running", "Running", "Succeeded"])
    monkeypatch.setattr(demo, "LOOK_EVERY_SECONDS", 0)
    job = demo.follow(lambda: {"status": {"phase": next(phases)}}, lambda: ["NAME STATE", next(rows)], 1e12)
    assert job["status"]["phase"] == "Succeeded"
    assert capsys.readouterr().out.split("\n") == [
        "  NAME STATE",
        "  digits Running 1/9 1s",
        "  digits Running 2/9 3s",
        "  digits Succeeded 9/9 4s",
        "",
    ]


def test_a_job_that_does_not_finish_ends_the_demo_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LOOK_EVERY_SECONDS", 0)
    clock = itertools.count().__next__
    with pytest.raises(SystemExit, match="kubectl describe ddpjob digits"):
        demo.follow(dict, lambda: ["NAME", "digits 1s"], 5, clock)


def written_by(*managers: tuple[str, str]) -> dict[str, Any]:
    fields = [{"manager": manager, "subresource": part} if part else {"manager": manager} for manager, part in managers]
    return {"metadata": {"name": "digits", "namespace": "team", "managedFields": fields}}


def test_only_a_job_that_nobody_but_the_demo_has_written_is_replaced_on_a_users_cluster() -> None:
    assert demo.is_of_the_demo(written_by(("ddpjob-demo", ""), ("aiohttp", "status")))
    assert not demo.is_of_the_demo(written_by(("ddpjob-demo", ""), ("kubectl-edit", "")))
    assert not demo.is_of_the_demo(written_by(("kubectl-client-side-apply", ""), ("aiohttp", "status")))
    assert not demo.is_of_the_demo({"metadata": {"name": "digits", "namespace": "team"}})


def test_a_users_own_job_is_left_alone_and_two_ways_out_are_named() -> None:
    told = demo.not_ours(written_by(("kubectl-client-side-apply", "")))
    assert "kubectl --namespace team delete ddpjob digits" in told
    assert "kubectl config set-context --current --namespace" in told


def test_a_users_own_cluster_is_not_offered_to_be_removed() -> None:
    told = demo.next_steps("", "kubectl", existing=True)
    assert "make clean" not in told
    assert "kubectl delete -k manifests/base" in told
    assert "make clean" in demo.next_steps("/a/kubeconfig", "kubectl")


def test_the_accuracy_is_the_last_one_that_rank_0_printed() -> None:
    assert demo.accuracy_in("x\nAccuracy 0.9 on 360\nAccuracy 0.98 on 360 held-out images\n") == (
        "Accuracy 0.98 on 360 held-out images"
    )
    assert not demo.accuracy_in("nothing")
