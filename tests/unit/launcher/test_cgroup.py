"""What the kernel says about the container: CPU and memory limits, and processes that it killed."""

import pytest

from ddpjob_launcher import cgroup
from ddpjob_launcher.cgroup import memory_limit, omp_threads, oom_kills
from tests.unit.launcher.running import files_of

V1, V2 = "/sys/fs/cgroup/cpu/cpu.cfs_", "/sys/fs/cgroup/cpu.max"


@pytest.mark.parametrize(
    ("files", "processes", "threads"),
    [
        ({V2: "800000 100000\n"}, 2, 4),
        ({V2: "50000 100000\n"}, 1, 1),
        ({V2: "max 100000\n"}, 1, None),
        ({V2: "max 100000\n"}, 4, 1),
        ({V1 + "quota_us": "600000\n", V1 + "period_us": "100000\n"}, 3, 2),
        ({V1 + "quota_us": "-1\n", V1 + "period_us": "100000\n"}, 1, None),
        ({}, 1, None),
    ],
)
def test_threads_follow_the_cpu_limit(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], processes: int, threads: int | None
) -> None:
    files_of(monkeypatch, cgroup, files)
    assert omp_threads(processes) == threads


MEMORY_V1 = "/sys/fs/cgroup/memory/memory."
MEMORY_V2 = "/sys/fs/cgroup/memory."


@pytest.mark.parametrize(
    ("files", "kills", "limit"),
    [
        ({MEMORY_V2 + "events": "low 0\noom 2\noom_kill 2\n", MEMORY_V2 + "max": "536870912\n"}, 2, " (limit 512 MiB)"),
        ({MEMORY_V2 + "events": "low 0\noom 0\noom_kill 0\n", MEMORY_V2 + "max": "max\n"}, 0, ""),
        (
            {
                MEMORY_V1 + "oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
                MEMORY_V1 + "limit_in_bytes": "1073741824\n",
            },
            1,
            " (limit 1024 MiB)",
        ),
        (
            {MEMORY_V1 + "oom_control": "oom_kill_disable 0\n", MEMORY_V1 + "limit_in_bytes": "9223372036854771712"},
            0,
            "",
        ),
        ({MEMORY_V2 + "events": "oom_kill"}, 0, ""),
        ({}, 0, ""),
    ],
)
def test_the_kernel_tells_whom_it_killed_for_memory(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], kills: int, limit: str
) -> None:
    files_of(monkeypatch, cgroup, files)
    assert (oom_kills(), memory_limit()) == (kills, limit)
