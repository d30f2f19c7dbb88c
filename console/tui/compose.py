"""The run page as lines, pane by pane: the scene poured into the layout."""

from __future__ import annotations

from collections.abc import Callable

from console.tui.layout import PANES, Box, Layout, arrange
from console.tui.panes import bench, capture, events, glance, groups, steps, trials
from console.tui.panes.frame import framed, ruled
from console.tui.picture import Scene, shown_trials
from console.tui.text import Line

Title = Callable[[Scene], tuple[str, str]]
Body = Callable[[Scene, int, int], list[Line]]

__all__ = ["PANES", "compose", "layout_for"]


def layout_for(scene: Scene, region: Box) -> Layout:
    """The layout that fits what the scene has to show."""
    selection = scene.selection
    most = max((len(shown_trials(selection, g, scene.now)) for g in scene.groups), default=0)
    return arrange(region, len(scene.groups), most, len(scene.state.lines), selection.tree, selection.zoom, scene.bench)


def compose(scene: Scene, layout: Layout) -> dict[str, list[Line]]:
    """The lines of every pane in the layout, each as wide and at most as high as its box."""
    return {name: _section(scene, name, box, layout) for name, box in layout.boxes.items()}


def _section(scene: Scene, name: str, box: Box, layout: Layout) -> list[Line]:
    title, body = _SECTIONS[name]
    if name == "groups" and layout.tree:
        title, body = groups.tree_title, groups.tree_rows
    elif name == "detail" and "tail" not in layout.boxes:
        body = _detail_with_tail
    focused = scene.selection.focus == name or (name == "groups" and layout.tree and scene.selection.focus == "trials")
    column = next((c for c in layout.columns if name in c), ())
    if not layout.wide:
        lines = body(scene, box.width, box.height - 1)
        return ruled(title(scene), lines, box.width, box.height, scene.marks, focused)
    first, last = name == column[0], name == column[-1]
    lines = body(scene, box.width - 2, box.height - 1 - last)
    return framed(title(scene), lines, box.width, box.height, scene.marks, focused, first, last)


def _detail_with_tail(scene: Scene, cells: int, rows: int) -> list[Line]:
    return glance.detail_lines(scene, cells, rows, with_tail=True)


_SECTIONS: dict[str, tuple[Title, Body]] = {
    "groups": (groups.groups_title, groups.group_rows),
    "trials": (trials.trials_title, trials.trial_rows),
    "detail": (glance.detail_title, glance.detail_lines),
    "tail": (glance.tail_title, glance.tail_lines),
    "steps": (steps.steps_title, steps.step_lines),
    "events": (events.events_title, events.event_lines),
    "capture": (capture.capture_title, capture.capture_lines),
    "bench": (bench.bench_title, bench.bench_lines),
    "reward": (steps.reward_title, steps.reward_plot),
    "loss": (steps.loss_title, steps.loss_plot),
    "mix": (steps.outcome_mix_title, steps.outcome_mix_lines),
    "policy": (steps.policy_title, steps.policy_lines),
    "time": (lambda scene: ("Step time", ""), steps.time_lines),
}
