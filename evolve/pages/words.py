"""Values in words, as a page says them; short, and without control characters, whoever has written them."""

from evolve.errors import plain

_LONGEST = 2000  # characters of a value


def words(value: object, between: str = ", ") -> str:
    """Return any value of a configuration or a manifest; the parts of a list stand side by side."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple) and value and not any(isinstance(part, list | dict) for part in value):
        return plain(between.join(map(plain, value)), _LONGEST)
    return plain(value, _LONGEST)


def duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    if not 0 <= seconds < 1e10:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02} min"
