"""The benchmark: make bench-scale ARGS="--runs 3 --cases one,many,killed,gang --nodes 500"."""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Final

from hack.cache import BUILD
from hack.cluster.programs import ASSETS, kwok_program, programs_folder
from hack.console import say
from tests.scale.bench.cases import Rate, Replaced, Restarted, as_json, gang, killed, many_jobs, one_job
from tests.scale.bench.scene import Scene, open_scene

JOBS: Final = 200


async def bench(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run the cases and print what they show."""
    results: dict[str, list[object]] = {}
    log = BUILD / "log/scale.log"
    async with open_scene(programs_folder(log, ASSETS), kwok_program(log), folder) as scene:
        await scene.create("warm-up", 4)
        await scene.clear()
        for _ in range(arguments.runs):
            for case in arguments.cases.split(","):
                found = await measured(scene, case, arguments.nodes)
                results.setdefault(case, []).extend(found)
                for each in found:
                    say(f"{case}: {each.line()}")
                say(f"memory of the operator: {scene.memory:.0f} MiB")
    return dict(results)


async def measured(scene: Scene, case: str, nodes: int) -> list[Rate] | list[Restarted] | list[Replaced]:
    """What one run of a case shows."""
    match case:
        case "one":
            return await one_job(scene, nodes)
        case "many":
            return await many_jobs(scene, JOBS, 2)
        case "killed":
            return [await killed(scene, 500, 115)]
        case "gang":
            return [await gang(scene)]
    raise SystemExit(f"--cases: there is no case {case}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default="one,many,killed,gang")
    parser.add_argument("--nodes", type=int, default=500)
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(bench(parser.parse_args(), Path(folder)))
    out = BUILD / "results/scale.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(as_json(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
