"""The run page as lines, pane by pane: the scene poured into the layout."""

from __future__ import annotations

from collections.abc import Callable

from console.tui.layout import Box, Layout, arrange
from console.tui.panes import events, groups, header, steps
from console.tui.panes.frame import framed, ruled
from console.tui.picture import Scene
from console.tui.text import Line

Title = Callable[[Scene], tuple[str, str]]
Body = Callable[[Scene, int, int], list[Line]]

PANES: tuple[str, ...] = ("groups", "trials", "steps", "events", "capture", "reward", "loss", "policy", "time")


def layout_for(scene: Scene, region: Box) -> Layout:
    """The layout that fits what the scene has to show."""
    trials = max((len(g.trials) for g in scene.groups), default=0)
    return arrange(region, len(scene.groups), trials)


def compose(scene: Scene, layout: Layout) -> dict[str, list[Line]]:
    """The lines of every pane in the layout, each as wide and at most as high as its box."""
    return {name: _section(scene, name, box, layout) for name, box in layout.boxes.items()}


def _section(scene: Scene, name: str, box: Box, layout: Layout) -> list[Line]:
    title, body = _SECTIONS[name]
    focused = scene.selection.focus == name
    column = next((c for c in layout.columns if name in c), ())
    if not layout.wide:
        lines = body(scene, box.width, box.height - 1)
        return ruled(title(scene), lines, box.width, box.height, scene.marks, focused)
    first, last = name == column[0], name == column[-1]
    lines = body(scene, box.width - 2, box.height - 1 - last)
    return framed(title(scene), lines, box.width, box.height, scene.marks, focused, first, last)


def _groups(scene: Scene, cells: int, rows: int) -> list[Line]:
    index = next((i for i, g in enumerate(scene.groups) if g.group == scene.selection.group), 0)
    top = scene.selection.window("groups", len(scene.groups), rows, index)
    return groups.group_rows(scene, cells, top, rows)


def _trials(scene: Scene, cells: int, rows: int) -> list[Line]:
    total = len(scene.group.trials) if scene.group is not None else 0
    top = scene.selection.window("trials", total, rows, scene.selection.trial)
    return groups.trial_rows(scene, cells, top, rows)


_SECTIONS: dict[str, tuple[Title, Body]] = {
    "groups": (groups.groups_title, _groups),
    "trials": (groups.trials_title, _trials),
    "steps": (steps.steps_title, steps.step_lines),
    "events": (events.events_title, events.event_lines),
    "capture": (lambda scene: ("Gateway & capture", ""), header.capture_pane),
    "reward": (steps.reward_title, steps.reward_plot),
    "loss": (steps.loss_title, steps.loss_plot),
    "policy": (steps.policy_title, steps.policy_lines),
    "time": (lambda scene: ("Step time", ""), steps.time_lines),
}
