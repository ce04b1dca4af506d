"""What the container's control group says: its memory and its CPU limit, in version 1 and 2."""

# ruff: noqa: PTH123 -- files of the kernel

from __future__ import annotations

import contextlib


def oom_kills() -> int:
    """How many processes of this container the kernel has killed because there was no memory left for them."""
    words = _text("memory.events", "memory/memory.oom_control").split()
    with contextlib.suppress(ValueError, IndexError):
        return int(words[words.index("oom_kill") + 1])
    return 0


def memory_limit() -> str:
    """The container's memory limit, in brackets; empty where it has none."""
    limit = _text("memory.max", "memory/memory.limit_in_bytes").strip()
    # Version 1 writes a huge number for none.
    return f" (limit {int(limit) >> 20} MiB)" if limit.isdigit() and int(limit) < 1 << 60 else ""


def omp_threads(processes: int) -> int | None:
    """Threads per process: its share of the container's CPU limit; None leaves a lone process to torch."""
    for folder, names in (("", ("cpu.max",)), ("cpu/", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):
        numbers: list[str] = []
        with contextlib.suppress(OSError):
            for name in names:
                with open(f"/sys/fs/cgroup/{folder}{name}") as file:
                    numbers += file.read().split()
        if len(numbers) == 2 and numbers[0].isdigit():  # noqa: PLR2004 -- quota and period; "max" or -1 means no quota
            return max(1, int(numbers[0]) // int(numbers[1]) // processes)
    return 1 if processes > 1 else None


def _text(*names: str) -> str:
    for name in names:
        with contextlib.suppress(OSError), open(f"/sys/fs/cgroup/{name}") as file:
            return file.read()
    return ""
