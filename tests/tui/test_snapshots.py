"""Every screen at three sizes in three themes, driven by recordings, as files under `snapshots/screens`.

UPDATE_SNAPSHOTS=1 writes them anew. What a file looks like: `tests/support/screens.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from page_bench import Clock
from rich.segment import Segment
from rich.style import Style
from screens import THEMES, Cells, Shelf, cells_of
from textual.pilot import Pilot
from walking import START, LiveRecording, home, opened, press, settle

from console.control.registry import RunEntry, state_dir
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.model import encode_state
from console.state.reduce import RunView, apply
from console.tui import opening
from console.tui.app import ConsoleApp
from console.tui.empty import EmptySource
from console.tui.pages import runs as runs_page
from console.tui.replay import ReplaySource
from console.tui.themes import Themes
from console.tui.widgets.dialog import Dialog

SIZES = ((80, 24), (120, 40), (200, 60))
DIRECTORY = Path(__file__).parent / "snapshots" / "screens"


# --- what is shown, and how it is reached ---


@dataclass(frozen=True)
class Screen:
    """One screen: its name, and the keys that lead to it from the first page. A dialog is `over` it at last or not."""

    name: str
    keys: str = ""
    over: bool = False

    @property
    def pressed(self) -> list[str]:
        return self.keys.split()


TRIAL = (
    Screen("trial-transcript", "f3"),
    Screen("trial-verifier", "f3 v"),
    Screen("trial-tokens", "f3 c"),
    Screen("trial-table", "f3 c enter"),
    Screen("trial-log", "f3 l"),
    Screen("trial-result", "f3 e"),
    Screen("trial-why", "f3 b"),
)
PAGES = (
    Screen("run"),
    Screen("events", "E"),
    Screen("alarms", "L"),
    Screen("metrics", "m"),
    Screen("config", "i"),
    Screen("help", "question_mark"),
)
SCREENS: dict[str, tuple[Screen, ...]] = {
    "start": (*PAGES[:4], Screen("trial", "f3")),
    "held": (
        *PAGES,
        *TRIAL,
        Screen("run-events", "4 j j"),
        Screen("run-plots", "6"),
        Screen("run-filter", "slash g : 3 enter"),
        Screen("events-filter", "E slash c l a s s : i n f r a enter"),
        Screen("events-chosen", "E k k k"),
        Screen("metrics-cursor", "m tab left left y S"),
        Screen("metrics-zoom", "m z"),
        Screen("metrics-figures", "m t"),
        Screen("help-metrics", "m question_mark"),
        Screen("help-end", "question_mark G"),
        Screen("runs", "u"),
        Screen("palette", "ctrl+p", over=True),
        Screen("palette-found", "ctrl+p m e t r", over=True),
        Screen("goto", "ctrl+g"),
        Screen("command-line", "colon p a g e space tab"),
        Screen("scrub", "vertical_line left left left"),
        Screen("leave", "ctrl+c", over=True),
    ),
    "retried": tuple(
        Screen(name, f"colon t r i a l space g 3 slash t 5 enter f3 {keys}".strip())
        for name, keys in (
            ("trial-transcript", ""),
            ("trial-verifier", "v"),
            ("trial-result", "e"),
            ("trial-why", "b"),
            ("trial-first-try", "left_parenthesis"),
        )
    ),
    "end": (*PAGES[:4], TRIAL[0]),
    "torn": (PAGES[0], PAGES[1]),
    "waiting": (PAGES[0], Screen("run-gateway", "5")),
    "again": (PAGES[0],),
    "resumed": (
        PAGES[0],
        PAGES[1],
        Screen("run-gateway", "5"),
        Screen("metrics-figures", "m t left"),
    ),
    "live": (
        PAGES[0],
        TRIAL[0],
        PAGES[1],
        Screen("help", "question_mark"),
        Screen("confirm", "x", over=True),
        Screen("leave", "ctrl+c", over=True),
        Screen("stop-now", "ctrl+c c", over=True),
        Screen("tune", "equals_sign"),
        Screen("note", "semicolon"),
        Screen("frozen", "P"),
        Screen("answer", "C"),
        Screen("palette", "ctrl+p", over=True),
    ),
    "alarm": (PAGES[0], PAGES[2], Screen("alarms-chosen", "L j"), Screen("shelve", "h")),
    "nothing": (Screen("runs"), Screen("help", "question_mark")),
    "list": (Screen("runs"), Screen("runs-filter", "slash n a m e : d e")),
}


# --- the moments ---


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose engine was killed in step 6, with a hole in its journal and half a last line."""
    from make import Plan, make

    path = tmp_path_factory.mktemp("snapshots") / "torn"
    make(path, Plan(steps=6, planned=15, open_step=True, operated=True, held_step=None))
    chunk = next((path / "journal").glob("0*.jsonl"))
    data = bytearray(chunk.read_bytes()[:-9])
    middle = len(data) * 5 // 6
    data[middle : middle + 2000] = b"\x00" * 2000
    chunk.write_bytes(bytes(data))
    return path


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed and resumed, at a Miles gateway."""
    from made_resumed import make_resumed

    path = tmp_path_factory.mktemp("snapshots") / "resumed"
    make_resumed(path)
    return path


def seqs(run: Path, kind: type[ev.Event]) -> list[int]:
    return [event.seq for event in RunRecord(run).journal.events() if isinstance(event, kind)]


@pytest.fixture(scope="module")
def moments(operated: Path, resumed: Path) -> dict[str, int]:
    """The last event of each moment."""
    held = seqs(operated, ev.TrialHeld)[0]
    return {
        "start": seqs(operated, ev.RunPlanned)[0],
        "held": held + 60,
        "live": held + 60,
        "retried": seqs(operated, ev.TrialRetried)[0] + 20,
        "alarm": seqs(operated, ev.AlarmOpened)[1] + 120,
        "end": seqs(operated, ev.RunFinished)[0],
        "waiting": seqs(resumed, ev.GatewayWaiting)[0] + 1,
        "again": seqs(resumed, ev.StepStarted)[-2] + 30,
        "resumed": seqs(resumed, ev.Note)[-1],
    }


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of four runs: one lives, on another host; of the others one has no last word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(runs_page, "wall_clock", lambda: START + 3 * 3600)
    lines = []
    for run_id, name, age, status in (
        ("demo-0007", "demo", 9000.0, ""),
        ("night-0003", "night shift with a name that is long", 86_400.0, "failed"),
        ("first-0001", "first", 400_000.0, "completed"),
        ("lost-0002", "lost", 7200.0, "dead"),
    ):
        run = Path("runs") / name.replace(" ", "-")
        _small_run(run, run_id, name, START + 3 * 3600 - age, status)
        live = status == ""
        lines.append(
            RunEntry(
                run_id=run_id, run_dir=str(run), name=name, pid=0 if not live else 1, started=START,
                host="elsewhere" if live else "",
            )
        )  # fmt: skip
    (state_dir() / "runs.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _small_run(run: Path, run_id: str, name: str, began: float, status: str) -> None:
    run.mkdir(parents=True)
    view = RunView()
    with JournalWriter(
        run / "journal", snapshot=lambda: (encode_state(view.state), view.state.steps_done), clock=lambda: began
    ) as writer:

        def add(event: ev.Event) -> None:
            apply(view, writer.append(event))

        add(ev.RunStarted(run_id=run_id, name=name, run_dir=str(run), pid=0 if status else 1, steps=20))
        for step in range(7):
            add(ev.StepStarted(step=step, groups=2, policy_version=step))
            add(ev.StepFinished(step=step, reward_mean=0.1 + 0.07 * step, policy_version=step + 1))
        add(ev.StepStarted(step=7, groups=2, policy_version=7))
        if status in ("completed", "failed"):
            code = 0 if status == "completed" else 7
            add(ev.RunFinished(status=status, exit_code=code, steps=7, reason="" if code == 0 else "disk full"))


# --- the walk ---


def app_at(moment: str, run: Path, seq: int | None, clock: Clock) -> ConsoleApp:
    themes = Themes(themes_dir())
    if moment in ("nothing", "list"):
        return ConsoleApp(EmptySource(), themes)
    if moment == "torn":
        with patch.object(opening, "PATIENCE_SECONDS", 30.0):  # the notice depends on how much was read in time
            source, notice = opening.source_of_directory(run)
        app = ConsoleApp(source, themes)
        app.desk.say(notice, "limit", seconds=None)
        return app
    record = RunRecord(run)
    source = (
        LiveRecording(record, clock, seq) if moment in ("live", "alarm") else ReplaySource(record, clock=clock, seq=seq)
    )
    source.read_marks(30)
    return ConsoleApp(source, themes)


async def walk(app: ConsoleApp, moment: str, size: tuple[int, int], clock: Clock) -> dict[str, dict[str, Cells]]:
    """Every screen of a moment, in every theme."""
    out = {}
    async with opened(app, size, clock) as pilot:
        await settle(app, pilot, clock)
        seq = app.source.view.state.seq
        for screen in SCREENS[moment]:
            await press(app, pilot, *screen.pressed)
            await settle(app, pilot, clock, screen.over)
            out[f"{screen.name}-{moment}-{size[0]}x{size[1]}"] = await in_all_themes(app, pilot)
            await home(app, pilot, clock, seq)
    return out


async def in_all_themes(app: ConsoleApp, pilot: Pilot[None]) -> dict[str, Cells]:
    """What is shown, in each theme; the last one of them is the one that was there."""
    out = {}
    for theme in (*THEMES[1:], THEMES[0]):
        app.use_theme(theme)
        if isinstance(app.screen, Dialog):
            app.screen._pane.use(app.palette)
        await pilot.pause(0)
        out[theme] = cells_of(app.screen._compositor.render_strips())
    return out


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    shelf = Shelf(DIRECTORY)
    yield shelf
    shelf.close()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("moment", list(SCREENS))
async def test_screens(
    moment: str, size: tuple[int, int], shelf: Shelf, request: pytest.FixtureRequest, moments: dict[str, int]
) -> None:
    runs = {"torn": "torn", "waiting": "resumed", "again": "resumed", "resumed": "resumed"}
    run = request.getfixturevalue(runs.get(moment, "operated"))
    if moment == "list":
        request.getfixturevalue("listed")
    elif moment in ("nothing", "held"):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(request.getfixturevalue("tmp_path") / "state"))
    clock = Clock()
    for name, seen in (await walk(app_at(moment, run, moments.get(moment), clock), moment, size, clock)).items():
        shelf.check(name, seen)


# --- the files themselves ---


def names() -> set[str]:
    return {f"{one.name}-{moment}-{w}x{h}" for moment, screens in SCREENS.items() for one in screens for w, h in SIZES}


def test_there_is_a_file_for_each_screen_and_no_other() -> None:
    shelf = Shelf(DIRECTORY)
    assert set(shelf.files()) == names()
    assert shelf.letters_used() == set(shelf.styles.values())


def test_no_file_names_a_place_of_the_machine() -> None:
    for path in DIRECTORY.glob("*.txt"):
        assert not re.search(r"/tmp|/home|/root|/work|/var|pytest", path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("change", ["text", "one theme", "no row", "another cell"])
def test_a_cell_that_differs_is_told(tmp_path: Path, change: str) -> None:
    def cells(theme: str) -> Cells:
        row = [Segment("reward ", Style(color="red")), Segment("日本 .70", Style(bold=theme == "mono"))]
        return cells_of([row, [Segment("step 12", Style())]])

    seen = {theme: cells(theme) for theme in THEMES}
    writing = Shelf(tmp_path, update=True)
    writing.check("one", seen)
    writing.close()
    Shelf(tmp_path, update=False).check("one", seen)
    text, style = seen["dark"][0][12]
    match change:
        case "text":
            for theme in THEMES:
                seen[theme][0][12] = ("1", seen[theme][0][12][1])
        case "one theme":
            seen["dark"][0][12] = (text, f"{style} bold")
        case "no row":
            for theme in THEMES:
                del seen[theme][1]
        case _:
            for theme in THEMES:
                seen[theme][1].append((" ", seen[theme][1][0][1]))
    with pytest.raises(AssertionError, match="differs in"):
        Shelf(tmp_path, update=False).check("one", seen)
