"""`ddpjob why NAME`."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from ddpjob.cli.options import Context, Format, JobName, Kubeconfig, Namespace, Output, connect
from ddpjob.cli.output import print_json, print_lines, say
from ddpjob.cluster.jobs import events_of, get_job, pods_of
from ddpjob.views.story import story_json, story_lines, story_of
from ddpjob_core.api.errors import Forbidden

T = TypeVar("T")


def why(
    *,
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Explain a job: what happened, the root cause with its traceback, what to do, and where to read more."""
    cluster = connect(namespace, context, kubeconfig)
    job = get_job(cluster, name)
    story = story_of(
        job,
        _as_far_as_allowed(lambda: events_of(cluster, job), "events"),
        _as_far_as_allowed(lambda: pods_of(cluster, job), "pods"),
        datetime.now(UTC),
    )
    if output is Format.JSON:
        print_json(story_json(job, story))
    else:
        print_lines(story_lines(story))


def _as_far_as_allowed(read: Callable[[], list[T]], what: str) -> list[T]:
    try:
        return read()
    except Forbidden as error:
        # The status alone explains most of it.
        say(f"continuing without {what}: {error}")
        return []
