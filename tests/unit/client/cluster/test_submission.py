"""What is created for a file, and in which order."""

from pathlib import Path

import pytest
from job_files import EXAMPLES, REQUEST

from ddpjob.cluster.submission import Submission, submission_of
from ddpjob.manifests.documents import Document, read_documents
from ddpjob.manifests.program import (
    job_manifest,
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_have_no_problem_and_can_be_submitted(path: Path) -> None:
    submission = submission_of(read_documents(path.read_text(), path.name))
    assert submission.job.name


def test_what_is_printed_for_kubectl_comes_before_the_job_that_needs_it() -> None:
    submission = Submission(Document("x", job_manifest(REQUEST)), script=REQUEST.script)
    assert [manifest["kind"] for manifest in submission.manifests()] == ["ConfigMap", "DDPJob"]
