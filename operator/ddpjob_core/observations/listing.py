"""Lists in messages: the first few by name, the others by their number."""

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> list[str]:
    """The first `most` items, and if there are others, a last item that counts them."""
    rest = len(items) - most
    return [*items[:most], *([f"and {rest} more"] if rest > 0 else [])]


def grouped_by_message(entries: Sequence[tuple[str, str]], most: int, kind: str = "") -> str:
    """The message for each object, merged if several have the same cause: `pods a-0, a-1 (2): no room; a-2: ready`.

    Messages that differ only in the name of the object itself have the same cause; the first of them is shown.

    Args:
        entries: name of an object and the message about it.
        most: the most messages that are shown and names that are listed; others are counted.
        kind: what several of the objects are called, such as pods.
    """
    names: dict[str, list[str]] = {}
    messages: dict[str, str] = {}
    for name, message in entries:
        # The API server and the kubelet name the object in their messages, whatever the cause. The name may have its
        # kind in front of it.
        cause = message.replace(name.split()[-1], "")
        names.setdefault(cause, []).append(name)
        messages.setdefault(cause, message)
    shown = [f"{_listed(names[cause], most, kind)}: {message}" for cause, message in messages.items()]
    rest = sum(len(listed) for listed in list(names.values())[most:])
    return "; ".join([*shown[:most], *([f"and {rest} more"] if rest else [])])


def _listed(names: Sequence[str], most: int, kind: str) -> str:
    if len(names) == 1:
        return names[0]
    return f"{kind} {', '.join(names[:most])}{', ...' if len(names) > most else ''} ({len(names)})".strip()
