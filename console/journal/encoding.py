"""From an event to a line that every reader can read."""

from __future__ import annotations

from typing import Any

from console.journal import events as ev
from console.journal.codec import encode_event
from console.journal.layout import read_event


def encode_readable(event: ev.Event) -> tuple[bytes, ev.Event]:
    """The line of an event, and the event that a reader makes of it.

    A non-finite number becomes null, or its field's default where only a number may be; a lone surrogate becomes "?".

    Raises:
        ValueError: no line of this event could be read.
    """
    try:
        line = encode_event(event)
    except UnicodeEncodeError:  # a lone surrogate in somebody's output
        event = _cleaned(event)
        line = encode_event(event)
    if b"null" not in line:
        return line, event
    # Only a non-finite number, a null value, or the word in a text gets here.
    seen = read_event(line)
    if seen is None:
        event = _cleaned(event)
        line = encode_event(event)
        seen = read_event(line)
        if seen is None:
            raise ValueError(f"an event that no reader can read: {line[:200]!r}")
    return line, seen


def _cleaned(event: ev.Event) -> ev.Event:
    """A copy without lone surrogates and without non-finite numbers where only numbers may be."""
    fields: dict[str, Any] = {}
    defaults = dict(zip(event.__struct_fields__[-len(event.__struct_defaults__) :], event.__struct_defaults__))
    for name in event.__struct_fields__:
        fields[name] = _clean(getattr(event, name), defaults.get(name))
    return type(event)(**fields)


def _clean(value: object, default: object = None) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and not -1e308 <= value <= 1e308:
        return default if isinstance(default, int | float) else None
    if isinstance(value, dict):
        return {_clean(k): cleaned for k, v in value.items() if (cleaned := _clean(v)) is not None}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
