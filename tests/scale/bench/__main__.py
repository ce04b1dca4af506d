"""The benchmark: make bench-scale ARGS="--runs 3 --cases one,many,killed,gang --nodes 500".

The cases of thousands take minutes each: large and large-killed (--nodes 10000), fleet and fleet-killed (--jobs 1000
--nodes-per-job 4), mixed (--finished 5000 --jobs 1000) and fairness.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hack.cache import BUILD
from hack.cluster.programs import ASSETS, kwok_program, programs_folder
from hack.console import say
from tests.scale.bench.cases import Case, as_json, gang, killed, many_jobs, one_job, quiet
from tests.scale.bench.fairness import fairness
from tests.scale.bench.large import thousands
from tests.scale.bench.mixed import mixed
from tests.scale.bench.ranges import figures, judged, ranges
from tests.scale.bench.scene import Scene, open_scene


async def bench(arguments: argparse.Namespace, folder: Path) -> dict[str, list[Case]]:
    """Run the cases and print what they show."""
    results: dict[str, list[Case]] = {}
    log = BUILD / "log/scale.log"
    async with open_scene(programs_folder(log, ASSETS), kwok_program(log), folder) as scene:
        await scene.create("warm-up", 4)
        await scene.clear()
        for _ in range(arguments.runs):
            for case in arguments.cases.split(","):
                found = await measured(scene, case, arguments)
                results.setdefault(case, []).extend(found)
                for each in found:
                    say(f"{case}: {each.line()}")
                say(f"memory of the operator: {scene.memory:.0f} MiB")
    return results


async def measured(scene: Scene, case: str, arguments: argparse.Namespace) -> Sequence[Case]:
    """What one run of a case shows."""
    nodes, jobs, each = arguments.nodes, arguments.jobs, arguments.nodes_per_job
    cases: Mapping[str, Callable[[], Awaitable[Sequence[Case] | Case]]] = {
        "one": partial(one_job, scene, nodes),
        "many": partial(many_jobs, scene, jobs, each),
        "killed": partial(killed, scene, nodes, nodes * 115 // 500),
        "gang": partial(gang, scene),
        "quiet": partial(quiet, scene, jobs),
        "large": partial(thousands, scene, 1, nodes, kill=False),
        "large-killed": partial(thousands, scene, 1, nodes, kill=True),
        "fleet": partial(thousands, scene, jobs, each, kill=False),
        "fleet-killed": partial(thousands, scene, jobs, each, kill=True),
        "mixed": partial(mixed, scene, arguments.finished, jobs),
        "fairness": partial(fairness, scene, 50, 10_000),
    }
    if case not in cases:
        raise SystemExit(f"--cases: there is no case {case}")
    found = await cases[case]()
    return found if isinstance(found, Sequence) else [found]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default="one,many,killed,gang")
    parser.add_argument("--nodes", type=int, default=500, help="of the cases of one job (%(default)s)")
    parser.add_argument("--jobs", type=int, default=200, help="of the cases of many jobs (%(default)s)")
    parser.add_argument("--nodes-per-job", type=int, default=2, help="of the cases many and fleet (%(default)s)")
    parser.add_argument("--finished", type=int, default=5000, help="jobs of the case mixed (%(default)s)")
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(bench(parser.parse_args(), Path(folder)))
    out = BUILD / "results/scale.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(as_json(results))
    lines, well = judged(ranges(), figures(results))
    for line in lines:
        say(line)
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
