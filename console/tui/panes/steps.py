"""Is it learning: reward and PPO loss per step with the numbers that go with them, and how a step's time is spent."""

from __future__ import annotations

from console.journal.events import StepFinished
from console.tui.axes import Look
from console.tui.columns import columns_of
from console.tui.glyphs import spark
from console.tui.picture import ENDED, Scene
from console.tui.plot import chart_lines, chart_title
from console.tui.series import CHART, Getter, mixed, other_seconds
from console.tui.text import Line, Span, fit, line, number, short_time


def step_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """The narrow screen's section: sparks with the last value and its change, then the policy's figures."""
    history = scene.view.history.rows
    if not history:
        return [line(Span("  no step has finished yet", "muted"))]
    last = history[-1]
    size = max(6, min(60, (cells - 58) // 2))
    out = [
        line(
            *_sparked(scene, "reward", lambda r: r.reward_mean, size, 0.0, 1.0, number(last.reward_mean)),
            Span(f" {_change(history, lambda r: r.reward_mean):<7}", "muted"),
            *_sparked(scene, "loss", lambda r: r.ppo_loss, size, None, None, number(last.ppo_loss, 2)),
            *_figure("kl", number(last.kl_sample_train_v1, 4)),
            *_figure("ent", number(last.entropy, 2)),
        ),
        line(
            *_sparked(scene, "mixed", mixed, size, 0.0, 1.0, number(mixed(last), 2)),
            Span(" " * 8),
            *_sparked(scene, "time", lambda r: r.seconds_total, size, 0.0, None, short_time(last.seconds_total)),
            *_figure("clip", number(last.clip_fraction)),
            *_figure("grad", number(last.grad_norm, 2)),
        ),
        line(
            *_figure("  sd    ", number(last.reward_std)),
            *_figure("lr", number(last.learning_rate, 2)),
            *_figure("policy", f"v{last.policy_version}"),
        ),
        line(
            *_figure("  rollout", short_time(last.seconds_rollout)),
            *_figure("train", short_time(last.seconds_train)),
            *_figure("save", short_time(last.seconds_save)),
            *_figure("trained tokens", "--" if last.tokens_trained is None else f"{last.tokens_trained:,}"),
        ),
    ]
    return [fit(one, cells) for one in out[:rows]]


def steps_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    rows = scene.view.history.rows
    return "Steps", f"last step {rows[-1].step}{again(rows[-1])}" if rows else ""


def again(row: StepFinished) -> str:
    """What is special about a step after a resume; empty for nothing."""
    return ", applied again" if row.replayed else ", from the engine before" if row.recovered else ""


def _sparked(
    scene: Scene, name: str, get: Getter, size: int, low: float | None, high: float | None, value: str
) -> list[Span]:
    values = [get(row) for row in scene.view.history.rows[-size:]]
    if high is not None:
        known = [v for v in values if v is not None]
        high = max([high, *known])
    return [
        Span(f"  {name:<6} ", "muted"),
        Span(spark(values, size, scene.ascii, low, high), "accent"),
        Span(f" {value:>5}"),
    ]


def _change(history: list[StepFinished], get: Getter) -> str:
    if len(history) < 2:
        return ""
    a, b = get(history[-2]), get(history[-1])
    return "" if a is None or b is None else f"({'+' if b >= a else ''}{number(b - a)})"


def _figure(name: str, value: str) -> list[Span]:
    return [Span(f" {name} ", "muted"), Span(value)]


def _look(scene: Scene) -> Look:
    """How the run page looks at its plots: no cursor, the policy's step marked."""
    state = scene.state
    return Look(policy=state.step, grows=state.status not in ENDED, ascii=scene.ascii)


def _plot(scene: Scene, name: str, cells: int, rows: int) -> list[Line]:
    return chart_lines(columns_of(scene.view), CHART[name], _look(scene), cells, rows)


def reward_plot(scene: Scene, cells: int, rows: int) -> list[Line]:
    """Mean reward over steps with its spread, from 0 to 1 (wider when rewards are)."""
    return _plot(scene, "reward", cells, rows)


def reward_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    return "Reward  mean", chart_title(columns_of(scene.view), CHART["reward"], _look(scene))[1]


def loss_plot(scene: Scene, cells: int, rows: int) -> list[Line]:
    """PPO loss over steps."""
    return _plot(scene, "loss", cells, rows)


def loss_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    return chart_title(columns_of(scene.view), CHART["loss"], _look(scene))


def outcome_mix_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """What became of the trials of each step, as stacked bars."""
    return _plot(scene, "outcomes", cells, rows)


def outcome_mix_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    return chart_title(columns_of(scene.view), CHART["outcomes"], _look(scene))


def policy_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """KL, clip fraction, entropy, gradient norm: the last value and its past."""
    history = scene.view.history.rows
    last = history[-1] if history else StepFinished(step=0)
    size = max(6, cells - 19)

    def row(name: str, get: Getter, digits: int = 3) -> Line:
        values = [get(r) for r in history[-size:]]
        return line(
            Span(f" {name:<8}", "muted"),
            Span(f"{number(get(last), digits):>7}  "),
            Span(spark(values, size, scene.ascii), "accent"),
        )

    return [
        row("kl", lambda r: r.kl_sample_train_v1),
        row("clip", lambda r: r.clip_fraction),
        row("entropy", lambda r: r.entropy),
        row("mixed", mixed, 2),
        row("grad", lambda r: r.grad_norm, 2),
    ][:rows]


def policy_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    rows = scene.view.history.rows
    return "Policy", "" if not rows or rows[-1].learning_rate is None else f"lr {number(rows[-1].learning_rate, 2)}"


def time_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """How the last step's time was spent, and the time of the steps before."""
    history = scene.view.history.rows
    if not history:
        return [line(Span(" no step has finished yet", "muted"))]
    last = history[-1]
    parts = [("rollout", last.seconds_rollout), ("train", last.seconds_train), ("save", last.seconds_save)]
    if rows > len(parts) + 1:
        parts.append(("other", other_seconds(last)))
    longest = max([v for _, v in parts if v is not None], default=0.0)
    size = max(6, cells - 19)
    out = []
    for name, value in parts:
        bar = 0 if not value or longest <= 0 else max(1, round(size * value / longest))
        out.append(
            line(
                Span(f" {name:<8}", "muted"),
                Span(f"{short_time(value):>7}  "),
                Span(scene.marks.full * bar, "accent"),
                Span(scene.marks.light * (size - bar), "rule"),
            )
        )
    values = [r.seconds_total for r in history[-size:]]
    out.append(
        line(
            Span(f" {'step':<8}", "muted"),
            Span(f"{short_time(last.seconds_total):>7}  "),
            Span(spark(values, size, scene.ascii, low=0.0), "accent"),
        )
    )
    return out[:rows]
