"""What the plots of a long run cost: processor time of a paint of the metrics page, and bytes of new steps.

The page is the console's own, 200x60, nine plots and the table, over a history of 10,000 steps. Beside each figure
stands the same picture made without the kept columns: every row read again, as a plot library does with each redraw.
`python benchmarks/plots.py [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import Beside, Figure, add_json_option, emit

from console.journal.events import RunStarted, StepFinished, StepStarted
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui import columns
from console.tui.app import ConsoleApp
from console.tui.frame import paint
from console.tui.replay import ReplaySource
from console.tui.themes import Themes
from console.tui.widgets.tight import TightUpdate

STEPS, APPENDED = 10_000, 100
WIDTH, HEIGHT = 200, 60
COLD_MS, CACHED_MS = 100.0, 15.0


def row_of(i: int) -> StepFinished:
    """Step `i` of a run that learns, with noise in every figure."""
    fade, noise = math.exp(-i / 2500), math.sin(i * 12.9898) * 43758.5453 % 1.0
    return StepFinished(
        step=i, seq=i + 1, ts=1.79e9 + i, reward_mean=0.85 - 0.6 * fade + 0.1 * noise, reward_std=0.3,
        outcomes={"completed": 30, "agent_timeout": 1 + i % 2, "infrastructure": int(i % 97 == 0)}, groups_kept=4,
        groups_zero_variance=i % 3, ppo_loss=12 * fade + noise - 1, clip_fraction=0.03 * fade + 0.01 * noise,
        kl_sample_train_v1=0.002 * noise, kl_sample_train_v2=0.001 + 0.001 * noise, kl_sample_train_k3=0.0014,
        entropy=0.3 + 0.5 * fade + 0.05 * noise, grad_norm=0.5 + fade * noise, learning_rate=5e-4,
        tokens_prompt=300_000 + i, tokens_sampled=30_000 + i, tokens_trained=25_000, policy_version=i + 1,
        seconds_rollout=2000 + 300 * noise, seconds_train=160.0, seconds_save=22.0, seconds_total=2190 + 300 * noise,
    )  # fmt: skip


def app_on(directory: Path, rows: list[StepFinished]) -> ConsoleApp:
    """The metrics page of a console on a run with these steps."""
    with JournalWriter(directory / "journal", snapshot=lambda: (b"{}", 0)) as writer:
        writer.append(RunStarted(run_id="long", name="long", run_dir=str(directory)))
        writer.append(StepStarted(step=len(rows), groups=4, policy_version=len(rows)))
    source = ReplaySource(RunRecord(directory), at_end=True, clock=lambda: 0.0)
    source.view.history.rows = rows
    app = ConsoleApp(source, Themes(themes_dir()))
    app.desk.show("metrics")
    return app


def milliseconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    gc.collect()
    before = time.process_time()
    work()
    return (time.process_time() - before) * 1000


def forget() -> None:
    """Throw the kept columns away."""
    columns._kept.clear()


def paints(app: ConsoleApp) -> list[Figure]:
    """Processor time of a paint: the first one, one without news, one after a key, one after a new step."""
    rows = app.source.view.history.rows
    desk, times = app.desk, 5

    def once() -> None:
        paint(desk, WIDTH, HEIGHT)

    def median(prepare: Callable[[], object]) -> float:
        found = []
        for _ in range(times):
            prepare()
            found.append(milliseconds(once))
        return statistics.median(found)

    cold = median(forget)
    once()
    cached = median(lambda: None)
    moved = median(lambda: desk.page.do_left())  # type: ignore[attr-defined]
    grown = median(lambda: rows.append(row_of(len(rows))))
    again = Beside("every row read again", cold)
    return [
        Figure(f"first paint of {STEPS:,} steps, 9 plots", cold, "ms", COLD_MS),
        Figure("paint without news", cached, "ms", CACHED_MS, beside=again),
        Figure("paint after the cursor moved", moved, "ms", CACHED_MS, beside=again),
        Figure("paint after a new step", grown, "ms", beside=again),
    ]


async def bytes_of_new_steps(app: ConsoleApp) -> list[Figure]:
    """Bytes that go to the terminal for each of `APPENDED` new steps, and for the whole screen painted again."""
    sent: list[int] = []
    show = app._display

    def counted(screen: object, renderable: object) -> None:
        if isinstance(renderable, TightUpdate) or hasattr(renderable, "render_segments"):
            if hasattr(renderable, "spans"):
                renderable = TightUpdate(renderable.chops, renderable.spans, renderable.chop_ends)
            sent.append(len(renderable.render_segments(app.console).encode()))
        show(screen, renderable)  # type: ignore[arg-type]

    app._display = counted  # type: ignore[method-assign,assignment]
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        rows = app.source.view.history.rows
        sent.clear()
        app.screen.refresh(layout=True)
        await pilot.pause()
        whole = max(sent, default=0)
        sent.clear()
        for _ in range(APPENDED):
            rows.append(row_of(len(rows)))
            app.repaint()
            await pilot.pause()
        each = sum(sent) / APPENDED
    return [
        Figure("bytes of a new step, 9 plots and table", each, "B", beside=Beside("the whole screen", float(whole)))
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        app = app_on(Path(kept) / "a", [row_of(i) for i in range(STEPS)])
        figures = paints(app)
        forget()
        app = app_on(Path(kept) / "b", [row_of(i) for i in range(STEPS)])
        figures += asyncio.run(bytes_of_new_steps(app))
    emit(figures, as_json=args.json)


if __name__ == "__main__":
    main()
