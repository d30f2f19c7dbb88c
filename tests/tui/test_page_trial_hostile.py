"""No text of a policy, tool, sandbox, gateway or file reaches the screen of these pages but as printable characters."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_bench import AskedSource, desk_on, keys, page_text
from rich.cells import cell_len

from console.control.messages import Ask, Content, Token, Turn
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import apply
from console.state.sanitize import sanitize
from console.tui.panes.tokens import spelled

_BEGINNINGS = [
    "\x1b", "\x1b[", "\x1b[2J", "\x1b[H", "\x1b[31;1m", "\x1b[?1049h", "\x1b[?25l", "\x1b[6n", "\x1bc", "\x1b(0",
    "\x1b#8", "\x1b]0;PWNED\x07", "\x1b]2;PWNED\x1b\\", "\x1b]8;;http://x\x07link\x1b]8;;\x07", "\x1b]52;c;aGk=\x07",
    "\x1b]52;c;aGk=", "\x1b]9;PWNED\x07", "\x1b]1337;File=:AAAA\x07", "\x1bPq#0;2;0;0;0\x1b\\", "\x1bP$qm\x1b\\",
    "\x1b_Gf=32;AAAA\x1b\\", "\x1b^PM\x1b\\", "\x1bXSOS\x1b\\", "\x9b2J", "\x9d0;PWNED\x9c", "\x90q\x9c", "\x9e",
    "\x9f", "\x98", "\x84", "\x85", "\x00", "\x07", "\x08\x08\x08", "\x0b", "\x0c", "\x0e", "\x0f", "\x7f", "\r",
    "\r\n", "\t", "\x1a", "\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "\u200b", "\u200c",
    "\u200d", "\u2060", "\ufeff", "\u00ad", "\u2028", "\u2029", "\ud800", "\udfff", "\ufffe", "\ue000", "\U000f0000",
    "\U000e0041", "a" + "\u0301" * 40, "\u0301", "\ufe0f", "\U0001f3fb", "日本", "🙂", "[red]markup[/red]",
    "[@click=app.quit]x[/]", "\\x1b[2J", "{x}", "%s",
]  # fmt: skip
CORPUS = [
    *_BEGINNINGS,
    *(f"before{text}ALL PASSED" for text in _BEGINNINGS),
    *(f"{text}{other}" for text, other in zip(_BEGINNINGS, _BEGINNINGS[7:], strict=False)),
    "\x1b]0;" + "A" * 5000, "\x1b[" + "1;" * 3000 + "m", "\u0301" * 5000, "\x1b" * 5000, "x" * 1_000_000,
    "\u202e" * 100_000, "日" * 200_000, "".join(map(chr, range(0x300))), "\n" * 50_000,
]  # fmt: skip


def clean(rows: list[str], width: int, spelled_out: bool = False) -> None:
    assert spelled_out or "PWNED" not in "\n".join(rows)
    for row in rows:
        assert row == sanitize(row, limit=10**6), ascii(row)
        assert cell_len(row) <= width


def hostile(ask: Ask) -> Content:
    content = Content(id=ask.id, kind=ask.kind, over=True, calls=2, note=CORPUS[ask.cursor % 50], cursor=10**6)
    if ask.cursor:
        return content
    match ask.kind:
        case "transcript":
            content.turns = [
                Turn(call=i, role=text[:300], text=text, stop_reason=text[:300], cut=3) for i, text in enumerate(CORPUS)
            ]
        case "tokens":
            content.call = 0
            content.tokens = [Token(id=i, text=text, logprob=-0.3 * (i % 20)) for i, text in enumerate(CORPUS)]
        case _:
            content.lines = list(CORPUS)
    return content


def hostile_source(recording: Path) -> AskedSource:
    """A run in which every text of events and state comes from the corpus."""
    source = AskedSource(RunRecord(recording), hostile, live=True)
    source.record = None  # type: ignore[assignment]
    at = {"step": 0, "group": 0, "trial": 0}
    texts = [text.replace("\ud800", "").replace("\udfff", "")[:5000] for text in CORPUS]
    events: list[ev.Event] = [
        ev.RunStarted(run_id="r", name=texts[11], on_failure=texts[12]),
        ev.StepStarted(step=0, groups=1, policy_version=0),
        ev.GroupStarted(step=0, group=0, task=texts[11] * 3, size=2),
        *[ev.Note(text=text) for text in texts],
        *[ev.AlarmOpened(key=f"k.{text[:200]}", level=text[:50] or "x", text=text, remedy=text, consequence=text,
                         action=text[:50]) for text in texts[:60]],
        *[ev.AlarmAcked(key=f"k.{text[:200]}", by=text) for text in texts[:10]],
        *[ev.AlarmShelved(key=f"shelf.{text}", until=9e9, by=text) for text in texts[:10]],
        *[ev.GroupFinished(step=0, group=0, kept=False, reason=text) for text in texts[:10]],
        *[ev.TrialFinished(**at, try_=i, outcome="infrastructure", cause=text, rule=text, evidence=text * 3,
                           exception=text, trial_dir=text, seconds={text: 1.0}, retryable=True)
          for i, text in enumerate(texts)],
        ev.TrialHeld(**at, try_=len(texts) - 1, deadline=1.0),
    ]  # fmt: skip
    source.view = type(source.view)()
    for seq, event in enumerate(events, 1):
        event.seq, event.ts = seq, 1_790_000_000.0 + seq
        apply(source.view, event)
    return source


@pytest.mark.parametrize("key", ["t", "v", "c", "l", "e", "b"])
async def test_tabs_of_the_trial(recording: Path, key: str) -> None:
    assert len(CORPUS) >= 200
    desk, shell, _ = desk_on(hostile_source(recording))
    await keys(desk, shell, "f3", key)
    width = 110
    for pressed in (("g",), ("w",), ("right", "right"), ("w", "G"), ("enter",), ("g",)):
        await keys(desk, shell, *pressed)
        for _ in range(6):
            rows = page_text(desk, width, 60)
            clean(rows, width, spelled_out=desk.page._tab == "tokens")  # type: ignore[attr-defined]
            await keys(desk, shell, "pagedown", "pagedown")
    for line in desk.page.text.lines:  # type: ignore[attr-defined]  # and everything that was not looked at
        text = "".join(span.text for span in line)
        assert text == sanitize(text, limit=10**6)
        assert len(text) < 30_000
    clean(desk.page.yank_text().split("\n"), 10**6, spelled_out=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["E", "L"])
async def test_events_and_alarms(recording: Path, key: str) -> None:
    source = hostile_source(recording)
    desk, shell, _ = desk_on(source)
    await keys(desk, shell, key)
    for width in (60, 110, 200):
        for _ in range(15):
            clean(page_text(desk, width, 60), width)
            await keys(desk, shell, "pageup" if key == "E" else "pagedown")
        clean(desk.page.yank_text().split("\n"), 10**6)  # type: ignore[attr-defined]
    await keys(desk, shell, "w")
    clean(page_text(desk, 60, 30), 60)


async def test_errors_and_names(recording: Path) -> None:
    source = hostile_source(recording)
    desk, shell, clock = desk_on(source)
    for text in CORPUS[:90]:
        source.broken = text or "x"
        await keys(desk, shell, "f3")
        clock.now += 60
        desk.tick()
        await shell.settle()
        clean(page_text(desk, 80, 24), 80)


def test_a_token_is_spelled_out_where_a_terminal_would_not_print_it() -> None:
    cases = {
        "ok": "ok", " a b": " a b", "\n": "\\n", "\t": "\\t", "\\": "\\\\", "\x1b[2J": "\\x1b[2J", "\x9b2J": "\\x9b2J",
        "\u202e": "\\u202e", "\ud800": "\\ud800", "\U000e0041": "\\U000e0041", "\u0301": "\\u0301",
        "e\u0301": "e\u0301",
        "日": "日", "\u200b": "\\u200b", "[red]": "[red]",
    }  # fmt: skip
    assert {piece: spelled(piece) for piece in cases} == cases
    for text in CORPUS:
        found = spelled(text)
        assert found == sanitize(found, limit=10**6)
        assert "\n" not in found
