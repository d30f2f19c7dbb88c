"""The config page: what differs from the defaults, what was changed since, and nothing that is secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_engine import SmallEngine

from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.reduce import RunView, fold
from console.tui.app import ConsoleApp
from console.tui.pages.config import bare_url
from console.tui.replay import ReplaySource
from console.tui.themes import Themes

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J"


def started(**more) -> list[ev.Event]:
    return [
        ev.RunStarted(
            run_id="r1", name="tb2", run_dir="/runs/tb2", model="Qwen/Qwen3.6", steps=9, groups_per_batch=4,
            group_size=8,
            gateway_url="https://ada:secret@gw.example:8443/v1?key=hidden", on_failure="hold",
            versions={"tinker": "0.38.0", "harbor": "0.26.1"},
            config={"config.learning_rate": 2e-05, "config.eval_every": None, "harbor.retry": True,
                    "config.long": "x" * 300, HOSTILE: HOSTILE},
            tunables={"parallel": 4.0, "token_budget": None},
            thresholds={"disk_gb": 50.0, "gateway_down_seconds": 10.0},
        ),
        *more.get("events", ()),
    ]  # fmt: skip


def recording_of(path: Path, events: list[ev.Event]) -> ReplaySource:
    from console.journal.writer import JournalWriter

    with JournalWriter(path / "journal") as writer:
        for event in events:
            writer.append(event)
    return ReplaySource(RunRecord(path), at_end=True)


@pytest.mark.parametrize("size", [(80, 40), (120, 40), (60, 40)])
async def test_what_differs_is_shown_and_secrets_are_not(tmp_path: Path, screen_lines, size: tuple[int, int]) -> None:
    changes = [
        ev.RunTuned(name="parallel", old=4.0, new=2.0, by="ada"),
        ev.TaskQuarantined(task="flaky" + HOSTILE, on=True),
    ]
    source = recording_of(tmp_path, started(events=changes))
    app = ConsoleApp(source, Themes(themes_dir()))
    async with app.run_test(size=size) as pilot:
        await pilot.press("i")
        first = "\n".join(screen_lines(app))
        await pilot.press("G")
        text = first + "\n".join(screen_lines(app))
        await pilot.press("Y")
        whole = app.desk.page.yank_text()  # type: ignore[attr-defined]
    flat = " ".join(text.split())
    for words in (
        "model Qwen/Qwen3.6", "gateway https://gw.example:8443/v1", "config.learning_rate 2e-05",
        "config.eval_every none", "harbor.retry true", "parallel 4 -> 2", "token_budget none", "flaky quarantined",
        "tinker 0.38.0", "batch 4 groups of 8",
    ):  # fmt: skip
        assert words in flat, words
    assert not any(secret in text + whole for secret in ("secret", "ada", "hidden", "PWNED", "\x1b"))
    assert "gateway_down_seconds" not in text  # as by default
    assert whole.count("x" * 30) >= 3 and "Versions" in whole


async def test_the_filter_narrows_while_it_is_typed(tmp_path: Path, screen_lines) -> None:
    app = ConsoleApp(recording_of(tmp_path, started()), Themes(themes_dir()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("i", "slash", *"tinker")
        await pilot.pause()
        body = [line.strip() for line in screen_lines(app)[2:-3] if line.strip()]
        assert body == ["Versions", "tinker  0.38.0"]
        await pilot.press("escape")  # as it was before
        await pilot.pause()
        assert "learning_rate" in "\n".join(screen_lines(app))
        await pilot.press("slash", *"zzz", "enter")
        await pilot.pause()
        assert "nothing here has these words" in "\n".join(screen_lines(app))
        await pilot.press("escape")
        assert app.desk.page.id == "config"
        await pilot.press("escape")
        assert app.desk.page.id == "run"


async def test_thresholds_that_differ(tmp_path: Path) -> None:
    from console.state.thresholds import AlarmThresholds

    usual = AlarmThresholds().gateway_down_seconds
    view = fold(
        [ev.RunStarted(run_id="r", thresholds={"gateway_down_seconds": usual + 5, "other": 1.5}, seq=1, ts=1.0)]
    )
    from console.tui.pages.config import _thresholds

    found = {name: span.text for name, span in _thresholds(view.state)}
    assert found == {"gateway_down_seconds": f"{usual + 5:g} (default {usual:g})", "other": "1.5"}
    assert _thresholds(RunView().state) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://u:p@host/path?token=1#f", "https://host/path"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("user:pw@host:1/x?y", "host:1/x"),
        ("http://host:notaport/", "(not an address)"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_what_opens_it(url: str, shown: str) -> None:
    assert bare_url(url) == shown


async def test_an_engine_without_a_word_of_it(tmp_path: Path) -> None:
    engine = SmallEngine(tmp_path, tmp_path / "s.sock")
    engine.begin()
    await engine.close()
    app = ConsoleApp(ReplaySource(RunRecord(tmp_path), at_end=True), Themes(themes_dir()))
    page = app.desk.show("config")
    sections = {s.heading: [row.text.strip() for row in s.rows] for s in page.sections(app.desk.scene(), 76)}  # type: ignore[attr-defined]
    assert sections["Options"] == ["every option has its default"]
    assert sections["While it runs"] == ["the run says nothing of it"]
    assert "Tasks left out" not in sections
