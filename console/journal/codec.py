"""Events as lines and back. A line holds one event as a JSON object; see `events` for what there is."""

from __future__ import annotations

from typing import Any

import msgspec

from console.journal.events import (
    AlarmAcked,
    AlarmClosed,
    AlarmOpened,
    AlarmShelved,
    BenchLimited,
    BenchPlanned,
    CaptureStats,
    CheckpointSaved,
    ClockJumped,
    CommandAccepted,
    CommandFinished,
    CommandRequested,
    DispatchPaused,
    Event,
    GatewayHealth,
    GatewayProfiled,
    GatewayWaiting,
    GroupFinished,
    GroupStarted,
    HostStats,
    JournalRepaired,
    Note,
    RunFinished,
    RunPhase,
    RunPlanned,
    RunResumed,
    RunStarted,
    RunTuned,
    SamplingProbed,
    SandboxStats,
    Snapshot,
    StepFinished,
    StepStarted,
    StopRequested,
    TaskQuarantined,
    TrialFinished,
    TrialHeld,
    TrialPhase,
    TrialRetried,
    TrialTurn,
    UnknownEvent,
    WatchTaken,
)

KnownEvent = (
    RunStarted
    | RunResumed
    | RunPhase
    | RunPlanned
    | RunFinished
    | StepStarted
    | StepFinished
    | GroupStarted
    | GroupFinished
    | TrialPhase
    | TrialTurn
    | TrialFinished
    | TrialHeld
    | TrialRetried
    | GatewayHealth
    | GatewayProfiled
    | GatewayWaiting
    | CaptureStats
    | SamplingProbed
    | HostStats
    | ClockJumped
    | SandboxStats
    | CheckpointSaved
    | AlarmOpened
    | AlarmClosed
    | AlarmAcked
    | AlarmShelved
    | CommandRequested
    | CommandAccepted
    | CommandFinished
    | StopRequested
    | DispatchPaused
    | RunTuned
    | TaskQuarantined
    | WatchTaken
    | Note
    | JournalRepaired
    | Snapshot
    | BenchPlanned
    | BenchLimited
    | UnknownEvent
)

_decoder: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_encoder = msgspec.json.Encoder()
_any_decoder = msgspec.json.Decoder(dict[str, Any])


def encode_event(event: Event) -> bytes:
    """One JSON line without its newline. A float that is not finite becomes null: JSON has no other word for it."""
    return _encoder.encode(event)


def decode_event(line: bytes) -> Event:
    """The event on a line; `UnknownEvent` for a type this version does not know.

    Raises:
        ValueError: the line is not an event (not JSON, not an object, no type, fields of wrong types).
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        body = _any_decoder.decode(line)
        kind = body.get("type")
        if not isinstance(kind, str) or kind in _TAGS:
            raise
        return UnknownEvent(seq=int(body.get("seq", 0)), ts=float(body.get("ts", 0.0)), original=kind, body=body)


_TAGS = frozenset(str(t.__struct_config__.tag) for t in KnownEvent.__args__)
