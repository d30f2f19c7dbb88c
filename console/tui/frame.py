"""The whole screen: header, alarm and keys around the page on top. Pure: desk and size in, boxes and lines out."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len

from console.tui.desk import Desk
from console.tui.layout import MIN_HEIGHT, MIN_WIDTH, Box
from console.tui.pages.page import Painted
from console.tui.panes import events, header
from console.tui.panes.alarm import alarm
from console.tui.panes.timeline import rows_wanted, timeline_rows
from console.tui.picture import Scene
from console.tui.text import plain
from console.tui.widgets.prompt import Prompt

_FOOT = ("timeline", "keys")


def paint(desk: Desk, width: int, height: int, prompt: Prompt | None = None) -> Painted:
    """The screen of `width` x `height` cells; a prompt takes the place of the keys."""
    scene = desk.scene()
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        box = Box(0, 0, width, height)
        rows = header.tiny(scene, width, height, (MIN_WIDTH, MIN_HEIGHT))
        if prompt is not None:
            rows = [*rows[: height - 1], *[()] * (height - 1 - len(rows)), prompt.lines(width)]
        return Painted({"tiny": box}, {"tiny": rows})
    if prompt is not None:
        scene = replace(scene, message=())
    boxes, lines = _frame(scene, desk, width, height)
    top = max((box.y + box.height for name, box in boxes.items() if name not in _FOOT), default=0)
    end = min(box.y for name, box in boxes.items() if name in _FOOT)
    body = _body(desk, scene, Box(0, top, width, end - top))
    if prompt is not None:
        lines["keys"] = [prompt.lines(width)]
    return Painted(boxes | body.boxes, lines | body.lines)


def _body(desk: Desk, scene: Scene, region: Box) -> Painted:
    """The page. One moment of a recording that cannot be painted is said and passed over, the rest can be looked at."""
    try:
        return desk.page.paint(scene, region)
    except Exception as error:
        fail = getattr(desk.source, "fail", None)
        if fail is None:
            raise
        fail(f"this moment cannot be shown ({type(error).__name__}): {error}")
        return Painted({}, {})


def _frame(scene: Scene, desk: Desk, width: int, height: int) -> Painted:
    foot = events.foot(scene, width)
    end = height - len(foot)
    boxes = {"keys": Box(0, end, width, len(foot))}
    lines = {"keys": foot}
    if desk.no_run:
        return Painted(boxes, lines)
    boxes["header"], lines["header"] = Box(0, 0, width, 1), [header.header(scene, width)]
    plumbing = desk.page.has_plumbing()
    if plumbing:
        boxes["plumbing"], lines["plumbing"] = Box(0, 1, width, 1), [header.plumbing(scene, width)]
    rows = alarm(scene, width, 1 + (height - MIN_HEIGHT) // 4)
    if rows:
        boxes["alarm"], lines["alarm"] = Box(0, 1 + plumbing, width, len(rows)), rows
    rows = timeline_rows(scene, width, rows_wanted(height))
    if rows:
        boxes["timeline"], lines["timeline"] = Box(0, end - len(rows), width, len(rows)), rows
    return Painted(boxes, lines)


def as_text(painted: Painted, width: int, height: int) -> str:
    """The screen as plain text, without the spaces at the ends of its lines. Boxes do not overlap."""
    rows = [[" "] * width for _ in range(height)]
    for name, box in painted.boxes.items():
        for y, one in enumerate(painted.lines.get(name, [])[: box.height], start=box.y):
            x = box.x
            for char in plain(one):
                cells = cell_len(char)
                if cells == 0 and x > box.x:
                    rows[y][x - 1] += char
                elif x + cells <= box.x + box.width and y < height:
                    rows[y][x : x + cells] = [char, *[""] * (cells - 1)]
                    x += cells
    return "\n".join("".join(row).rstrip() for row in rows)
