"""The DDPJobs of a script: one per launch line, each with its name and its share of the requested resources."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddpjob.convert.job import Builder, Plan, Settings
from ddpjob.convert.launch import MPIRUN, Launch, Reading, RefusedError
from ddpjob.convert.notes import Note, short
from ddpjob.convert.resources import Allocation, Resources
from ddpjob.manifests.documents import Document, checked_job
from ddpjob.manifests.program import job_label, stem_of
from ddpjob_core.api.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class Converted:
    """Jobs, each with a manifest that has been checked, and notes about what was not carried over."""

    documents: tuple[Document, ...]
    notes: tuple[Note, ...]


def jobs_of(reading: Reading, allocation: Allocation, notes: Sequence[Note], settings: Settings) -> Converted:
    """One DDPJob per launch line.

    Args:
        reading: what was found in the script.
        allocation: what the scheduler is asked for.
        notes: about the directives.
        settings: what the user adds.

    Raises:
        UsageProblem: no job can be made; the message gives every reason with its line and field.
    """
    launches, all_notes = _merged(reading.launches)
    refused = list(reading.refused)
    plans: list[Plan] = []
    for launch in launches:
        try:
            plans.append(_plan(launch, allocation, settings))
        except RefusedError as error:
            refused.append(error)
    _require_some(plans, refused, settings.source)
    shared = allocation.nodes or max(plan.nodes for plan in plans)
    each = allocation.each.over(allocation.total.shared_by(shared))
    each = replace(each, gpus=settings.gpus if settings.gpus is not None else each.gpus)
    all_notes += [*notes, *reading.notes, *_shares(allocation, each, shared)]
    all_notes += [Note(error.line, error.field, f"not converted: {error}") for error in refused]
    names, about_names = _names([plan.launch for plan in plans], allocation, settings)
    all_notes += about_names
    documents = []
    for plan, name in zip(plans, names, strict=True):
        builder = Builder(plan, allocation, each, settings)
        documents.append(checked_job([builder.document(name)]))
        all_notes += builder.notes
    all_notes += _in_order(documents, plans)
    return Converted(tuple(documents), tuple(sorted(dict.fromkeys(all_notes), key=lambda note: note.line)))


def _require_some(plans: Sequence[Plan], refused: Sequence[RefusedError], source: str) -> None:
    if plans:
        return
    if refused:
        reasons = "\n".join(f"{source}:{error.line}: {error.field}: {error}" for error in refused)
        raise UsageProblem(reasons, next((error.remedy for error in refused if error.remedy), ""))
    raise UsageProblem(
        f"{source}: no launch line found: none starts with torchrun, python, srun or mpirun",
        "add a line such as: torchrun --nnodes=2 --nproc-per-node=4 train.py",
    )


def _merged(launches: Sequence[Launch]) -> tuple[list[Launch], list[Note]]:
    """The launches without those that start another node of an earlier one."""
    found: dict[object, Launch] = {}
    notes = []
    for launch in launches:
        same = (
            launch.launcher,
            launch.program.text,
            tuple(arg.text for arg in launch.args),
            launch.nodes,
            launch.nodes_option,
            launch.processes,
            launch.rendezvous_backend,
            launch.port,
        )
        first = found.get(same)
        if first is None or not (launch.node_rank and first.node_rank):
            found[same if first is None else (*same, launch.line)] = launch
        else:
            message = f"the same launch as line {first.line}, for another node: one job starts all nodes"
            notes.append(Note(launch.line, launch.raw, message))
    return list(found.values()), notes


def _plan(launch: Launch, allocation: Allocation, settings: Settings) -> Plan:
    known = settings.supported.launchers
    if launch.launcher not in known:
        raise RefusedError(
            launch.line,
            "spec.launcher",
            f"{short(launch.raw)}: this version of ddpjob does not support the launcher {launch.launcher}, "
            f"only {', '.join(sorted(known))}",
            "use torchrun, which starts any program that reads RANK, WORLD_SIZE and LOCAL_RANK from its environment",
        )
    if launch.nodes is not None:
        notes = () if allocation.nodes in (None, launch.nodes) else (_other_size(launch, allocation),)
        return Plan(launch, launch.nodes, notes)
    if allocation.nodes is not None:
        return Plan(launch, allocation.nodes)
    if launch.nodes_option:
        raise RefusedError(
            launch.lines.get("nodes", launch.line),
            "spec.nodes",
            f"{launch.nodes_option}: the script does not say how many nodes there are",
            "replace it with the number",
        )
    if launch.launcher == MPIRUN and "nodes" in launch.lines:
        return Plan(launch, 1, (Note(launch.line, launch.raw, "spec.nodes is 1: set it to the number of nodes"),))
    return Plan(launch, 1)


def _other_size(launch: Launch, allocation: Allocation) -> Note:
    asked = f"{allocation.nodes} node{'s' * (allocation.nodes != 1)}"
    return Note(
        launch.line, launch.raw, f"the script requests {asked}, this line uses {launch.nodes}, and so does the job"
    )


def _shares(allocation: Allocation, each: Resources, nodes: int) -> Iterator[Note]:
    """Notes about amounts that were given for all nodes together."""
    if allocation.nodes is not None or nodes == 1:
        return
    limits = each.limits()
    total = allocation.total.limits()
    for name, key in (("ncpus", "cpu"), ("ngpus", "nvidia.com/gpu"), ("mem", "memory")):
        if key in total and key in limits and name in allocation.written:
            message = f"this is the total of all {nodes} nodes: each gets {limits[key]}"
            yield Note(allocation.lines[name], allocation.written[name], message)


def _names(launches: Sequence[Launch], allocation: Allocation, settings: Settings) -> tuple[list[str], Sequence[Note]]:
    given = settings.name or allocation.name
    notes = []
    bases = [given or stem_of(launch.program.text) for launch in launches]
    counts = Counter(job_label(base) for base in bases)
    names = []
    for number, base in enumerate(bases, 1):
        suffix = f"-{number}" if counts[job_label(base)] > 1 else ""
        # A name given on the command line is used unchanged, and checked later.
        names.append(settings.name if settings.name and not suffix else job_label(base, suffix))
    if allocation.name and not settings.name and allocation.name not in names:
        line = allocation.lines.get("name", 1)
        notes.append(
            Note(line, allocation.name, f"the name is {', '.join(names)}: a name must be a DNS label, and unique")
        )
    return names, notes


def _in_order(documents: Sequence[Document], plans: Sequence[Plan]) -> Iterator[Note]:
    if len(documents) == 1:
        return
    names = [document.name for document in documents]
    commands = " && ".join(f"ddpjob run -f {name}.yaml" for name in names)
    yield Note(
        plans[-1].launch.line,
        f"{len(names)} launch lines",
        f"{len(names)} jobs, which run at the same time if they are applied together. To run them in order, save "
        f"each to its own file: {commands}; or wait between them: kubectl wait --for=condition=Succeeded "
        f"--timeout=-1s ddpjob/{names[0]}",
    )
