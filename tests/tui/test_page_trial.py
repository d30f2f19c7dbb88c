"""The trial page: which trial it shows, how it asks for content, its tabs, and what keys do on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from page_bench import AskedSource, BenchShell, Clock, desk_on, keys, page_text, play_to_hold, story

from console.control.messages import Ask, Content
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.tui.desk import Desk
from console.tui.pages.trial import TrialPage, show_trial

HELD = (2, 4)
SIZES = [(80, 24), (120, 40), (200, 60)]


def opened(
    recording: Path, contents=None, live: bool = False, ascii_only: bool = False
) -> tuple[Desk, BenchShell, Clock, AskedSource]:
    source = AskedSource(RunRecord(recording), contents or story(), live)
    play_to_hold(source, recording)
    desk, shell, clock = desk_on(source, ascii_only)
    return desk, shell, clock, source


async def shown(recording: Path, *pressed: str, contents=None, live: bool = False, ascii_only: bool = False):
    desk, shell, clock, source = opened(recording, contents, live, ascii_only)
    await keys(desk, shell, "f3", *pressed)
    return desk, shell, clock, source


async def tick(desk: Desk, shell: BenchShell, clock: Clock, seconds: float = 1.0) -> None:
    clock.now += seconds
    desk.tick()
    await shell.settle()


def body(desk: Desk, width: int = 100, height: int = 40) -> str:
    return "\n".join(page_text(desk, width, height))


# --- what is shown ---


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "pressed"), [("transcript", []), ("tokens", ["c"]), ("table", ["c", "enter"]), ("why", ["b"])]
)
async def test_snapshots(recording: Path, name: str, pressed: list[str], size: tuple[int, int], matches_snapshot):
    desk, *_ = await shown(recording, *pressed)
    lines = page_text(desk, *size)
    assert len(lines) == size[1] - 2
    matches_snapshot(f"trial-{name}-{size[0]}x{size[1]}", lines)


async def test_ascii(recording: Path) -> None:
    for key in "tvcleb":
        desk, *_ = await shown(recording, key, ascii_only=True)
        assert body(desk).isascii(), body(desk)


async def test_every_size_paints_whole_lines(recording: Path) -> None:
    for key in "tcb":
        desk, *_ = await shown(recording, key)
        for width, height in ((60, 16), (72, 20), (149, 30), (150, 30), (240, 70)):
            lines = page_text(desk, width, height)
            assert len(lines) == height - 2
            assert "g3/t5" in lines[0]


async def test_tabs_by_key_by_arrow_and_by_number(recording: Path) -> None:
    desk, shell, _, source = await shown(recording)
    assert "I look at part 2." in body(desk)
    kinds = [ask.kind for ask in source.asked]
    assert kinds == ["transcript"]
    for key, text in [
        ("v", "1 passed"), ("right", "part-2"), ("right", "Collecting artifacts"), ("tab", "task_name"),
        ("tab", "what the policy"), ("shift+tab", "task_name"), ("3", "call 3 of 3"), ("left", "1 passed"),
        ("1", "tar cf part-0.tar"), ("e", '"n": 1'), ("l", "done"),
    ]:  # fmt: skip
        if text == "what the policy":
            text = "one of a sandbox that failed"
        await keys(desk, shell, key)
        assert text in body(desk), key
    ask = source.asked[-1]
    assert (ask.step, ask.group, ask.trial, ask.try_) == (12, 2, 4, 0)


async def test_a_transcript_says_whose_turn_it_is_and_loses_colours_only(recording: Path) -> None:
    desk, *_ = await shown(recording)
    text = body(desk)
    assert "assistant turn 3 · in 360 out 31 · 800ms · stop" in text
    assert "tool turn 2" in text
    assert "file-1.tar    1 MB" in text
    assert "[32m" not in text
    cut = Content(id="", kind="transcript", over=True)

    def much(ask: Ask) -> Content:
        from console.control.messages import Turn

        cut.turns = [] if ask.cursor else [Turn(call=0, role="tool", text="x" * 9000 + "\nnext", cut=5)]
        cut.cursor = 1
        return cut

    desk, *_ = await shown(recording, contents=much)
    assert "(5,005 characters are not shown)" in body(desk, 100, 80)
    assert "next" in body(desk, 100, 80)


# --- asking ---


async def test_it_asks_once_a_second_one_at_a_time_and_stops_when_it_is_over(recording: Path) -> None:
    there = [1]
    desk, shell, clock, source = await shown(recording, contents=story(3, lambda: there[0]))
    asked = len(source.asked)
    for _ in range(4):
        desk.tick()
    await shell.settle()
    assert len(source.asked) == asked
    source.slow = asyncio.Event()
    clock.now += 1.0
    for _ in range(5):
        desk.tick()
        await asyncio.sleep(0)
    assert source.most == 1
    assert len(source.asked) == asked + 1
    there[0] = 3
    source.slow.set()
    await shell.settle()
    assert "I look at part 2." in body(desk)
    source.slow = None
    await tick(desk, shell, clock)
    final = len(source.asked)
    for _ in range(3):
        await tick(desk, shell, clock)
    assert len(source.asked) == final


async def test_what_is_there_already_comes_without_waiting(recording: Path) -> None:
    desk, _, _, source = await shown(recording, contents=story(400))
    assert "I look at part 399." in body(desk)
    assert [ask.cursor for ask in source.asked] == [0, 200, 400, 600]


async def test_errors_are_shown_and_it_asks_again(recording: Path) -> None:
    desk, shell, clock, source = opened(recording)
    source.broken = "no connection \x1b[2Jto the engine"
    await keys(desk, shell, "f3")
    assert "not answered: no connection to the engine; it is asked again" in body(desk)
    asked = len(source.asked)
    await tick(desk, shell, clock, 1.0)
    assert len(source.asked) == asked
    source.broken = ""
    await tick(desk, shell, clock, 1.5)
    assert "not answered" not in body(desk)
    assert "I look at part 2." in body(desk)


async def test_following_standing_still_and_the_counter(recording: Path) -> None:
    there = [4]
    desk, shell, clock, _ = await shown(recording, contents=story(9, lambda: there[0]))
    assert "follows" in body(desk, 100, 24)
    await keys(desk, shell, "k", "k")
    before = body(desk, 100, 24).split("\n")[4:]
    there[0] = 6
    await tick(desk, shell, clock)
    after = body(desk, 100, 24)
    assert "stands still, 20 new" in after.split("\n")[0]
    assert after.split("\n")[4:] == before
    await keys(desk, shell, "G")
    assert "I look at part 5." in body(desk, 100, 24)
    await keys(desk, shell, "f")
    there[0] = 9
    await tick(desk, shell, clock)
    assert "I look at part 8." not in body(desk, 100, 24)
    await keys(desk, shell, "f")
    assert "I look at part 8." in body(desk, 100, 24)
    await keys(desk, shell, "g")
    assert "Make an archive" in body(desk, 100, 24)


# --- which trial ---


async def test_other_trials_and_groups(recording: Path) -> None:
    desk, shell, _, source = await shown(recording)
    size = len(desk.state.groups[2].trials)
    await keys(desk, shell, "J")
    assert "g3/t6" in body(desk)
    assert (source.asked[-1].group, source.asked[-1].trial) == (2, 5)
    assert (desk.selection.group, desk.selection.trial) == (2, 5)
    await keys(desk, shell, "K", "K")
    assert "g3/t4" in body(desk)
    seen = set()
    for _ in range(size * len(desk.state.groups)):
        await keys(desk, shell, "J")
        seen.add((source.asked[-1].group, source.asked[-1].trial))
    assert len(seen) == size * len(desk.state.groups)
    await keys(desk, shell, "exclamation_mark")
    assert "g3/t5" in body(desk)
    await keys(desk, shell, "exclamation_mark")
    assert "alarm" in "".join(span.text for span in desk.scene().message)


async def test_a_new_try_begins_anew_and_the_one_before_can_be_read(recording: Path) -> None:
    desk, shell, clock, source = await shown(recording, live=True)
    await keys(desk, shell, "k")
    seq = next(e.seq for e in RunRecord(recording).journal.events() if isinstance(e, ev.TrialRetried))
    source.play_to(seq + 3)
    await tick(desk, shell, clock)
    assert source.asked[-1].try_ == 1
    assert "try 2" in body(desk)
    await keys(desk, shell, "left_parenthesis")
    assert source.asked[-1].try_ == 0
    assert "this is try 1 of 2" in body(desk)
    assert body(desk).split("\n")[1].startswith(" beneath is try 1 of 2; the last try: ")
    await keys(desk, shell, "right_parenthesis")
    assert source.asked[-1].try_ == 1
    assert "beneath is" not in body(desk)
    await keys(desk, shell, "b")
    assert "Earlier tries" in body(desk)
    assert "infrastructure sandbox SandboxError" in body(desk)


async def test_a_trial_whose_step_is_over_keeps_what_was_loaded_and_takes_no_orders(recording: Path) -> None:
    desk, shell, clock, source = await shown(recording, live=True)
    loaded = body(desk).split("\n")[4:]
    source.play_to(source.record.journal.last_seq - 60)
    assert desk.state.step != 12
    await tick(desk, shell, clock)
    text = body(desk)
    assert text.split("\n")[4:] == loaded
    assert "step 12 is over, this is what it was" in text
    for key in ("X", "x", "r"):
        await keys(desk, shell, key)
        assert "its step is over" in "".join(span.text for span in desk.scene().message)
    assert shell.confirmed == []
    await keys(desk, shell, "v")
    assert source.asked[-1].step == 12
    await keys(desk, shell, "J")
    assert f"step {desk.state.step}" in body(desk).split("\n")[0]
    assert "is over" not in body(desk)


async def test_orders_are_for_the_trial_that_is_shown(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.tui.filters import parse

    desk, shell, _, _ = await shown(recording, live=True)
    sent = []

    async def send(command: str, args: dict[str, object], *_: object, **__: object) -> None:
        sent.append((command, args))

    monkeypatch.setattr(desk.orders, "send", send)
    desk.selection.filter = parse("g:1")
    desk.selection.marked = {0, 1}
    desk.selection.marked_in = 12
    await keys(desk, shell, "r", "X", "x")
    group, trial = HELD
    assert sent == [
        ("retry", {"group": group, "trial": trial}),
        ("cancel_trial", {"group": group, "trial": trial}),
        ("cancel_group", {"group": group}),
    ]


async def test_help_and_back_change_nothing(recording: Path) -> None:
    desk, shell, _, source = await shown(recording, "v")
    asked = len(source.asked)
    await keys(desk, shell, "question_mark", "escape")
    assert "1 passed" in body(desk)
    assert len(source.asked) == asked
    await keys(desk, shell, "escape")
    assert desk.page.id == "run"


async def test_a_trial_of_an_earlier_step_can_be_read(recording: Path) -> None:
    desk, shell, _, source = opened(recording)
    show_trial(desk, 7, 1, 2)
    desk.tick()
    await shell.settle()
    text = body(desk)
    assert isinstance(desk.page, TrialPage)
    assert "g2/t3" in text
    assert "step 7, which is over" in text
    assert "I look at part 2." in text
    assert (source.asked[-1].step, source.asked[-1].try_) == (7, -1)


# --- tokens ---


async def test_tokens_of_each_call(recording: Path) -> None:
    desk, shell, _, source = await shown(recording, "c")
    text = body(desk)
    assert "call 3 of 3  6 tokens, log-prob mean -1.872, least -6.50" in text
    assert "I look at↵" in text
    assert "\\x1b[2Jpart-2" in text
    await keys(desk, shell, "comma")
    assert "call 2 of 3" in body(desk)
    assert source.asked[-1].call == 1
    await keys(desk, shell, "comma", "comma")
    assert "call 1 of 3" in body(desk)
    assert "no such call" in "".join(span.text for span in desk.scene().message)
    await keys(desk, shell, "full_stop", "enter")
    text = body(desk)
    assert "call 2 of 3" in text
    assert "     4     104    -6.5000  0.002  '\\x1b[2J'" in text
    assert "     3     103    -3.1000  0.045  '\\n'" in text
    await keys(desk, shell, "enter", "f")
    assert "call 3 of 3" in body(desk)


async def test_the_newest_call_is_shown_until_one_is_read(recording: Path) -> None:
    there = [2]
    desk, shell, clock, source = opened(recording, story(6, lambda: there[0]))
    phases = [e for e in source.record.journal.events() if isinstance(e, ev.TrialPhase)]
    event = next(e for e in phases if (e.step, e.phase) == (3, "agent"))
    source.seek(event.seq)
    show_trial(desk, 3, event.group, event.trial)
    await keys(desk, shell, "c")
    assert "call 2 of 2" in body(desk)
    there[0] = 3
    await tick(desk, shell, clock)
    assert "call 3 of 3" in body(desk)
    await keys(desk, shell, "j")
    there[0] = 4
    await tick(desk, shell, clock)
    assert "call 3" in body(desk)
    await keys(desk, shell, "G")
    assert "call 4 of 4" in body(desk)


def test_unlikely_tokens_differ_by_more_than_colour() -> None:
    from console.tui.panes.tokens import LEVELS, level

    found = [level(p) for p in (-0.1, -1.0, -5.0, float("nan"), float("-inf"), 0.5)]
    assert found == [LEVELS[0], LEVELS[1], LEVELS[2], LEVELS[2], LEVELS[2], LEVELS[2]]
    assert [("bold" in role, "reverse" in role) for role in LEVELS] == [(False, False), (True, False), (False, True)]


# --- searching, copying ---


async def test_search(recording: Path) -> None:
    desk, shell, _, _ = await shown(recording, "g", contents=story(40))
    shell.answers = ["PART-30.tar"]
    await keys(desk, shell, "slash")
    assert "match 1 of 1" in body(desk, 100, 24)
    assert "tar cf part-30.tar /data" in body(desk, 100, 24)
    await keys(desk, shell, "escape")
    assert desk.page.id == "trial"
    assert "match" not in body(desk, 100, 24).split("\n")[0]
    shell.answers = ["nowhere"]
    await keys(desk, shell, "slash", "n")
    assert "not found: nowhere" in "".join(span.text for span in desk.scene().message)
    shell.answers = [None]
    await keys(desk, shell, "slash")
    assert desk.page.text.needle == "nowhere"


async def test_what_is_copied(recording: Path) -> None:
    desk, *_ = await shown(recording)
    page_text(desk, 100, 24)
    copied = desk.page.yank_text()
    assert "g3/t5" in copied.split("\n")[0]
    assert "tar cf part-2.tar /data" in copied


# --- the real content of a run directory ---


async def test_content_of_a_run_directory(recording: Path, tmp_path: Path) -> None:
    import shutil

    from capture_files import CallsFile

    from console.tui.replay import ReplaySource

    run_dir = tmp_path / "run"
    shutil.copytree(recording, run_dir)
    file = CallsFile(run_dir, "s12.g2.t4.y0")
    for n in range(2):
        pieces = ["ans", f"wer {n}"]
        file.call([("user", f"question {n}")], f"answer {n}", logprobs=[-0.1, -4.0], pieces=pieces)
    source = ReplaySource(RunRecord(run_dir))
    source.playing = False
    play_to_hold(source, recording)
    desk, shell, _ = desk_on(source)
    await keys(desk, shell, "f3")
    assert "question 0" in body(desk)
    assert "answer 1" in body(desk)
    await keys(desk, shell, "c")
    assert "call 2 of 2  2 tokens" in body(desk)


async def test_content_from_the_disk_when_the_engine_is_gone(recording: Path, tmp_path: Path) -> None:
    import msgspec

    from console.records.manifest import read_manifest
    from console.tui.source import Link

    desk, shell, _, source = opened(recording, live=True)
    source.broken = "no connection"
    source.view.state.run_dir = str(recording)
    source.view.state.run_id = read_manifest(recording).run_id
    source.link = lambda: Link("dead")  # type: ignore[method-assign]
    await keys(desk, shell, "f3")
    assert "not answered" not in body(desk)
    assert "no calls of this step were captured" in body(desk)
    source.view.state = msgspec.structs.replace(source.view.state, run_id="another")
    await keys(desk, shell, "v")
    page = desk.page
    assert isinstance(page, TrialPage)
    page._asker._disk = None
    page._feeds.clear()
    await keys(desk, shell, "l")
    assert "not answered: no connection" in body(desk)


@pytest.mark.parametrize(("phase", "says"), [("agent", "no calls yet"), ("done", "no calls of this step were")])
async def test_a_running_trial_without_captured_calls_has_none_yet(recording: Path, phase: str, says: str) -> None:
    def nothing(ask: Ask) -> Content:
        return Content(id=ask.id, kind=ask.kind, note="no calls of this step were captured")

    desk, shell, _, source = opened(recording, nothing, live=True)
    await keys(desk, shell, "f3")
    source.view.state.groups[2].trials[4].phase = phase
    await keys(desk, shell, "c")
    assert says in body(desk)


@pytest.mark.parametrize("retryable", [True, False])
async def test_what_may_be_done_about_a_held_trial_is_no_contradiction(recording: Path, retryable: bool) -> None:
    desk, shell, _, source = opened(recording, live=True)
    source.view.state.groups[2].trials[4].retryable = retryable
    await keys(desk, shell, "f3", "b")
    text = " ".join(body(desk).split())
    assert ("unless it is retried or cancelled" in text) == retryable
    assert ("unless its group or the trial is cancelled" in text) != retryable


@pytest.mark.parametrize("segments", [0, 3])
async def test_why_says_what_was_refused(recording: Path, segments: int) -> None:
    desk, shell, _, source = opened(recording, live=True)
    trial = source.view.state.groups[2].trials[4]
    trial.segments, trial.bridged, trial.unbridged, trial.excluded = segments, 0, {}, {}
    await keys(desk, shell, "f3", "b")
    assert "refused" not in body(desk)
    trial.refused = {"overflow": 1, "request": 60}
    assert "refused   request 60, overflow 1" in body(desk)
    assert ("3 segments" in body(desk)) == bool(segments)


async def test_an_engine_that_answers_nonsense_is_not_asked_in_a_circle(recording: Path) -> None:
    def nonsense(ask: Ask) -> Content:
        return Content(id=ask.id, kind=ask.kind, more=True, calls=9, call=0 if ask.kind == "tokens" else -1)

    desk, shell, clock, source = await shown(recording, "c", contents=nonsense)
    before = len(source.asked)
    assert before < 5
    for _ in range(8):
        await tick(desk, shell, clock, 0.25)
    assert len(source.asked) - before <= 8
