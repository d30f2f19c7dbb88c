"""Every type of event that there is can be read back, and does something in the reducer."""

from __future__ import annotations

import msgspec
import pytest

from console.journal import events as ev
from console.journal.codec import decode_event, encode_event
from console.state.reduce import _HANDLERS

KINDS = [
    kind for kind in vars(ev).values() if isinstance(kind, type) and issubclass(kind, ev.Event) and kind is not ev.Event
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_of_each_type_comes_back_as_what_it_was(kind: type[ev.Event]) -> None:
    samples = {"str": "x", "bool": True, "int": 3, "float": 1.5}
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    event = kind(seq=7, ts=2.5, **{field.name: samples[field.type.__name__] for field in required})
    assert decode_event(encode_event(event)) == event
    assert kind in _HANDLERS
