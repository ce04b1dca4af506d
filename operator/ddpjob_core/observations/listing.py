"""Lists in messages: the first few by name, the others by their number."""

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> list[str]:
    """The first `most` items, and where there are others a last item that counts them."""
    rest = len(items) - most
    return [*items[:most], *([f"and {rest} more"] if rest > 0 else [])]


def told_once(told: Sequence[tuple[str, str]], most: int, kind: str = "") -> str:
    """What is said of each object, once where the same is said of several: `pods a-0, a-1 (2): no room; a-2: ready`.

    Args:
        told: name of an object and what is said of it. Names in the texts do not make two texts differ.
        most: the most texts that are told and names that are listed; others are counted.
        kind: what several of the objects are called, as pods.
    """
    names: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for name, text in told:
        alike = text.replace(name.rpartition(" ")[2], "")
        names.setdefault(alike, []).append(name)
        texts.setdefault(alike, text)
    said = [f"{_listed(names[alike], most, kind)}: {text}" for alike, text in texts.items()]
    rest = sum(len(listed) for listed in list(names.values())[most:])
    return "; ".join([*said[:most], *([f"and {rest} more"] if rest else [])])


def _listed(names: Sequence[str], most: int, kind: str) -> str:
    if len(names) == 1:
        return names[0]
    return f"{kind} {', '.join(names[:most])}{', ...' if len(names) > most else ''} ({len(names)})".strip()
