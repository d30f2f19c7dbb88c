"""The pages under keys: down to a verdict and back, marks, filters, sides, reading again, and the way to a mop-up."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, tree_hash
from look_jobs import DEAD, KEY, PASSED, WORK, first_job
from look_stage import app_on, desk_of, opened, press, reader_of, settle, until

from console.tui.app import ConsoleApp
from console.tui.bench.pages import PAGES
from console.tui.bench.pages.versus import VersusPage
from console.tui.pages.help import entries

HOSTILE = "ev\x1b]0;PWNED\x07il\r\n\x9b2J" + "日本" * 30 + "x" * 10_000


def chosen(app: ConsoleApp) -> object:
    return desk_of(app).page._chosen  # type: ignore[attr-defined]


def page_id(app: ConsoleApp) -> str:
    return desk_of(app).page.id


async def test_down_to_the_deciding_line_and_back(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        assert page_id(app) == "triage"
        lines = screen_lines(app)
        assert lines[0].startswith(" a  20 of 20 planned trials, finished") and "Triage" in lines[1]
        await press(app, pilot, "colon", *"goto bad", "enter")
        assert chosen(app) == ("class", "bad_reward")
        assert any("so what decided" in line or "e.g.: task-17: verifier/test-stdout.txt:3: " in line
                   for line in screen_lines(app))  # fmt: skip
        await press(app, pilot, "enter")
        assert page_id(app) == "trials" and "1/2" in screen_lines(app)[1]
        await press(app, pilot, "j", "enter")
        assert page_id(app) == "verdict" and "Trial  task-18" in screen_lines(app)[1]
        assert any(line.startswith(" > 3 /tests/test.sh: line 5: uvx: command not found") for line in screen_lines(app))
        await press(app, pilot, "K")
        assert "Trial  task-17" in screen_lines(app)[1]
        await press(app, pilot, "K")
        assert "no further trial" in screen_lines(app)[-1]
        await press(app, pilot, "slash", *"uvx", "enter")
        assert "match 1 of" in screen_lines(app)[1]
        await press(app, pilot, "escape", "escape", "escape")
        assert page_id(app) == "triage" and chosen(app) == ("class", "bad_reward")
        await press(app, pilot, "escape")
        assert page_id(app) == "triage"


async def test_marks_are_kept_from_page_to_page(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        await press(app, pilot, "colon", *"goto infra", "enter", "space")
        assert len(desk_of(app).marks) == 3 and " 3 marked " in screen_lines(app)[0]
        await press(app, pilot, "enter", "space")
        assert len(desk_of(app).marks) == 2 and screen_lines(app)[3].startswith("  !"), "and on to the next"
        assert screen_lines(app)[4].startswith(">*!")
        await press(app, pilot, "a")
        assert len(desk_of(app).marks) == 3
        await press(app, pilot, "a")
        assert not desk_of(app).marks
        await press(app, pilot, "escape", "g", "enter", "a")
        assert len(desk_of(app).marks) >= 3
        await press(app, pilot, "C")
        assert not desk_of(app).marks and "cleared" in screen_lines(app)[-1]


async def test_filter_sort_and_goto(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        await press(app, pilot, "slash", *"uvx", "enter")
        assert "/uvx" in screen_lines(app)[1] and "bad_reward/verifier_fault" in screen_lines(app)[3]
        await press(app, pilot, "slash", "ctrl+u", *"nosuch", "enter")
        assert "no trial has these words" in screen_lines(app)[2]
        await press(app, pilot, "enter")
        assert "there is nothing to open" in screen_lines(app)[-1]
        await press(app, pilot, "slash", "ctrl+u", *'task:"', "enter")
        assert "quote" in screen_lines(app)[-1]
        await press(app, pilot, "escape", "o")
        assert "by count" in screen_lines(app)[1]
        await press(app, pilot, "ctrl+g", *"compl", "enter", "enter")
        assert page_id(app) == "trials"
        await press(app, pilot, "ctrl+g", *"task-05", "enter")
        assert str(chosen(app)).split("/")[-1].startswith("task-05")
        await press(app, pilot, "ctrl+g", *"3", "enter")
        assert str(chosen(app)).split("/")[-1].startswith("task-02")
        await press(app, pilot, "ctrl+g", *"zzz", "enter")
        assert "no row zzz" in screen_lines(app)[-1]
        await press(app, pilot, "o")
        assert "by reward" in screen_lines(app)[1] and "1.000" in screen_lines(app)[3]
        await press(app, pilot, "slash", *"status:marked", "enter")
        assert "no trial has these words" in screen_lines(app)[2]


async def test_the_tally_has_its_rules(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app, (100, 40)) as pilot:
        await press(app, pilot, "t")
        text = "\n".join(screen_lines(app))
        assert "infra-excluded" in text and "95 % interval" in text and "9  14  64.29 %" in text
        await press(app, pilot, "slash", *"query v4", "enter")
        assert "match 1 of 1" in screen_lines(app)[1]
        await press(app, pilot, "right")
        assert "one run only" in screen_lines(app)[-1]


async def test_the_comparison_warns_first_and_opens_both_sides(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"], [two_jobs / "b"]))
    async with opened(app) as pilot:
        lines = screen_lines(app)
        assert page_id(app) == "versus" and "! " in lines[1] and "warnings: read first" in lines[1]
        assert lines[2].startswith(" ! the runs differ in timeout multiplier")
        await press(app, pilot, "G")
        assert "warnings: read first" in screen_lines(app)[1], "also where they are scrolled away"
        await press(app, pilot, "tab", "j", "enter")
        lines = screen_lines(app)
        assert page_id(app) == "task" and "Task  task-09" in lines[1] and lines[3].count("1.1") == 2
        await press(app, pilot, "right", "space", "enter")
        assert page_id(app) == "verdict" and any(f"{two_jobs}/b" in path for path in desk_of(app).marks)
        await press(app, pilot, "escape", "escape", "right")
        page = desk_of(app).page
        assert isinstance(page, VersusPage) and page.mode == "infra-excluded-strict"
        lines = screen_lines(app)
        assert "← infra-excluded-strict →" in lines[1] and "warnings: read first" in lines[1]
        await press(app, pilot, "left", "tab", "g")
        text = " ".join(" ".join(screen_lines(app)).split())
        assert "By infra-excluded: B is ahead of A by 14.3 points" in text and "← infra-excluded →" in text
        await press(app, pilot, "tab", "right")
        await press(app, pilot, "J")
        assert "one pair only" in screen_lines(app)[-1]
        await press(app, pilot, "slash", *"task-1", "enter")
        assert "/task-1" in "\n".join(screen_lines(app))
        await press(app, pilot, "escape", "escape")
        assert page_id(app) == "triage" and screen_lines(app)[0].startswith(" A a ")
        await press(app, pilot, "right")
        assert screen_lines(app)[0].startswith(" B b ")
        await press(app, pilot, "c")
        assert page_id(app) == "versus"


async def test_one_run_is_told_how_to_compare(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        await press(app, pilot, "c")
        assert "--against DIR" in " ".join(screen_lines(app)[2:4])


async def test_a_running_job_is_read_again(tmp_path: Path, screen_lines) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("x", error=DEAD, files=WORK)
    job.write(finished=False, planned=3)
    app = app_on(reader_of([job.path]))
    async with opened(app) as pilot:
        assert "1 of 3 planned trials, not finished" in screen_lines(app)[0]
        await press(app, pilot, "space", "t", "escape")
        job.trial("y", 1.0, files=PASSED)
        await press(app, pilot, "ctrl+r")
        assert "2 of 3 planned trials" in screen_lines(app)[0] and len(desk_of(app).marks) == 1
        await press(app, pilot, "t")
        assert "2 trials on disk" in "\n".join(screen_lines(app))
        await press(app, pilot, "escape", "enter")
        job.trial("z", error=DEAD, files=WORK)
        await press(app, pilot, "ctrl+r")
        assert page_id(app) == "trials" and "1/2" in screen_lines(app)[1]
        await press(app, pilot, "enter")
        assert page_id(app) == "verdict" and "SandboxError" in "\n".join(screen_lines(app))
        (job.trials[0] / "exception.txt").write_text("SandboxError: it says something else now\n")
        await press(app, pilot, "ctrl+r")
        assert "it says something else now" in "\n".join(screen_lines(app))
        for path in [*job.trials[0].rglob("*")][::-1]:
            path.rmdir() if path.is_dir() else path.unlink()
        job.trials[0].rmdir()
        await press(app, pilot, "ctrl+r")
        assert "is gone" in screen_lines(app)[2] and not desk_of(app).marks
        for path in [*job.path.rglob("*")][::-1]:
            path.rmdir() if path.is_dir() else path.unlink()
        await press(app, pilot, "ctrl+r")
        assert str(job.path)[:20] in screen_lines(app)[1]


async def test_a_mop_up_is_begun_after_a_question_only(two_jobs: Path, screen_lines) -> None:
    before = tree_hash(two_jobs)
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        await press(app, pilot, "colon", *"goto infra", "enter", "space", "R")
        assert page_id(app) == "mop" and "3 attempts of 3 tasks" in "\n".join(screen_lines(app))
        await pilot.press("enter")
        await until(lambda: len(app.screen_stack) > 1)
        await pilot.press("n")
        await until(lambda: len(app.screen_stack) == 1)
        await settle(app, pilot)
        assert "not begun" in screen_lines(app)[-1] and not app._exit and desk_of(app).command == ()
        await pilot.press("R")
        await until(lambda: len(app.screen_stack) > 1)
        app.screen._last = -10.0  # type: ignore[attr-defined]  # the key is no auto-repeat
        await pilot.press("y")
        await until(lambda: app._exit)
    tasks = [part for at in (14, 15, 16) for part in ("--task", f"org/task-{at}")]
    assert desk_of(app).command == ("mop-up", str(two_jobs / "a"), *tasks)
    assert tree_hash(two_jobs) == before


async def test_a_command_that_is_only_printed_needs_no_question(two_jobs: Path) -> None:
    app = app_on(reader_of([two_jobs / "a"]), print_only=True)
    async with opened(app) as pilot:
        await press(app, pilot, "R", "enter")
        await until(lambda: app._exit)
    assert desk_of(app).command == ("mop-up", str(two_jobs / "a"))


async def test_the_marked_trials_are_written_to_a_file(two_jobs: Path, tmp_path: Path) -> None:
    app = app_on(reader_of([two_jobs / "a"]))
    async with opened(app) as pilot:
        await press(app, pilot, "colon", *"goto infra", "enter")
        await desk_of(app).looking.export(str(tmp_path / "listed.csv"))
        await press(app, pilot, "space")
        await press(app, pilot, "colon", *"goto bad", "enter", "enter", "space")
        await desk_of(app).looking.export(str(tmp_path / "marked.json"))
        await desk_of(app).looking.export(str(tmp_path / "screen.txt"))
    with (tmp_path / "listed.csv").open() as file:
        assert [row["task"] for row in csv.DictReader(file)] == [f"org/task-{at}" for at in (14, 15, 16)]
    records = [json.loads(line) for line in (tmp_path / "marked.json").read_text().splitlines()]
    assert [record["task"] for record in records] == [f"org/task-{at}" for at in (14, 15, 16, 17)]
    assert all(record["marked"] for record in records) and records[-1]["evidence_line"] == 3
    assert "bad_reward/verifier_fault" in (tmp_path / "screen.txt").read_text()


async def test_every_key_in_the_help_is_one_of_the_page(two_jobs: Path, screen_lines) -> None:
    app = app_on(reader_of([two_jobs / "a"], [two_jobs / "b"]))
    ways = {"versus": "", "task": "tab enter", "verdict": "enter", "triage": "escape escape escape", "trials": "enter",
            "mop": "R", "tally": "t"}  # fmt: skip
    assert {*ways, "help"} == set(PAGES)
    async with opened(app) as pilot:
        for page, keys in ways.items():
            await press(app, pilot, *keys.split())
            desk = desk_of(app)
            assert desk.page.id == page
            told = entries(desk, desk.page)
            for entry in told:
                assert {desk.meant(key).id for key in entry.keys} <= set(entry.actions), entry  # type: ignore[union-attr]
            here = {key for key in desk.keymap.by_key if (a := desk.meant(key)) and desk.available(a)}
            assert here <= {key for entry in told for key in entry.keys}, page
            assert not any(action.startswith("page_") for entry in told for action in entry.actions)
        await press(app, pilot, "question_mark")
        assert "nothing was written into any of the directories" in "\n".join(screen_lines(app))


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 60)])
async def test_hostile_names_are_painted_as_what_they_are(tmp_path: Path, screen_lines, size: tuple[int, int]) -> None:
    for name, agent, reward in (("a\x1b[2J", "x", 1.0), ("b\n日本", HOSTILE[:200], 0.0)):
        job = HarborJob(tmp_path / name, agent=agent, model=f"m/{HOSTILE[:300]}")
        job.trial(f"org/{HOSTILE}", reward, name="one__1", files=PASSED)
        job.trial(
            "e\u0301" * 300, error=(HOSTILE[:300], HOSTILE), name="two__2", files={**WORK, "agent/o.txt": HOSTILE}
        )
        job.trial(f"{KEY}\u202e", 0.0, name="three__3", files=PASSED)
        job.write()
    paths = sorted(tmp_path.iterdir())
    app = app_on(reader_of(paths[:1], paths[1:]), ascii_only=size == (60, 16))
    seen = set()
    async with opened(app, size) as pilot:
        for keys in (
            "",
            "tab enter",
            "enter",
            "escape escape escape",
            "space enter",
            "enter",
            "R",
            "t",
            "question_mark",
        ):
            await press(app, pilot, *keys.split())
            for line in screen_lines(app):
                assert line.isprintable() and "PWNED" not in line, ascii(line)
                assert not app.desk.ascii or line.isascii(), ascii(line)
            seen.add(page_id(app))
    assert {"versus", "task", "verdict", "triage", "trials", "mop", "tally", "help"} == seen


async def test_a_directory_that_takes_long_leaves_the_keys_alive(tmp_path: Path, screen_lines) -> None:
    first_job(tmp_path / "a")
    reader = reader_of([tmp_path / "a"])
    app = app_on(reader)
    go_on = threading.Event()
    heard = reader._heard
    reader._sessions[0]._heard = lambda count, job: (heard(count, job), go_on.wait(20))[0]  # type: ignore
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: reader.count == 1)
        assert all(one.daemon for one in threading.enumerate() if one.name == "bench-look"), "nobody waits for it"
        desk_of(app).tick()
        app.repaint()
        await pilot.pause()
        assert screen_lines(app)[0].startswith(" reading: 1 trials")
        await pilot.press("question_mark")
        await pilot.pause()
        assert page_id(app) == "help" and desk_of(app).survey is None
        await pilot.press("escape", "enter", "t", "R", "enter", "c", "enter")
        await pilot.pause()
        assert desk_of(app).survey is None
        go_on.set()
        await until(lambda: desk_of(app).survey is not None)
