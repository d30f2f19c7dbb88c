"""What all events have in common; see `events`."""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1

Scalars = dict[str, float | int | str | bool | None]


class Event(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True):
    """Base of all events. `seq` and `ts` are set by the writer."""

    seq: int = 0
    ts: float = 0.0
