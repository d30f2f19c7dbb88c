"""Where each part of the screen goes, as rectangles. Pure: size and contents in, boxes out.

Narrow screens stack sections under rule lines; events give way first, then steps. Wide ones
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


def arrange(width: int, height: int, groups: int, trials: int, alarm: int) -> Layout:
    """The layout for a terminal of `width` x `height` that shows `groups` groups and `trials` trials of one of them.

    `alarm`: rows of the alarm, 0 for none; no more than a small screen can spare.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Layout({"tiny": Box(0, 0, width, height)} if width > 0 and height > 0 else {})
    boxes = {"header": Box(0, 0, width, 1), "plumbing": Box(0, 1, width, 1)}
    top = 2
    if alarm:
        rows = min(alarm, 1 + (height - MIN_HEIGHT) // 4)
        boxes["alarm"] = Box(0, top, width, rows)
        top += rows
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
    """Rows (title included) for groups, trials, steps and events, together exactly `space`; at least 6.

    The lists scroll, so that they never take more than 40 % (groups) and 45 % (trials) while others need the room.
    Events give way first, then steps; the surplus goes to longer lists, then to steps, and the rest to events.
    """
    want_groups, want_trials = max(1, groups) + 1, max(1, trials) + 1
    got_groups = min(want_groups, max(3, space * 40 // 100))
    got_trials = min(want_trials, max(3, space * 45 // 100))
    left = space - got_groups - got_trials
    got_steps = steps if left >= steps else 2 if left >= 2 else 0
    left -= got_steps
    if got_steps and left > 6:
        more = min(steps_max - got_steps, left - 6)
        got_steps, left = got_steps + more, left - more
    if left >= 2:
        return {"groups": got_groups, "trials": got_trials, "steps": got_steps, "events": left}
    more = min(left, want_groups - got_groups)
    return {"groups": got_groups + more, "trials": got_trials + left - more, "steps": got_steps, "events": 0}


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
