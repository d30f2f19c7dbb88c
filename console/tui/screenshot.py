"""Renders the console to SVG from a recording, without a terminal. The README's picture is made by this module:

python -m console.tui.screenshot RUN_DIR themes/console.svg
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from console.errors import QuarterdeckError


async def render(
    run_dir: Path | str,
    width: int = 120,
    height: int = 40,
    theme: str = "dark",
    seq: int | None = None,
    ascii_only: bool = False,
    title: str = "quarterdeck",
) -> str:
    """The screen after event `seq` (None: the end) as an SVG document. Raises `RecordingError`."""
    from console.resources import themes_dir
    from console.tui.app import ConsoleApp
    from console.tui.opening import open_record
    from console.tui.replay import ReplaySource
    from console.tui.themes import Themes

    source = ReplaySource(open_record(run_dir), speed=1.0, clock=lambda: 0.0)  # time stands still
    last = source.record.journal.last_seq
    app = ConsoleApp(source, Themes(themes_dir()), theme, ascii_only)
    async with app.run_test(size=(width, height)) as pilot:
        source.play_to(last if seq is None else min(seq, last))
        app.repaint()
        await pilot.pause()
        return app.export_screenshot(title=title)


def main(argv: list[str] | None = None) -> int:
    """The command. Exit code 0, or that of the error."""
    parser = argparse.ArgumentParser(prog="python -m console.tui.screenshot", description="render the console to SVG")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--size", default="120x40", help="cells, e.g. 80x24")
    parser.add_argument("--theme", default="dark")
    parser.add_argument("--seq", type=int, default=None, help="event to stop at (default: the last)")
    args = parser.parse_args(argv)
    width, _, height = args.size.partition("x")
    try:
        svg = asyncio.run(render(args.run_dir, int(width), int(height), args.theme, args.seq))
    except QuarterdeckError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    args.output.write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
