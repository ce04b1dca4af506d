"""The benchmark: make bench-scale ARGS="--runs 3 --cases one,many,killed,gang --nodes 500"."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.cache import BUILD
from hack.cluster.programs import ASSETS, kwok_program, programs_folder
from hack.console import say
from tests.scale.bench.cases import Case, as_json, gang, killed, many_jobs, one_job, quiet
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
    match case:
        case "one":
            return await one_job(scene, arguments.nodes)
        case "many":
            return await many_jobs(scene, arguments.jobs, arguments.nodes_per_job)
        case "killed":
            return [await killed(scene, arguments.nodes, arguments.nodes * 115 // 500)]
        case "gang":
            return [await gang(scene)]
        case "quiet":
            return [await quiet(scene, arguments.jobs)]
    raise SystemExit(f"--cases: there is no case {case}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default="one,many,killed,gang")
    parser.add_argument("--nodes", type=int, default=500, help="of the cases one and killed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=200, help="of the cases many and quiet (%(default)s)")
    parser.add_argument("--nodes-per-job", type=int, default=2, help="of the case many (%(default)s)")
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
