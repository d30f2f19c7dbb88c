"""The metrics page: a cursor over all plots, what the keys do, and its screens."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from rich.cells import cell_len

from console.journal.events import StepFinished
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.layout import Box
from console.tui.pages.metrics import MetricsPage
from console.tui.pages.page import Painted
from console.tui.replay import ReplaySource
from console.tui.series import CHARTS, FIGURES
from console.tui.text import plain, width
from console.tui.themes import Themes
from console.tui.widgets.pane import to_ascii

SIZES = [(60, 16), (80, 24), (100, 30), (120, 40), (160, 45), (200, 60), (200, 20), (90, 60)]


def long_run(steps: int) -> list[StepFinished]:
    """A run of many steps, the same ones each time."""
    rows = []
    for i in range(steps):
        fade, wave = math.exp(-i / (steps / 4)), math.sin(i * 12.9898) * 43758.5453 % 1.0
        lost = int(i % 400 == 399)
        rows.append(
            StepFinished(
                step=i, seq=i + 1, ts=1.79e9 + i, reward_mean=0.85 - 0.6 * fade + 0.1 * (wave - 0.5), reward_std=0.3,
                outcomes={"completed": 30 - lost, "agent_timeout": 2, "infrastructure": lost}, groups_kept=4,
                groups_zero_variance=int(wave * 3), ppo_loss=12 * fade + wave - 1, clip_fraction=0.03 * fade + 0.004,
                kl_sample_train_v1=0.002 + 0.001 * (wave - 0.5), kl_sample_train_v2=0.0013, kl_sample_train_k3=0.0014,
                entropy=0.3 + 0.5 * fade, grad_norm=None if i == 5_000 else 0.5 + fade * wave, learning_rate=5e-4,
                nonfinite=["grad_norm"] if i == 5_000 else [], tokens_prompt=300_000, tokens_sampled=30_000 + i,
                tokens_trained=25_000, seconds_rollout=2000.0 + 300 * wave, seconds_train=160.0, seconds_save=22.0,
                seconds_total=2190.0 + 300 * wave, policy_version=i + 1,
            )
        )  # fmt: skip
    return rows


def app_on(recording: Path, ascii_only: bool = False, rows: list[StepFinished] | None = None) -> ConsoleApp:
    """The metrics page at the end of a replay; with `rows`, as if these were its steps."""
    source = ReplaySource(RunRecord(recording), at_end=True)
    if rows is not None:
        source.view.state.run_id = f"synthetic-{len(rows)}"
        source.view.history.rows = rows
        source.view.state.step = rows[-1].step if rows else None
    app = ConsoleApp(source, Themes(themes_dir()), "dark", ascii_only)
    app.desk.show("metrics")
    return app


def page_of(app: ConsoleApp) -> MetricsPage:
    page = app.desk.page
    assert isinstance(page, MetricsPage)
    return page


async def press(app: ConsoleApp, *keys: str) -> None:
    for key in keys:
        await app.desk.press(key)


def page_in(app: ConsoleApp, size: tuple[int, int]) -> Painted:
    """The page alone, between the header and the keys of a screen of that size."""
    return app.desk.page.paint(app.desk.scene(), Box(0, 1, size[0], size[1] - 2))


def painted(app: ConsoleApp, size: tuple[int, int] = (120, 40)) -> dict[str, list[str]]:
    """Lines of the page by pane; every pane is checked to fit."""
    found = page_in(app, size)
    cells = [
        (x, y) for b in found.boxes.values() for y in range(b.y, b.y + b.height) for x in range(b.x, b.x + b.width)
    ]
    assert len(cells) == len(set(cells)) and all(x < size[0] and 0 < y < size[1] - 1 for x, y in cells)
    for name, box in found.boxes.items():
        assert len(found.lines[name]) <= box.height, name
        assert all(width(one) <= box.width for one in found.lines[name]), name
    return {name: [plain(one) for one in lines] for name, lines in found.lines.items()}


def page_lines(app: ConsoleApp, size: tuple[int, int]) -> list[str]:
    """The page as lines of text, by where its panes are."""
    found = page_in(app, size)
    rows = [[" "] * size[0] for _ in range(size[1] - 2)]
    for name, box in found.boxes.items():
        for y, one in enumerate(found.lines[name]):
            text = to_ascii(plain(one)) if app.desk.ascii else plain(one)
            rows[box.y - 1 + y][box.x : box.x + len(text)] = text
    return ["".join(row) for row in rows]


@pytest.mark.parametrize("size", SIZES)
async def test_every_size_shows_plots_and_the_figures_are_one_key_away(recording: Path, size: tuple[int, int]) -> None:
    app = app_on(recording)
    for keys in ((), ("left",), ("z",), ("z", "down"), ("t",), ("down", "t", "y", "S")):
        await press(app, *keys)
        panes = painted(app, size)
        assert "Metrics  15 steps" in panes["metrics"][0]
    await press(app, "t")
    assert "figures" in panes or "plot1" in panes
    await press(app, *(["t"] if "all figures" not in "".join(painted(app, size).get("figures", [])) else []))
    assert "reward mean" in "\n".join(painted(app, size)["figures"])


async def test_plots_by_size(recording: Path) -> None:
    app = app_on(recording)
    for size, plots, table in (((80, 24), 2, False), ((120, 40), 4, True), ((200, 60), 9, True)):
        panes = painted(app, size)
        assert sum(name.startswith("plot") for name in panes) == plots
        assert ("figures" in panes) == table and ("names" in panes) == (plots == 2)


async def test_the_cursor_reads_the_same_step_in_every_plot(recording: Path) -> None:
    app = app_on(recording)
    rows = app.source.view.history.rows
    await press(app, "left", "left", "left")
    panes = painted(app, (200, 60))
    row = rows[-4]
    titles = [panes[f"plot{n}"][0] for n in range(1, 10)]
    assert all(f"step {row.step}  " in title for title in titles)
    for title, chart in zip(titles, CHARTS, strict=False):
        assert chart.main.text(row) in title
    table = "\n".join(panes["figures"])
    for name in ("ppo_loss", "kl_sample_train_k3", "entropy", "grad_norm"):
        assert f"{getattr(row, name):.4f}".lstrip("0") in table
    assert f"{row.tokens_sampled:,}" in table and f"policy v{row.policy_version}" in table


async def test_the_cursor_follows_the_last_step_until_it_is_moved(recording: Path) -> None:
    app = app_on(recording, rows=long_run(100))
    rows = app.source.view.history.rows
    assert "step 99 of 0..99, the last one" in painted(app)["metrics"][0]
    await press(app, "g", "pagedown", "right")
    assert "step 11 of 0..99" in painted(app)["metrics"][0]
    await press(app, "pageup", "left", "left")
    assert "step 0 of" in painted(app)["metrics"][0]
    await press(app, "G")
    rows.append(StepFinished(step=100, seq=101, ts=1.8e9, reward_mean=0.123))
    assert "step 100 of 0..100, the last one" in painted(app)["metrics"][0]
    await press(app, "left", "right", "left", "left")
    rows.append(StepFinished(step=101, seq=102, ts=1.8e9))
    assert "step 98 of" in painted(app)["metrics"][0]
    page_of(app).go_to_step(40)
    del rows[30:]
    assert "step 29 of 0..29" in painted(app)["metrics"][0]


async def test_keys_choose_zoom_and_scale(recording: Path) -> None:
    app = app_on(recording)
    painted(app, (80, 24))
    await press(app, "tab", "down")
    assert painted(app, (80, 24))["names"][2].startswith("> Outcomes")
    await press(app, "y")
    assert "log" not in painted(app, (80, 24))["plot1"][0]
    await press(app, "shift+tab", "y", "z")
    panes = painted(app, (80, 24))
    assert "plot2" not in panes and "PPO loss  log" in panes["plot1"][0]
    assert "summed over trained tokens" in panes["plot1"][-1]
    await press(app, "S")
    panes = painted(app, (80, 24))
    assert "EMA .9" in panes["plot1"][0] and "EMA 0.9" in panes["metrics"][0]
    await press(app, "S", "S", "escape")
    panes = painted(app, (80, 24))
    assert "plot2" in panes and "EMA" not in panes["metrics"][0]
    await press(app, "escape")
    assert app.desk.page.id == "run"


async def test_the_filter_takes_words_and_patterns(recording: Path) -> None:
    app = app_on(recording)
    page = page_of(app)
    for text, found in (("kl", ["kl"]), ("^clip|^entropy", ["clip", "entropy"]), ("tokens samp", ["tokens", "rate"])):
        page._set_filter(text)
        assert [chart.id for chart in page.charts()] == found
    page._set_filter("(")
    assert page.charts() == [] and "no plot matches" in "".join(painted(app)["plot1"])
    await press(app, "down", "tab", "y", "z", "1", "escape")
    assert len(page.charts()) == len(CHARTS)


async def test_enter_goes_to_the_step_in_a_replay_and_shows_its_figures_in_a_live_run(recording: Path) -> None:
    app = app_on(recording)
    await press(app, "left", "left", "left", "enter")
    assert app.source.view.history.rows[-1].step == 11
    assert app.source.view.state.seq == app.source.view.history.rows[-1].seq
    assert "step 11 of 0..11, the last one" in painted(app)["metrics"][0]
    app.source.mode = "live"
    await press(app, "enter")
    assert "Step 11  all figures" in painted(app, (80, 24))["figures"][0]
    await press(app, "down", "down")
    assert "reward mean" not in painted(app, (80, 24))["figures"][1]
    await press(app, "escape")
    assert "plot1" in painted(app, (80, 24))


async def test_copies_and_rows_for_a_file_hold_the_raw_values(recording: Path) -> None:
    app = app_on(recording, rows=long_run(30))
    page = page_of(app)
    await press(app, "g", "right")
    copied = dict(line.split("\t")[:2] for line in page.yank_text().splitlines())
    row = app.source.view.history.rows[1]
    assert copied["step"] == "1" and copied["sampled"] == f"{row.tokens_sampled:,}"
    assert copied["agent timeout"] == "2" and copied["policy version"] == "2"
    header, rows = page.export_rows()
    assert len(rows) == 30 and len(header) == len(rows[0]) == len(set(header))
    found = [dict(zip(header, one, strict=True)) for one in rows]
    assert found[7]["ppo_loss"] == app.source.view.history.rows[7].ppo_loss and found[7]["step"] == 7
    assert found[7]["outcome_agent_timeout"] == 2
    page._set_filter("^loss")
    assert page.export_rows()[0] == ["step", "ppo_loss"]
    csv.writer(io.StringIO()).writerows(rows)


async def test_a_step_with_a_figure_that_is_not_finite_says_so(recording: Path) -> None:
    rows = long_run(12)
    rows[6].grad_norm, rows[6].nonfinite = None, ["grad_norm", "\x1b[31mnew"]
    app = app_on(recording, rows=rows)
    page = page_of(app)
    page.go_to_step(6)
    panes = painted(app, (200, 60))
    assert any("Gradient norm" in lines[0] and "not finite" in lines[0] for lines in panes.values())
    await press(app, "t")
    text = "\n".join(painted(app, (120, 45))["figures"])
    assert "gradient norm     not finite" in text and "\x1b" not in text + page.yank_text()


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_young_run_looks_right(recording: Path, steps: int) -> None:
    app = app_on(recording, rows=long_run(steps))
    for size in SIZES:
        panes = painted(app, size)
        assert f"Metrics  {steps} step{'' if steps == 1 else 's'}" in panes["metrics"][0]
    await press(app, "left", "right", "g", "G", "pagedown", "tab", "down", "z", "t", "y", "S")
    assert page_of(app).export_rows()[1] == page_of(app).export_rows()[1]
    assert (page_of(app).yank_text() == "") == (steps == 0)


async def test_a_click_chooses_plot_and_step(recording: Path) -> None:
    app = app_on(recording)
    found = page_in(app, (120, 40))
    page = page_of(app)
    axis = next(plain(one) for one in found.lines["plot2"] if "┬" in plain(one))
    page.click("plot2", 3, [i for i, c in enumerate(axis) if c == "┬"][1])
    assert "PPO loss" in painted(app)["plot2"][0] and "step 2 of" in painted(app)["metrics"][0]
    page.click("plot2", 0, 3), page.click("figures", 1, 1), page.click("plot1", 3, 500)
    assert "step 2 of" in painted(app)["metrics"][0]
    painted(app, (80, 24))
    page.click("names", 4, 2)
    assert painted(app, (80, 24))["names"][4].startswith("> KL")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("steps", [None, 10_000])
async def test_snapshot(recording: Path, size: tuple[int, int], steps: int | None, matches_snapshot) -> None:
    app = app_on(recording, rows=None if steps is None else long_run(steps))
    page_of(app).go_to_step(9 if steps is None else 5_000)
    matches_snapshot(f"metrics-{size[0]}x{size[1]}{'' if steps is None else f'-{steps}'}", page_lines(app, size))


async def test_snapshot_in_ascii(recording: Path, matches_snapshot) -> None:
    app = app_on(recording, ascii_only=True)
    page_of(app).go_to_step(9)
    lines = page_lines(app, (120, 40))
    assert "\n".join(lines).isascii()
    matches_snapshot("metrics-120x40-ascii", lines)


async def test_the_page_in_the_real_screen(recording: Path, screen_lines) -> None:
    app = app_on(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("left", "z", "y", "S", "t", "t", "slash", "k", "l", "enter")
        await pilot.pause()
        lines = screen_lines(app)
    assert {cell_len(one) for one in lines} == {120}
    assert any("filter kl: 1 of" in one for one in lines) and any("v1 " in one for one in lines)


async def test_a_paint_without_news_draws_nothing_again(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_on(recording, rows=long_run(300))
    before = painted(app, (200, 60))
    monkeypatch.setattr("console.tui.plot.curves", None)
    monkeypatch.setattr("console.tui.plot.bar_chart", None)
    assert painted(app, (200, 60)) == before
    assert all(figure.about for figure in FIGURES.values())
