"""Messages that really leave: to a command, to an HTTP server, and to ones that hang, fail or are not there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from console.engine import notify
from console.engine.board import Board
from console.engine.notify import Notifier
from console.engine.supervisor import Engine
from console.journal import events as ev
from console.journal.reader import Journal
from console.training.options import ConsoleOptions, parse

SECRET = "s3cret"


class Nobody:
    """A command handler that does nothing."""

    def describe(self, command: Any) -> tuple[bool, str]:
        return True, ""

    async def execute(self, command: Any) -> tuple[bool, str]:
        return True, ""


class Site:
    """A real HTTP server. Answers with `status`; hangs before that while `hang` is set."""

    def __init__(self) -> None:
        self.url, self.status, self.hang = "", 200, False
        self.posts: list[dict[str, Any]] = []
        self.gets: list[str] = []
        self.times: list[float] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.posts.append(await request.json())
        else:
            self.gets.append(request.path_qs)
        self.times.append(time.monotonic())
        if self.hang:
            await asyncio.sleep(60.0)
        return web.Response(status=self.status, headers={"location": "/elsewhere"}, text="x" * 5000)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    served, app = Site(), web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/{SECRET}"
    yield served
    await runner.cleanup()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a test can wait for; time-outs that only a hanging channel meets."""
    monkeypatch.setattr(notify, "END_SECONDS", 20.0)
    monkeypatch.setattr(notify, "RETRY_SECONDS", (0.05, 0.05))
    monkeypatch.setattr(notify, "DUE_SECONDS", 0.05)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts a board with these options; closed at the end."""
    boards: list[Board] = []

    async def start(**options: Any) -> Board:
        board = Board(tmp_path / "run", "r1", tmp_path / "s.sock", Nobody())
        board.notifier = Notifier.of(ConsoleOptions(**options), board.emit)
        boards.append(board)
        await board.start()
        board.emit(ev.RunStarted(run_id="r1", name="demo"))
        return board

    yield start
    for board in boards:
        await board.close(None)


def script(path: Path, body: str) -> str:
    """An executable Python script as a command line."""
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"'{path}' 'two words' {SECRET}"


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


def alarm(key: str = "k") -> ev.AlarmOpened:
    return ev.AlarmOpened(key=key, level="critical", text="gateway unreachable", consequence="c", remedy="r")


def end(status: str = "completed", code: int = 0, reason: str = "") -> ev.RunFinished:
    return ev.RunFinished(status=status, exit_code=code, reason=reason)


def notes(tmp_path: Path) -> list[str]:
    return [e.text for e in Journal(tmp_path / "run" / "journal").events() if isinstance(e, ev.Note)]


async def test_command_and_webhook_get_each_message_in_order(started: Any, site: Site, tmp_path: Path) -> None:
    log = tmp_path / "told.jsonl"
    body = (
        f"open({str(log)!r}, 'a').write(json.dumps([sys.argv[1:], json.load(sys.stdin)]) + '\\n'); print('x' * 100000)"
    )
    board = await started(notify_command=script(tmp_path / "tell", body), notify_webhook=site.url)
    board.emit(alarm())
    board.emit(ev.AlarmClosed(key="k"))
    board.emit(ev.DispatchPaused(paused=True, by="ada"))
    await until(lambda: len(site.posts) == 3)
    await board.close(end("stopped", 3, "stopped now by ada"))
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert [words for words, _ in told] == [["two words", SECRET]] * 4
    assert [notice for _, notice in told] == site.posts
    assert [n["event"] for n in site.posts] == ["alarm.opened", "alarm.closed", "run.paused", "run.ended"]
    first = site.posts[0]
    assert (first["run"], first["run_id"], first["key"], first["remedy"]) == ("demo", "r1", "k", "r") and first["host"]
    assert site.posts[-1]["text"] == "run stopped, exit 3: stopped now by ada"
    assert board.notifier.failures == {}


async def test_nobody_who_wants_to_be_told() -> None:
    assert Notifier.of(ConsoleOptions(), lambda event: None) is None


@pytest.mark.parametrize(
    "trouble", ["hanging command", "failing command", "no command", "hanging site", "500", "302", "gone"]
)
async def test_trouble_is_told_once_and_never_waited_for(
    started: Any,
    site: Site,
    tmp_path: Path,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine goes on at once, the journal says what is wrong without saying the secret, and the end comes."""
    caplog.set_level(logging.DEBUG, logger="console")
    if trouble.startswith("hanging"):
        monkeypatch.setattr(notify, "SEND_SECONDS", 0.25)
    child = tmp_path / "child.pid"
    hang = f"if os.fork() == 0: open({str(child)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(60)"
    options, part = {
        "hanging command": ({"notify_command": script(tmp_path / "h", hang)}, "took longer than 0.25 s"),
        "failing command": ({"notify_command": script(tmp_path / "f", "sys.exit(3)")}, "exit code 3"),
        "no command": ({"notify_command": f"/nowhere/{SECRET}"}, "cannot be run (No such file"),
        "hanging site": ({"notify_webhook": site.url}, "no answer within 0.25 s"),
        "500": ({"notify_webhook": site.url}, "HTTP 500"),
        "302": ({"notify_webhook": site.url}, "HTTP 302"),
        "gone": ({"notify_webhook": f"http://127.0.0.1:9/{SECRET}"}, "cannot be reached"),
    }[trouble]
    site.hang, site.status = trouble == "hanging site", int(trouble) if trouble.isdecimal() else 200
    board = await started(**options)
    for n in range(3):
        board.emit(alarm(f"k{n}"))
    assert len(board.view.state.alarms) == 3 and board.notifier.failures == {}, "it went on before any of them failed"
    await until(lambda: sum(board.notifier.failures.values()) == 3)
    await board.close(end())
    assert sum(board.notifier.failures.values()) == 4
    (note,) = notes(tmp_path)
    assert part in note and note.startswith("console.notify_")
    assert SECRET not in note and SECRET not in caplog.text
    recorded = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert SECRET.encode() not in recorded
    if trouble in ("500", "hanging site"):
        assert [n["key"] for n in site.posts[:4]] == ["k0", "k0", "k0", "k1"], "tried again, in order"
    if trouble == "302":
        assert site.gets == [], "not followed"
    if trouble == "hanging command":
        await until(lambda: not any(_alive(int(pid)) for pid in child.read_text().split()))


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_a_webhook_that_comes_back_gets_the_message(started: Any, site: Site, tmp_path: Path) -> None:
    site.status = 503
    board = await started(notify_webhook=site.url)
    board.emit(alarm())
    await until(lambda: site.posts)
    site.status = 204
    board.emit(alarm("k2"))
    await until(lambda: site.posts[-1]["key"] == "k2")
    assert board.notifier.failures == {} and notes(tmp_path) == []


async def test_the_end_does_not_wait_long_for_channels_that_hang(
    started: Any, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SEND_SECONDS", 500.0)
    monkeypatch.setattr(notify, "END_SECONDS", 0.2)
    site.hang, pid = True, tmp_path / "pid"
    body = f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    board = await started(notify_webhook=site.url, ping_url=site.url, notify_command=script(tmp_path / "h", body))
    board.emit(alarm())
    await until(lambda: site.posts and pid.exists() and pid.read_text())
    await asyncio.wait_for(board.close(end("failed", 7)), 60.0)
    assert not board.notifier._senders and not board.notifier._tasks
    assert not _alive(int(pid.read_text()))


async def test_a_channel_that_takes_nothing_does_not_grow(
    started: Any, site: Site, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(notify, "QUEUE_LIMIT", 5)
    monkeypatch.setattr(notify, "SEND_SECONDS", 50.0)
    monkeypatch.setattr(notify, "END_SECONDS", 0.1)
    site.hang = True
    board = await started(notify_webhook=site.url)
    board.emit(alarm("first"))
    await until(lambda: site.posts)
    for n in range(20):
        board.emit(alarm(f"k{n}"))
    assert board.notifier._queues[0][1].qsize() == 5 and board.notifier.failures == {"console.notify_webhook": 15}
    assert "more messages than it takes" in notes(tmp_path)[0]


async def test_an_alarm_that_opened_too_soon_is_told_when_it_may(started: Any, site: Site) -> None:
    board = await started(notify_webhook=site.url, notify_every=0.5)
    board.emit(alarm())
    board.emit(ev.AlarmClosed(key="k"))
    board.emit(alarm())
    await until(lambda: len(site.posts) == 3)
    assert [n["event"] for n in site.posts] == ["alarm.opened", "alarm.closed", "alarm.opened"]
    assert site.posts[2]["ts"] - site.posts[0]["ts"] >= 0.5


async def test_pings_while_the_run_lives_and_silence_after(started: Any, site: Site) -> None:
    board = await started(ping_url=f"{site.url}?a=b", ping_interval=0.05)
    await until(lambda: len(site.gets) >= 3)
    assert set(site.gets) == {f"/{SECRET}?a=b"} and site.posts == []
    await board.close(end("stopped", 3))
    count = len(site.gets)
    await asyncio.sleep(0.2)
    assert len(site.gets) == count and set(site.gets) == {f"/{SECRET}?a=b"}


async def test_a_run_that_failed_says_so_to_the_ping(started: Any, site: Site) -> None:
    board = await started(ping_url=f"{site.url}?a=b")
    await until(lambda: site.gets)
    await board.close(end("failed", 7))
    assert site.gets == [f"/{SECRET}?a=b", f"/{SECRET}/fail?a=b"]


async def test_a_ping_that_fails_is_told_once(started: Any, site: Site, tmp_path: Path) -> None:
    site.status = 404
    board = await started(ping_url=site.url, ping_interval=0.02)
    await until(lambda: len(site.gets) >= 3)
    site.status = 200
    count = len(site.gets)
    await until(lambda: len(site.gets) >= count + 2)
    await board.close(end())
    assert notes(tmp_path) == ["console.ping_url answers with HTTP 404; further failures are only counted"]


async def test_an_engine_tells_and_records_what_its_options_say(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    words = ["config.learning_rate=1e-6", "config.model_name=m", "config.max_tokens=8", f"config.log_path={run_dir}"]
    words += ["config.dataset_builder.tasks_dir=/nowhere", "harbor.trial_config=t.json", "console.alarms.kl=0.5"]
    engine = Engine(parse([*words, f"console.notify_webhook={site.url}"]), run_dir, "r1", "stop")
    await engine.start()
    await engine.board.close(end("stopped", 3))
    assert [notice["event"] for notice in site.posts] == ["run.ended"]
    state = engine.board.view.state
    assert state.thresholds["kl"] == 0.5 and state.thresholds["clip_share"] == 0.2
    assert state.config["console.notify_webhook"] == "[redacted]"
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in run_dir.rglob("*") if p.is_file())
