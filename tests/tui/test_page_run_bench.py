"""The console on a benchmark: tasks and attempts, its pane of figures, what keys do, what is refused and why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from made_bench import BenchPlan, make_bench
from page_bench import AskedSource, desk_on, keys, story
from walking import LiveRecording

from console.bench.running.options import BenchOptions
from console.commands import bench_start, start
from console.errors import UsageError
from console.headless.status import status_line, status_lines
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.bench_words import left_text
from console.state.benchmark import infra_excluded, seconds_left
from console.tui.desk import Desk
from console.tui.farewell import exit_code, farewell
from console.tui.frame import as_text, paint
from console.tui.glyphs import kind_of
from console.tui.operating import parse_tunables
from console.tui.replay import ReplaySource
from console.tui.saving import save
from console.tui.source import Link
from console.tui.text import plain
from console.tui.widgets.pane import to_ascii

SIZES = ((80, 24), (120, 40), (200, 60))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """89 tasks, five attempts each, 120 trials after its start; sandboxes failed, and the limit was halved."""
    path = tmp_path_factory.mktemp("bench") / "run"
    make_bench(path, BenchPlan())
    return path


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One attempt a task, just before the limit is halved."""
    path = tmp_path_factory.mktemp("crowded") / "run"
    make_bench(path, BenchPlan(attempts=1, ended=72))
    return path


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("over") / "run"
    make_bench(path, BenchPlan(tasks=24, attempts=1, ended=None, over=True, crowded=0.0, stood=0))
    return path


def live(run: Path) -> tuple[Desk, object]:
    """A desk on a live run as it stands at the recording's end."""
    record = RunRecord(run)
    _, _, clock = desk_on(ReplaySource(record))
    desk, shell, _ = desk_on(LiveRecording(record, clock, record.journal.last_seq))
    return desk, shell


def screen(desk: Desk, width: int, height: int) -> list[str]:
    painted = paint(desk, width, height, None)
    return as_text(painted, width, height).split("\n")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", ["bench", "crowded", "over"])
def test_snapshots(request: pytest.FixtureRequest, name: str, size: tuple[int, int], matches_snapshot) -> None:
    desk, _ = live(request.getfixturevalue(name))
    lines = screen(desk, *size)
    assert len(lines) == size[1]
    matches_snapshot(f"run-{name}-{size[0]}x{size[1]}", lines)


def test_ascii_has_nothing_else(bench: Path) -> None:
    record = RunRecord(bench)
    desk, _, _ = desk_on(ReplaySource(record, at_end=True), ascii_only=True)
    lines = screen(desk, 120, 40)
    assert "P 42" in "\n".join(lines) and all(to_ascii(line).isascii() for line in lines)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_nothing_of_a_training_is_told(bench: Path, size: tuple[int, int]) -> None:
    text = "\n".join(screen(live(bench)[0], *size)).lower()
    for word in ("step ", "ppo", "capture", "no-logprob", "policy v", "reward/step", "checkpoint", "group", "gateway"):
        assert word not in text, word


def test_figures_are_those_of_the_state(bench: Path) -> None:
    desk, _ = live(bench)
    text = "\n".join(screen(desk, 120, 40))
    b = desk.state.bench
    assert f"{b.done}/445" in text and "3 of 4 (job 8)" in text and "infra    0 of the last 20" in text
    assert "42/117 35.9 %" in text and "infra-excluded" in text and "42/131 32.1 %" in text and "error-aware" in text
    assert "4, by policy: 60 % of the" in text and "$5.05" in text and "left     9.8 h (9.1 to 10.5 h)" in text


def test_an_agent_at_work_is_never_called_stalled(bench: Path) -> None:
    desk, _ = live(bench)
    at_work = [(g, t) for g in desk.state.groups.values() for t in g.trials if t.phase == "agent"]
    assert len(at_work) == 3 and all(kind_of(t, desk.state.ts + 9000) == "running" for _, t in at_work)
    desk.selection.group, desk.selection.trial, desk.selection.pinned = at_work[0][0].group, at_work[0][1].trial, True
    text = "\n".join(screen(desk, 120, 40))
    assert "agent at work" in text and "stalled" not in text and "idle" not in text


async def test_the_pane_is_focused_zoomed_and_scrolled_past(bench: Path) -> None:
    desk, shell = live(bench)
    screen(desk, 120, 40)
    for key in ("5", "6"):
        await keys(desk, shell, "1", key)
        assert desk.selection.focus == "bench"
    await keys(desk, shell, "z")
    lines = screen(desk, 80, 24)
    text = "\n".join(lines)
    assert "error-aware: every failure is 0" in text and "Tasks" not in text
    await keys(desk, shell, "escape")
    screen(desk, 120, 40)
    await keys(desk, shell, "tab")
    assert desk.selection.focus == "trials" and not desk.selection.zoom


async def test_lists_are_scrolled_filtered_and_gone_to(bench: Path) -> None:
    desk, shell = live(bench)
    screen(desk, 80, 24)
    await keys(desk, shell, "G")
    assert desk.scene().group is desk.scene().groups[-1]
    assert "above" in "\n".join(screen(desk, 80, 24))
    shell.answers = ["class:infra"]
    await keys(desk, shell, "slash")
    found = desk.scene().groups
    assert len(found) == 14 and all(any(t.outcome == "infrastructure" for t in g.trials) for g in found)
    shell.answers = ["no-such-task"]
    await keys(desk, shell, "escape", "slash")
    assert "no task passes the filter" in "\n".join(screen(desk, 80, 24))
    shell.answers = ["trial g70/t1"]
    await keys(desk, shell, "escape", "colon")
    scene = desk.scene()
    assert (scene.group.group, scene.trial.trial) == (69, 0)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("x", "Harbor cannot cancel one trial of a job; s begins no more"),
        ("X", "Harbor cannot cancel one trial"),
        ("r", "quarterdeck bench mop-up"),
        ("R", "quarterdeck bench mop-up"),
        ("C", "a benchmark has no training steps"),
        ("Q", "a benchmark has no training steps"),
        ("m", "a benchmark has no training steps"),
        ("c", "a benchmark's tokens are not captured"),
        ("space", "cannot be cancelled one by one"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_reason(bench: Path, key: str, why: str) -> None:
    desk, shell = live(bench)
    await keys(desk, shell, key)
    assert why in plain(desk.scene().message) and desk.page.id == "run" and not desk.selection.marked
    assert not shell.confirmed


def test_keys_that_make_no_sense_are_neither_shown_nor_in_the_help(bench: Path) -> None:
    desk, _ = live(bench)
    labels = dict(desk.key_labels())
    assert not {"x", "r", "m"} & labels.keys() and {"s", "p", "d"} <= labels.keys()
    offered = {action.id: action for action in desk.offered()}
    assert "cancel_group" not in offered and "trained" not in offered["stop_after_step"].help
    assert "at work" in offered["tune"].help


async def test_concurrency_is_what_can_be_set(bench: Path) -> None:
    desk, shell = live(bench)
    shell.answers = ["concurrency=2"]
    await keys(desk, shell, "equals_sign")
    assert shell.confirmed or "concurrency" in plain(desk.scene().message)
    assert parse_tunables("concurrency=2", desk.state.tunables) == {"concurrency": 2}
    with pytest.raises(UsageError, match="no 'parallel'; there are concurrency"):
        parse_tunables("parallel=2", desk.state.tunables)
    with pytest.raises(UsageError, match="no 'concurrency'"):
        parse_tunables("concurrency=2", {"parallel": 4.0})


def test_nothing_is_promised_of_an_engine_that_is_gone_or_a_job_that_is_done(bench: Path, over: Path) -> None:
    for run, link in ((bench, Link("dead")), (over, Link("ok"))):
        desk, _ = live(run)
        desk.source.link = lambda link=link: link
        desk.state.status, desk.state.exit_code = "live", None
        lines = screen(desk, 120, 40)
        assert "left" not in lines[0] and not any("left     9.8" in line for line in lines)


def test_of_a_dead_benchmark_is_told_how_it_goes_on(bench: Path) -> None:
    desk, _ = live(bench)
    desk.source.link = lambda: Link("dead")
    for size in SIZES:
        text = "\n".join(screen(desk, *size))
        assert "bench run JOB --continue" in text and "quarterdeck train" not in text


def test_what_was_at_work_when_the_engine_died_is_told_so(bench: Path) -> None:
    desk, _ = live(bench)
    desk.source.link = lambda: Link("dead")
    group, trial = next((g, t) for g in desk.state.groups.values() for t in g.trials if t.phase == "agent")
    desk.selection.group, desk.selection.trial, desk.selection.pinned = group.group, trial.trial, True
    for size in SIZES:
        text = "\n".join(screen(desk, *size))
        assert "3 when the engine died" in text and "at work 3 of" not in text and "work  3 of" not in text
        assert "was RUNNING" in text and "left     9.8" not in text
    assert "agent at work when the engine died" in text
    row = next(one for one in screen(desk, 120, 40) if "▸ agent  " in one)
    assert "when the engine died" in row and " for " not in row


@pytest.mark.parametrize(
    ("status", "told", "ended", "code"),
    [
        ("dead", "", None, 7), ("dead", "the socket is gone", None, 7), ("ok", "", None, 0), ("lost", "", None, 0),
        ("ended", "", 3, 3), ("dead", "", 0, 0),
    ],
)  # fmt: skip
def test_the_command_that_started_it_ends_with_its_code(
    bench: Path, status: str, told: str, ended: int | None, code: int
) -> None:
    source = live(bench)[0].source
    source.link = lambda: Link(status, detail=told)
    source.view.state.exit_code = ended
    assert exit_code(source) == code


def test_who_starts_a_benchmark_says_what_it_left_and_the_console_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    started = SimpleNamespace(socket="s", run_dir="r", wait=lambda: None)
    monkeypatch.setattr(bench_start, "begin_benchmark", lambda *_, owned: started)
    monkeypatch.setattr(start, "attach", lambda *_, **words: asked.append(words) or 0)
    options = BenchOptions(job={"jobs_dir": "/j", "job_name": "n"}, run_dir="/r")
    assert bench_start.watch_benchmark(options, "console") == 0
    assert asked[0]["told_after"] is True


def test_the_farewell_names_what_comes_next(bench: Path, over: Path) -> None:
    source = live(over)[0].source
    assert farewell(source) == (
        "run tb21-0011 finished, exit 0: passed 8/24 (33.3 %) infra-excluded; "
        "quarterdeck bench tally /runs/jobs/tb21-full has more"
    )
    source = live(bench)[0].source
    source.view.state.status, source.view.state.exit_code, source.view.state.reason = "stopped", 3, "by ada"
    text = farewell(source)
    assert text.startswith(
        "run tb21-0011 stopped, exit 3: by ada; passed 42/117 (35.9 %) infra-excluded, 14 left out; "
    )
    assert text.endswith("bench mop-up /runs/jobs/tb21-full runs again what infrastructure lost")
    told = farewell(source, told_after=True)  # its number is the job directory's, which the command says next
    assert "mop-up" not in told and told.endswith("quarterdeck bench tally /runs/jobs/tb21-full has more")
    source.view.state.bench.parent = "/runs/jobs/first"
    assert "bench mop-up /runs/jobs/first runs again" in farewell(source)
    source.view.state.bench.parent = ""
    source.view.state.status, source.view.state.exit_code = "live", None
    source.link = lambda: Link("dead")
    text = farewell(source)
    assert "quarterdeck bench run JOB --continue goes on with the job" in text
    assert "quarterdeck bench mop-up /runs/jobs/tb21-full" in text and "quarterdeck train" not in text
    told = farewell(source, told_after=True)
    assert "--continue goes on with the job; quarterdeck replay" in told and "mop-up" not in told


def test_time_left_is_one_figure_on_every_screen(bench: Path) -> None:
    desk, _ = live(bench)
    now = desk.now()
    text = left_text(seconds_left(desk.state, now))
    head = screen(desk, 120, 40)
    told = status_lines("live", desk.source.view, now)
    assert f"left {text}" in head[0] and any(f"; left {text}" in line for line in told)
    assert f"left     {text}" in "\n".join(head) and f"left {text}" in "\n".join(screen(desk, 80, 24))
    assert f"; left {text}" in status_line(desk.state, now)
    later, then = left_text(seconds_left(desk.state, now + 7200)), now + 7200
    assert later != text and any(f"; left {later}" in line for line in status_lines("live", desk.source.view, then))


def test_what_counts_is_one_denominator(bench: Path) -> None:
    desk, _ = live(bench)
    held = next(t for g in desk.state.groups.values() for t in g.trials if t.outcome == "completed")
    held.outcome, held.reward, held.cause = "agent_failure", None, "crash"  # counts as 0, and is not left out
    passed = infra_excluded(desk.state)
    for size in SIZES:
        text = "\n".join(screen(desk, *size))
        assert f"counted {passed.of}/445" in text and f"/{passed.of} " in text and "graded" not in text
        assert f"left out {passed.left_out}" in text


@pytest.mark.parametrize("latched", [False, True])
async def test_the_ways_to_stop_are_a_benchmarks(bench: Path, latched: bool) -> None:
    desk, shell = live(bench)
    desk.state.stop_requested = "after_step" if latched else ""
    asked: list[str] = []

    async def choose(title: str, options: list[tuple[str, str, str]]) -> str:
        asked.extend(label for _, label, _ in options)
        return "stop_after_step"

    shell.choose = choose
    await keys(desk, shell, "ctrl+c")
    assert any("begin no more trials" in one for one in asked) and not any("step" in one for one in asked)
    assert "step" not in plain(desk.scene().message).replace("stop_after_step", "")
    labels = dict(desk.key_labels())
    assert labels["s"] == ("take stop back" if latched else "begin no more")
    assert not any("step" in action.help for action in desk.offered() if action.id in ("interrupt", "stop_after_step"))


async def test_config_and_alarms_have_what_a_benchmark_has(bench: Path) -> None:
    desk, shell = live(bench)
    desk.state.thresholds = {"bench_infra_window": 20.0, "bench_infra_share": 0.3}
    await keys(desk, shell, "i")
    text = "\n".join(screen(desk, 120, 60))
    assert "445: 89 tasks, 5 attempts each" in text and "endpoint" in text and "Harbor tries nothing again" in text
    for word in ("steps", "batch", "groups of", "drop", "gateway"):
        assert word not in text, word
    await keys(desk, shell, "L")
    text = "\n".join(screen(desk, 120, 80))
    assert "bench infra share" in text and ".3" in text and "progress seconds" in text and "disk free gb" in text
    for word in ("gateway", "Tinker", "KV cache", "checkpoint", "entropy", "clip", "KL", "bridge", "group"):
        assert word not in text, word


def test_no_figure_is_bare_and_no_time_is_told_twice(bench: Path) -> None:
    desk, _ = live(bench)
    group, trial = next((g, t) for g in desk.state.groups.values() for t in g.trials if t.phase == "agent")
    desk.selection.group, desk.selection.trial, desk.selection.pinned = group.group, trial.trial, True

    def row() -> str:
        return next(one for one in screen(desk, 80, 24) if "▸ agent  " in one)

    assert "164k tok  " in "\n".join(screen(desk, 80, 24))
    assert row().split()[-1] == "07:18" and " for " not in row()
    trial.started -= 60.0  # its sandbox took a minute: then both times say something
    assert row().split()[-3:] == ["for", "07:17", "08:18"]
    done = next(t for t in group.trials if t.phase == "done")
    desk.selection.trial = done.trial
    done.seconds = {"environment": 0.3, "agent": 99.5, "total": 99.8}
    text = "\n".join(screen(desk, 200, 60))
    assert "<1s" in text and "01:39" in text and "99.5s" not in text and "300ms" not in text


def test_what_is_saved_as_csv_is_a_row_a_trial(over: Path, tmp_path: Path) -> None:
    desk, _ = live(over)
    save(desk, tmp_path / "shown.csv")
    head, *rows = (tmp_path / "shown.csv").read_text().splitlines()
    assert head.startswith("trial,task,attempt,try,class,cause") and len(rows) == 24 and "ppo" not in head


def test_equal_attempts_are_no_lack_of_signal(bench: Path) -> None:
    desk, _ = live(bench)
    group = next(g for g in desk.state.groups.values() if sum(t.phase == "done" for t in g.trials) == 2)
    group.trials, group.reward_std, group.zero_variance = group.trials[:2], 0.0, True
    text = "\n".join(screen(desk, 120, 40))
    assert "sd 0 " in text and "sd 0=" not in text and "sd 0  =" not in text and "no signal" not in text


def test_an_alarm_is_told_with_its_advice(crowded: Path, tmp_path: Path) -> None:
    from console.state.alarms import alarms
    from console.state.reduce import apply

    desk, _ = live(crowded)
    (found,) = alarms(desk.source.view, desk.state.ts).values()
    apply(desk.source.view, ev.AlarmOpened(ts=desk.state.ts, key=found.key, level=found.level, text=found.text,
                                           remedy=found.remedy, action=found.action))  # fmt: skip
    text = "\n".join(screen(desk, 120, 40))
    assert "of the last 20 trials are infrastructure failures (SandboxError" in text
    assert "set concurrency=4" in found.remedy


async def test_the_trial_page_speaks_of_a_benchmark(bench: Path) -> None:
    source = AskedSource(RunRecord(bench), story(), live=True)
    desk, shell, _ = desk_on(source)
    source.play_to(RunRecord(bench).journal.last_seq)
    desk.selection.group, desk.selection.trial, desk.selection.pinned = 69, 0, True
    await keys(desk, shell, "f3", "b")
    text = "\n".join(screen(desk, 120, 40))
    assert "not graded" in text and "a mop-up runs it again" in text and "train" not in text and "turns" not in text


def test_a_replay_is_as_the_live_run(over: Path) -> None:
    record = RunRecord(over)
    desk, _, _ = desk_on(ReplaySource(record, at_end=True))
    text = "\n".join(screen(desk, 120, 40))
    assert "trials 24/24 finished, exit 0" in text and "│ left" not in text and "at work  " not in text
    assert "all trials have ended" in text
