"""What the panes show of a gateway, of sandboxes, and of what a resume used again."""

from __future__ import annotations

import pytest
from run_scene import T0, scene

from console.journal import events as ev
from console.tui.panes.capture import capture_lines
from console.tui.panes.figures import entries, figures_text
from console.tui.panes.glance import detail_lines
from console.tui.panes.groups import group_rows
from console.tui.panes.steps import steps_title
from console.tui.panes.trials import trial_rows
from console.tui.picture import Scene
from console.tui.text import plain

PROFILE = ev.GatewayProfiled(
    profile="mi\x1b[31mles", how="it has\nengine_load", sdk="0.26", translated=[f"change {n}" for n in range(12)],
    context_window=65_529, max_rank=16, modules=["attn", "mlp"], slots=1, lease=300.0, expiring=False,
)  # fmt: skip


def pane(made: Scene, cells: int = 110, rows: int = 60) -> str:
    lines = capture_lines(made, cells, rows)
    assert len(lines) <= rows and all(len(plain(one)) <= cells for one in lines)
    text = "\n".join(plain(one).rstrip() for one in lines)
    assert "\x1b" not in text
    return text


def test_the_gateway_as_it_was_found() -> None:
    text = pane(scene(PROFILE))
    assert "profile  miles, SDK 0.26, window 65,529, rank 16, attn+mlp, 1 slot, lease 5:00, checkpoints do not" in text
    assert "found by it has engine_load" in text
    assert "changed  change 0" in text and "change 7" in text and "change 8" not in text
    assert "profile" not in pane(scene()) and "found by" not in pane(scene())
    assert "profile  embedded, SDK current\n" in pane(scene(ev.GatewayProfiled(profile="embedded"))) + "\n"


def test_session_and_operations() -> None:
    pending = {"sample": 12, "optim_step": 1, **{f"odd{n}": 1 for n in range(9)}}
    health = ev.GatewayHealth(
        reachable=True, heartbeat_age=4.0, lease_left=296.0, pending=pending,
        oldest={"sample": 190.0, "optim_step": 4000.0},
    )  # fmt: skip
    text = pane(scene(health))
    assert "session  heartbeat 0:04 ago, lease 4:56 left" in text
    assert "pending  optim step 1 (1:06:40), sample 12 (3:10), odd0 1 (0:00)" in text and "odd4" not in text
    quiet = pane(scene(ev.GatewayHealth(reachable=True)))
    assert "session" not in quiet and "pending" not in quiet


def test_troubles_come_first_and_are_whole_on_narrow_screens() -> None:
    wait = ev.GatewayWaiting(reason="a model slot of the gateway: all are taken", until=T0 + 260.0)
    assert pane(scene(wait), 36).startswith(" waits for a model slot of the\n gateway: free in 4:10\n")
    reason = "a long story, " * 40
    paused = scene(ev.GatewayHealth(reachable=True, queue="paused_capacity", queue_reason=reason, backoff=2.0))
    lines = pane(paused, 36).split("\n")
    assert lines[0] == " queue paused, it has no capacity:"
    assert lines[3] == " samples held back after HTTP 429,", "of one trouble three rows at most"


def test_sandboxes_in_figures() -> None:
    boxes = ev.SandboxStats(live=5, creating=2, orphaned=["x"], oldest=T0 - 3590.0, hours=12.5, cost=3.456)
    assert "creating       2  orphaned 1  oldest 1:00:00  hours 12.5  cost ~$3.46" in pane(scene(boxes))
    assert "creating" not in pane(scene(ev.SandboxStats(live=5)))
    free = pane(scene(ev.SandboxStats(live=5, hours=0.5)))
    assert "creating       0  orphaned 0  oldest --  hours .50" in free and "cost" not in free


def finished(trial: int, **more: object) -> ev.TrialFinished:
    return ev.TrialFinished(**({"step": 0, "group": 0, "trial": trial, "outcome": "completed", "reward": 1.0} | more))  # type: ignore[arg-type]


def test_trials_that_count_again_are_marked_wherever_they_are_shown() -> None:
    used = scene(finished(0, reused=True), finished(1))
    assert plain(group_rows(used, 100, 4)[0]).rstrip().endswith("1 reused")
    first, second = (plain(row) for row in trial_rows(used, 80, 4))
    assert first.rstrip().endswith("r 1.00  reused") and "reused" not in second
    assert any("and counts again" in plain(row) for row in detail_lines(used, 80, 30))
    cancelled = scene(finished(0, outcome="cancelled", cause="operator", reward=None, reused=True))
    assert "operator  reused" in plain(trial_rows(cancelled, 80, 4)[0])
    retried = scene(
        finished(0, reused=True), ev.TrialRetried(step=0, group=0, trial=0, try_=1, by="ada"), finished(0, try_=1)
    )
    assert "reused" not in plain(trial_rows(retried, 80, 4)[0]), "a later try really ran"


@pytest.mark.parametrize(
    ("row", "title", "entry"),
    [
        (ev.StepFinished(step=4, replayed=True), "last step 4, applied again", "applied again"),
        (ev.StepFinished(step=4, recovered=True), "last step 4, from the engine before", "recovered"),
        (ev.StepFinished(step=4), "last step 4", None),
    ],
)
def test_steps_of_a_resume_are_marked(row: ev.StepFinished, title: str, entry: str | None) -> None:
    assert steps_title(scene(row)) == ("Steps", title)
    marks = [e.name for e in entries(row) if e.name in ("applied again", "recovered")]
    assert marks == ([entry] if entry else [])
    assert (f"{entry}\tyes" in figures_text(row)) is bool(entry)
