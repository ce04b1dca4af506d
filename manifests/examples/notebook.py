"""A job from Python, cell by cell as in a notebook: python notebook.py SCRIPT [NAMESPACE]."""

import os
import sys

from ddpjob import DDPJob, JobFailed

script, namespace = sys.argv[1], next(iter(sys.argv[2:]), None)
image = os.environ.get("DDPJOB_IMAGE", "ddpjob-torch:cpu")

# Create the job: the script travels with it.
job = DDPJob.submit(script, image=image, nodes=2, procs_per_node=1, namespace=namespace)
print("created", job)

# Follow it: each status is a typed object.
for status in job.watch():
    print(status.phase.value, status.summary.nodes, status.summary.step, status.summary.loss)

# What all ranks wrote, merged by time.
for line in job.logs():
    print(f"rank {line.ranks}: {line.text}")

# The result, or the root cause as an error.
try:
    print("succeeded after", job.result().restarts, "restarts")
except JobFailed as failure:
    print(failure)

# Everything that was made goes with the job.
job.delete()
