"""Where each part of the screen goes, as rectangles. Pure: size and contents in, boxes out.

Narrow screens stack sections under rule lines; they give way in the order events, steps, trials, groups. Wide ones
(from 110x30) have two framed columns. Below 60x16 there is one line only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MIN_WIDTH, MIN_HEIGHT = 60, 16
WIDE_WIDTH, WIDE_HEIGHT = 110, 30


class Box(NamedTuple):
    """A rectangle of the screen in cells, its frame (title and borders) included."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Layout:
    """Boxes by pane name; a pane that is missing is not shown. `wide`: the panes of the columns are framed."""

    boxes: dict[str, Box]
    wide: bool = False
    columns: tuple[tuple[str, ...], ...] = ()


def arrange(width: int, height: int, groups: int, trials: int, alarm: bool) -> Layout:
    """The layout for a terminal of `width` x `height` that shows `groups` groups and `trials` trials of one of them."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Layout({"tiny": Box(0, 0, width, height)} if width > 0 and height > 0 else {})
    boxes = {"header": Box(0, 0, width, 1), "plumbing": Box(0, 1, width, 1)}
    top = 2
    if alarm:
        boxes["alarm"] = Box(0, top, width, 1)
        top += 1
    boxes["keys"] = Box(0, height - 1, width, 1)
    space = height - 1 - top
    if width >= WIDE_WIDTH and height >= WIDE_HEIGHT:
        return _wide(boxes, width, top, space, groups, trials)
    return _narrow(boxes, width, top, space, groups, trials)


def _narrow(boxes: dict[str, Box], width: int, top: int, space: int, groups: int, trials: int) -> Layout:
    heights = share(space, groups, trials, steps=3, steps_max=5)
    y = top
    for name, rows in heights.items():
        if rows >= 2:
            boxes[name] = Box(0, y, width, rows)
            y += rows
    return Layout(boxes)


def share(space: int, groups: int, trials: int, steps: int, steps_max: int) -> dict[str, int]:
    """Rows (title included) for groups, trials, steps and events, together exactly `space`.

    Groups take what they need up to 40 % when that is scarce, trials up to half of the rest; steps their fixed rows
    while they last; events what is left, at least two rows while there is room, and all of the surplus.
    """
    want_groups, want_trials = max(1, groups) + 1, max(1, trials) + 1
    need = want_groups + want_trials + steps + 2
    got_groups, got_trials, got_steps, got_events = want_groups, want_trials, steps, 2
    over = need - space
    if over > 0:
        cut = min(over, got_events)
        got_events, over = got_events - cut, over - cut
        if over > 0 and over < got_steps:
            cut = min(over, got_steps - 2)
            got_steps, over = got_steps - cut, over - cut
        elif over > 0:
            over, got_steps = over - got_steps, 0
        if over > 0:
            floor = min(want_trials, max(3, (space - min(want_groups, int(space * 0.4))) // 2))
            cut = min(over, got_trials - floor)
            got_trials, over = got_trials - cut, over - cut
        if over > 0:
            got_groups = max(2, got_groups - over)
            got_trials = space - got_groups - got_steps - got_events
    spare = space - got_groups - got_trials - got_steps - got_events
    if spare > 6:
        more = min(steps_max - got_steps, spare - 6)
        got_steps, spare = got_steps + more, spare - more
    if got_events >= 2 or spare >= 2:
        got_events += spare
    else:
        got_trials += spare
    return {"groups": got_groups, "trials": got_trials, "steps": got_steps, "events": got_events}


def _wide(boxes: dict[str, Box], width: int, top: int, space: int, groups: int, trials: int) -> Layout:
    side = max(38, min(70, width * 3 // 10))
    main = width - side
    # The last pane of a column has a bottom line of its own.
    left = share(space - 1, groups, trials, steps=0, steps_max=0)
    left.pop("steps")
    left["events"] += 1
    plots = space - 1 - (5 + 1) - (4 + 1) - (4 + 1)
    right = {"capture": 6, "reward": plots - plots // 2, "loss": plots // 2, "policy": 5, "time": 6}
    for x, size, column in ((0, main, left), (main, side, right)):
        y = top
        for name, rows in column.items():
            if rows >= 2:
                boxes[name] = Box(x, y, size, rows)
                y += rows
    columns = tuple(tuple(n for n in column if n in boxes) for column in (left, right))
    return Layout(boxes, wide=True, columns=columns)
