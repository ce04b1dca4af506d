"""Numbers in the few characters of a column."""


def format_seconds(seconds: int) -> str:
    """A span as kubectl prints ages: 38s, 5m10s, 2h5m, 3d4h."""
    minutes, rest = divmod(max(0, seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    for large, small, units in ((days, hours, "dh"), (hours, minutes, "hm"), (minutes, rest, "ms")):
        if large:
            return f"{large}{units[0]}{small}{units[1]}" if small else f"{large}{units[0]}"
    return f"{rest}s"


def format_count(value: float) -> str:
    """A count in at most five characters: 0.83, 12.5, 950, 1.2k, 48k, 3.1M."""
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if abs(value) < limit * 0.9995 or unit == "G":
            scaled = value / divisor
            digits = 0 if abs(scaled) >= 100 or (unit and abs(scaled) >= 10) else 1 if abs(scaled) >= 1 else 2  # noqa: PLR2004
            text = f"{scaled:.{digits}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
    raise AssertionError(value)
