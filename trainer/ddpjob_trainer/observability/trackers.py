"""Trackers of experiments as listeners: TensorBoard, MLflow, and Weights & Biases.

Rank 0 writes one run per job over all its attempts: what an attempt resumes goes on where it was. Each needs its own
package, which is imported on rank 0 alone, when the training starts.
"""

import importlib
import math
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from ddpjob_trainer.observability.listener import Evaluation, Listener, LogRecord, Plan
from ddpjob_trainer.observability.metric_names import ACCURACY
from ddpjob_trainer.process.environment import JobEnvironment, MisuseError, current_environment
from ddpjob_trainer.process.group import Group

_MLFLOW_RUN: Final = "MLFLOW_RUN_ID"
_UID_TAG: Final = "ddpjob.uid"
"""Finds the run of a job again: MLflow chooses the id of a run itself."""


class Tracker(Listener):
    """Reports loss, learning rate, gradient norm, epoch and evaluations on rank 0, where the other ranks do nothing."""

    def __init__(self, group: Group) -> None:
        """Args:
        group: the processes of the training.
        """
        self._first = group.first
        self._job = group.environment.job
        self._epoch = 0
        self._step = 0

    def started(self, plan: Plan) -> None:
        """Open the job's run, or continue it.

        Raises:
            MisuseError: the tracker's package is not installed.
        """
        self._step = plan.step
        if self._first:
            self._open(plan)

    def epoch_started(self, epoch: int, steps: int) -> None:  # noqa: ARG002 a listener's method
        """Remember the epoch, counted from 1."""
        self._epoch = epoch

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002
        """Remember the step, for what has none."""
        self._step = step

    def logged(self, record: LogRecord) -> None:
        """Write what a log step has shown."""
        self._step = record.step
        values = {
            "train/loss": record.loss,
            "train/learning_rate": record.learning_rate,
            "train/gradient_norm": record.gradient_norm,
            "train/epoch": float(self._epoch),
        }
        # A loss that is not finite is worth knowing, and the others may be missing.
        self._write_first({name: each for name, each in values.items() if name == "train/loss" or math.isfinite(each)})

    def measured(self, evaluation: Evaluation) -> None:
        """Write what is not an accuracy."""
        others = {f"eval/{name}": value for name, value in evaluation.metrics.items() if name != ACCURACY}
        self._write_first({name: value for name, value in others.items() if math.isfinite(value)})

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:  # noqa: ARG002 a listener's method
        """Write an accuracy."""
        self._write_first({"eval/accuracy": value})

    def finished(self) -> None:
        """Close the run."""
        self._close_first("FINISHED")

    def stopped(self, step: int) -> None:  # noqa: ARG002 a listener's method
        """Close the run; the next attempt opens it again."""
        self._close_first("KILLED")

    def failed(self) -> None:
        """Close the run as failed; the next attempt opens it again."""
        self._close_first("FAILED")

    def _write_first(self, values: Mapping[str, float]) -> None:
        if self._first and values:
            self._write(values, self._step)

    def _close_first(self, status: str) -> None:
        if self._first:
            self._close(status)

    def _open(self, plan: Plan) -> None:
        """Open the job's run."""

    def _write(self, values: Mapping[str, float], step: int) -> None:
        """Write values of a step."""

    def _close(self, status: str) -> None:
        """Close the run with one of MLflow's words for its end, if it is open."""


class TensorBoard(Tracker):
    """Writes TensorBoard's event files into a folder of the job (`ddpjob[tensorboard]`)."""

    def __init__(self, group: Group, folder: str) -> None:
        """Args:
        group: the processes of the training.
        folder: of the runs of all jobs: those of this one are in `<folder>/<name>-<uid>`.
        """
        super().__init__(group)
        self._folder = Path(folder) / run_name(self._job)
        self._writer: Any = None

    def _open(self, plan: Plan) -> None:
        module = _imported("torch.utils.tensorboard", "tensorboard")
        # What an attempt has written after the checkpoint from which this one goes on is not shown any more.
        self._writer = module.SummaryWriter(str(self._folder), purge_step=plan.step + 1)

    def _write(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def _close(self, status: str) -> None:  # noqa: ARG002 event files have none
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflow(Tracker):
    """Writes into a run of MLflow, at the server that MLFLOW_TRACKING_URI names (`ddpjob[mlflow]`).

    MLFLOW_RUN_ID decides which run, if it is set; otherwise the one with the job's uid as its tag `ddpjob.uid`,
    or a new one. Its id is then in MLFLOW_RUN_ID of rank 0, where other libraries find it.
    """

    def __init__(self, group: Group, experiment: str | None = None) -> None:
        """Args:
        group: the processes of the training.
        experiment: name of the experiment, created if there is none; None is MLFLOW_EXPERIMENT_NAME or MLflow's own.
        """
        super().__init__(group)
        self._experiment = experiment
        self._client: Any = None
        self._run = ""

    def _open(self, plan: Plan) -> None:
        module = _imported("mlflow", "mlflow")
        self._client = module.MlflowClient()
        self._run = _mlflow_run_of(self._job, self._client, self._experiment)
        self._client.update_run(self._run, status="RUNNING")
        self._client.set_tag(self._run, "ddpjob.attempt", str(self._job.attempt))
        self._client.set_tag(self._run, "ddpjob.total_steps", str(plan.total_steps))

    def _write(self, values: Mapping[str, float], step: int) -> None:
        if self._client is not None:
            for name, value in values.items():
                self._client.log_metric(self._run, name, value, step=step)

    def _close(self, status: str) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run, status)
            self._client = None


class WeightsAndBiases(Tracker):
    """Writes into a run of Weights & Biases, offline with WANDB_MODE=offline (`ddpjob[wandb]`).

    The run's id is the job's uid, unless WANDB_RUN_ID is set.
    """

    def __init__(self, group: Group, project: str | None = None, **options: object) -> None:
        """Args:
        group: the processes of the training.
        project: of the run; None is WANDB_PROJECT, or wandb's own.
        options: of `wandb.init`, which win.
        """
        super().__init__(group)
        self._project = project
        self._options = options
        self._run: Any = None

    def _open(self, plan: Plan) -> None:
        module = _imported("wandb", "wandb")
        name_run(os.environ, self._job)
        options: dict[str, Any] = {"name": self._job.name, **self._options}
        if self._project is not None:
            options["project"] = self._project
        self._run = module.init(**options)
        self._run.config.update({"total_steps": plan.total_steps}, allow_val_change=True)

    def _write(self, values: Mapping[str, float], step: int) -> None:
        if self._run is not None:
            # Not its own step: what an attempt repeats would be refused.
            self._run.log({**values, "train/step": step})

    def _close(self, status: str) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "FINISHED" else 1)
            self._run = None


def mlflow_run(experiment: str | None = None) -> str | None:
    """Let what this process does with MLflow itself go on in one run over all attempts of its job.

    Call it before `mlflow.start_run()`, `mlflow.autolog()`, or what calls them, such as transformers' Trainer.

    Args:
        experiment: name of the experiment, as of `mlflow.set_experiment`; created if there is none. None is
            MLFLOW_EXPERIMENT_NAME or MLflow's own.

    Returns:
        The run's id, which is in MLFLOW_RUN_ID from now on; None on ranks other than 0, which have no run.

    Raises:
        MisuseError: MLflow is not installed.
    """
    environment = current_environment()
    if environment.rank != 0:
        return None
    return _mlflow_run_of(environment.job, _imported("mlflow", "mlflow").MlflowClient(), experiment)


def _mlflow_run_of(job: JobEnvironment, client: Any, name: str | None) -> str:  # noqa: ANN401 of MLflow
    """The id of the run that MLFLOW_RUN_ID names, or of the job's, which is created if there is none."""
    given = os.environ.get(_MLFLOW_RUN)
    if given:
        return given
    name = name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found is not None else client.create_experiment(name)
    tags = {"mlflow.runName": job.name, "ddpjob.namespace": job.namespace}
    run = None
    if job.uid:
        tags[_UID_TAG] = job.uid
        run = next(iter(client.search_runs([experiment], f"tags.`{_UID_TAG}` = '{job.uid}'", max_results=1)), None)
    os.environ[_MLFLOW_RUN] = own = str((run or client.create_run(experiment, tags=tags)).info.run_id)
    return own


def run_name(job: JobEnvironment) -> str:
    """Name of a job's run, the same in all attempts."""
    return f"{job.name}-{job.uid}" if job.uid else job.name


def name_run(variables: MutableMapping[str, str], job: JobEnvironment) -> None:
    """Make a job's attempts one run of Weights & Biases, unless the user has chosen one."""
    if job.uid and "WANDB_RUN_ID" not in variables:
        variables["WANDB_RUN_ID"] = job.uid
        variables.setdefault("WANDB_RESUME", "allow")


def _imported(module: str, extra: str) -> Any:  # noqa: ANN401 any module
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MisuseError(
            f"this tracker needs a package that is not installed: install ddpjob[{extra}] ({missing})"
        ) from missing
