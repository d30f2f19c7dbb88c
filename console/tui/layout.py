"""Where each part of the run page goes, as rectangles. Pure: size and contents in, boxes out.

Narrow screens stack sections under rule lines; events give way first, then steps, then trials. From 110x30 there are
two framed columns, from 160x30 three, with the events across the whole width beneath. Below 60x16 there is one line
only. One pane may have the page to itself (zoom).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

MIN_WIDTH, MIN_HEIGHT = 60, 16
WIDE_WIDTH, WIDE_HEIGHT = 110, 30
TRIPLE_WIDTH = 160
_AROUND = 4
"""Rows of the screen that are not the page's, at most."""
MANY = 10**6
BENCH_EVENTS = 4
"""Rows of a benchmark's events on a narrow screen, title included, while its tasks need more room."""

LISTS = ("groups", "trials", "detail", "tail", "events")
PLOTS = ("reward", "loss", "mix", "policy", "time")
PANES = (*LISTS[:2], "steps", *LISTS[2:], "capture", "bench", *PLOTS)


class Box(NamedTuple):
    """A rectangle of the screen in cells, its frame (title and borders) included."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Layout:
    """Boxes by pane name; a pane that is missing is not shown.

    Attributes:
        wide: the panes of the columns are framed; columns: panes that share a frame, from top to bottom.
        tree: the trials are shown in the pane of the groups, each group's beneath it.
    """

    boxes: dict[str, Box]
    wide: bool = False
    columns: tuple[tuple[str, ...], ...] = ()
    tree: bool = False


def arrange(
    region: Box,
    groups: int,
    trials: int,
    events: int = MANY,
    tree: bool = False,
    zoom: str = "",
    bench: bool = False,
) -> Layout:
    """The run page in `region`, with that many groups, trials of one of them, and events to show.

    `tree` is heeded where there are three columns. `zoom` names the pane that is shown alone, with its kin. A benchmark
    (`bench`) has one pane in place of readings and plots.
    """
    wide = region.width >= WIDE_WIDTH and region.height >= WIDE_HEIGHT - _AROUND
    if zoom:
        return _zoomed(region, zoom, wide)
    if wide and region.width >= TRIPLE_WIDTH:
        return _triple(region, groups, trials, events, tree, bench)
    if wide:
        return _wide(region, groups, trials, events, bench)
    if bench:
        heights = share(region.height, groups, trials, steps=4, steps_max=7, events=events)
        heights = {"bench" if name == "steps" else name: rows for name, rows in heights.items()}
        more = max(0, min(heights["events"] - BENCH_EVENTS, groups + 1 - heights["groups"]))
        heights |= {"groups": heights["groups"] + more, "events": heights["events"] - more}
    else:
        heights = share(region.height, groups, trials, steps=3, steps_max=5, events=events)
    return Layout(_stack(region, heights))


def _stack(region: Box, heights: dict[str, int]) -> dict[str, Box]:
    """Boxes from top to bottom; those of fewer than two rows are left out."""
    boxes: dict[str, Box] = {}
    y = region.y
    for name, rows in heights.items():
        if rows >= 2:
            boxes[name] = Box(region.x, y, region.width, rows)
            y += rows
    return boxes


def share(space: int, groups: int, trials: int, steps: int, steps_max: int, events: int = MANY) -> dict[str, int]:
    """Rows (title included) for groups, trials, steps and events, together exactly `space`; at least 6.

    The lists scroll, so that they never take more than 40 % (groups) and 45 % (trials) while others need the room.
    Events give way first, then steps. What `events` do not need goes to the lists that are cut.
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
        spare = max(0, left - max(2, events + 1))
        more_groups = min(spare, want_groups - got_groups)
        more_trials = min(spare - more_groups, want_trials - got_trials)
        return {
            "groups": got_groups + more_groups,
            "trials": got_trials + more_trials,
            "steps": got_steps,
            "events": left - more_groups - more_trials,
        }
    more = min(left, want_groups - got_groups)
    return {"groups": got_groups + more, "trials": got_trials + left - more, "steps": got_steps, "events": 0}


def _wide(region: Box, groups: int, trials: int, events: int, bench: bool) -> Layout:
    width, space = region.width, region.height
    side = max(38, min(70, width * 3 // 10))
    # The last pane of a column has a bottom line of its own.
    got = share(space - 1, groups, trials, steps=0, steps_max=0, events=events)
    detail = min(9, got["events"] - 8)
    detail = detail if detail >= 4 else 0
    left = {
        "groups": got["groups"], "trials": got["trials"], "detail": detail, "events": got["events"] - detail,
    }  # fmt: skip
    return _columns(
        (Box(region.x, region.y, width - side, space), _closed(left)),
        (Box(region.x + width - side, region.y, side, space), _health(space, bench)),
    )


def _triple(region: Box, groups: int, trials: int, events: int, tree: bool, bench: bool) -> Layout:
    width = region.width
    low = min(max(6, region.height * 22 // 100), max(6, events + 2))
    spare = region.height - low - 2 - groups * (1 + trials if tree else 1)
    if spare > 0:  # the lists do not fill their column, but there is more to say
        low += max(0, min(spare, events + 2 - low, region.height * 36 // 100 - low))
    top = region.height - low
    left, right = width * 38 // 100, width * 32 // 100
    middle = width - left - right
    if tree:
        lists = {"groups": top - 1}
    else:
        lists = share(top - 1, groups, trials, steps=0, steps_max=0, events=0)
        lists["trials"] += lists.pop("events") + lists.pop("steps")
    detail = top - 1 if top < 20 else max(12, (top - 1) * 55 // 100)
    return _columns(
        (Box(region.x, region.y, left, top), _closed(lists)),
        (Box(region.x + left, region.y, middle, top), _closed({"detail": detail, "tail": top - 1 - detail})),
        (Box(region.x + left + middle, region.y, right, top), _health(top, bench)),
        (Box(region.x, region.y + top, width, low), {"events": low}),
        tree=tree,
    )


def _health(space: int, bench: bool) -> dict[str, int]:
    """The column of readings and plots; the mix gives way first, then the policy's figures."""
    if bench:
        return {"bench": space}
    sizes = {"capture": 6, "reward": 0, "loss": 0, "mix": 0, "policy": 5, "time": 5}
    left = space - 1 - sum(sizes.values())
    if left < 6:
        sizes["policy"], left = 0, left + sizes["policy"]
    for name, rows in (("policy", 1), ("capture", 1), ("mix", 7)):
        if sizes["policy"] and left >= 12 + rows:
            sizes[name] += rows
            left -= rows
    return _closed(sizes | {"reward": left - left // 2, "loss": left // 2})


def _zoomed(region: Box, zoom: str, wide: bool) -> Layout:
    if zoom not in (*PLOTS, "steps"):
        whole = {zoom: region}
        return Layout(whole, wide=True, columns=((zoom,),)) if wide else Layout(whole)
    if not wide:
        sizes = {"reward": 0, "loss": 0, "mix": 0, "policy": 6, "time": 5}
        if region.height >= 28:
            sizes["mix"] = 7
        for name in ("time", "policy"):
            if region.height - sum(sizes.values()) < 11:
                sizes[name] = 0
        left = region.height - sum(sizes.values())
        return Layout(_stack(region, sizes | {"reward": left - left // 2, "loss": left // 2}))
    half, space = region.width // 2, region.height - 1
    mix = max(7, space // 3)
    return _columns(
        (Box(region.x, region.y, half, region.height), _closed({"reward": space - mix, "mix": mix})),
        (
            Box(region.x + half, region.y, region.width - half, region.height),
            _closed({"loss": space - 11, "policy": 6, "time": 5}),
        ),
    )


def _closed(heights: dict[str, int]) -> dict[str, int]:
    """The heights of a column, with the bottom line that its last pane has."""
    shown = {name: rows for name, rows in heights.items() if rows >= 2}
    last = next(reversed(shown))
    return shown | {last: shown[last] + 1}


def _columns(*columns: tuple[Box, dict[str, int]], tree: bool = False) -> Layout:
    boxes: dict[str, Box] = {}
    names: list[Sequence[str]] = []
    for box, heights in columns:
        found = _stack(box, heights)
        boxes |= found
        names.append(tuple(found))
    return Layout(boxes, wide=True, columns=tuple(tuple(column) for column in names), tree=tree)
