"""Manifests of a job, and what is asked for with a script."""

from pathlib import Path

from ddpjob.manifests.documents import Document, only_job, read_documents
from ddpjob.manifests.program import Request, Script

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "manifests/examples").glob("*.yaml"))
JOB = """\
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata:
  name: digits
spec:
  nodes: 2
  trainer:
    image: i
    script: train.py
"""


def read(text: str) -> Document:
    return only_job(read_documents(text, "job.yaml"))


REQUEST = Request("line", "img", Script("train.py", "print(1)\n"), None, ("--lr", "0.1"), 2, 4, {"A": "1"})
