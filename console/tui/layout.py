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


def arrange(region: Box, groups: int, trials: int) -> Layout:
    """The run page in `region`, that shows `groups` groups and `trials` trials of one of them."""
    if region.width >= WIDE_WIDTH and region.height >= WIDE_HEIGHT - 4:
        return _wide(region, groups, trials)
    heights = share(region.height, groups, trials, steps=3, steps_max=5)
    boxes: dict[str, Box] = {}
    y = region.y
    for name, rows in heights.items():
        if rows >= 2:
            boxes[name] = Box(region.x, y, region.width, rows)
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


def _wide(region: Box, groups: int, trials: int) -> Layout:
    width, space = region.width, region.height
    side = max(38, min(70, width * 3 // 10))
    main = width - side
    # The last pane of a column has a bottom line of its own.
    left = share(space - 1, groups, trials, steps=0, steps_max=0)
    left.pop("steps")
    left["events"] += 1
    plots = space - 1 - (5 + 1) - (4 + 1) - (4 + 1)
    right = {"capture": 6, "reward": plots - plots // 2, "loss": plots // 2, "policy": 5, "time": 6}
    boxes: dict[str, Box] = {}
    for x, size, column in ((region.x, main, left), (region.x + main, side, right)):
        y = region.y
        for name, rows in column.items():
            if rows >= 2:
                boxes[name] = Box(x, y, size, rows)
                y += rows
    columns = tuple(tuple(n for n in column if n in boxes) for column in (left, right))
    return Layout(boxes, wide=True, columns=columns)
