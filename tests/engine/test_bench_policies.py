"""What a benchmark run decides by itself: fewer trials at once, an early end; and what it sees of the endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from console.bench.model import Evidence, Judged
from console.bench.triage import judge
from console.engine.benchmark.early import EarlyStop
from console.engine.benchmark.endpoint import LONG_SECONDS, EndpointWatch
from console.engine.benchmark.ends import ended_by_itself, failed, refused
from console.engine.benchmark.judging import Judge, finished, without_result
from console.engine.benchmark.throttle import ThrottlePolicy
from console.errors import UsageError
from console.journal import events as ev
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import Phase, RecordedError, TrialRecord
from console.trials.job_plugin_protocol import JobFailed

# --- throttle ----------------------------------------


def _limits(policy: ThrottlePolicy, tries: str, limit: int) -> list[int]:
    """The limits that a row of tries leads to; `x` is an infrastructure failure."""
    found = []
    for one in tries:
        change = policy.ended(one == "x", limit)
        if change is not None:
            limit = change.limit
            policy.changed()
            found.append(limit)
    return found


def test_the_limit_is_halved_at_the_share_and_not_before_eight_tries() -> None:
    assert _limits(ThrottlePolicy("auto", 8, 1, 20, 0.25), "xx.....", 8) == []
    assert _limits(ThrottlePolicy("auto", 8, 1, 20, 0.25), "xx......", 8) == [4]
    assert _limits(ThrottlePolicy("auto", 8, 1, 20, 0.25), "x.......", 8) == []


def test_after_a_change_only_what_ended_since_counts() -> None:
    policy = ThrottlePolicy("auto", 8, 1, 20, 0.25)
    assert _limits(policy, "xxxxxxxx" + ".......", 8) == [4]
    assert _limits(policy, "." * 12, 4) == [], "eleven clean tries are no clean window"
    assert _limits(policy, ".", 4) == [5]


def test_it_never_goes_below_the_least_nor_above_the_most() -> None:
    assert _limits(ThrottlePolicy("auto", 8, 3, 8, 0.25), "x" * 40, 8) == [4, 3]
    assert _limits(ThrottlePolicy("auto", 5, 1, 4, 0.25), "." * 40, 4) == [5]


@pytest.mark.parametrize("mode", ["advise", "off"])
def test_without_auto_it_changes_nothing(mode: str) -> None:
    assert _limits(ThrottlePolicy(mode, 8, 1, 20, 0.25), "x" * 40, 8) == []  # type: ignore[arg-type]


# --- early stop ----------------------------------------


def _judged(
    outcome: str = "infrastructure", task: str = "a", kind: str = "SandboxError", said: str = "gone", **more: str
) -> Judged:
    record = TrialRecord(
        job=Path("/j"), path=Path(f"/j/{task}__1234567"), name=f"{task}__1234567", task=f"org/{task}",
        errors=(RecordedError(type=kind, message=said),),
    )  # fmt: skip
    rule, cause = more.get("rule", "type.sandbox"), more.get("cause", "sandbox")
    return Judged(
        trial=record, outcome=OutcomeClass(outcome), cause=cause, rule=rule, reward=0.0, evidence=Evidence(text=said)
    )


def test_failures_that_differ_only_in_names_and_numbers_are_one_failure() -> None:
    early = EarlyStop(3, tasks=9)
    assert early.ended(_judged(task="fix-git", said="fix-git__1234567: port 4711 refused")) == ""
    assert early.ended(_judged(task="sort-it", said="sort-it__1234567: port 4712 refused")) == ""
    why = early.ended(_judged(task="make-it", said="make-it__1234567: port 99 refused"))
    assert "the first 3 trials all failed the same way, infrastructure/sandbox" in why and "one task" in why
    assert "stop the job" not in why, "that is what it does"


@pytest.mark.parametrize(
    "other",
    [
        _judged(task="b", kind="ReadTimeout"),
        _judged(task="b", rule="text.sandbox"),
        _judged(task="b", said="something else"),
        _judged("completed", task="b"),
        _judged("agent_timeout", task="b"),
    ],
)
def test_one_that_differs_or_was_graded_ends_the_suspicion_for_good(other: Judged) -> None:
    early = EarlyStop(2, tasks=9)
    assert [early.ended(one) for one in (_judged(), other, *(_judged(task=f"t-{n}") for n in "cdefg"))] == [""] * 7


def test_failures_of_one_of_several_tasks_prove_nothing_and_cancelled_ones_do_not_count() -> None:
    early = EarlyStop(2, tasks=2)
    assert [early.ended(one) for one in (_judged(), _judged(), _judged("cancelled", task="b"))] == [""] * 3
    assert early.ended(_judged(task="b"))
    assert EarlyStop(1, tasks=1).ended(_judged())


def test_the_remedy_fits_the_failure() -> None:
    key = EarlyStop(1, tasks=1).ended(_judged("configuration", cause="key", said="401 Unauthorized"))
    assert "renew the key" in key and "401 Unauthorized" in key
    assert "set -o pipefail" in EarlyStop(1, tasks=1).ended(_judged(rule="text.shell"))


def test_no_key_that_an_error_quotes_is_in_the_reason() -> None:
    record = _judged(kind="AuthenticationError", said="401 Incorrect API key provided: sk-aaaaaaaaaaaaaaaa").trial
    why = EarlyStop(1, tasks=1).ended(judge(record))
    assert "all failed the same way" in why and "sk-aaaaaaaaaaaaaaaa" not in why


# --- endpoint ----------------------------------------


async def _health(status: int | None) -> ev.GatewayHealth:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if status is None:
            raise httpx.ConnectError("no route to http://user:secret@host")
        return httpx.Response(status, headers={"location": "http://elsewhere/"})

    watch = EndpointWatch("http://model/v1/", "THE_KEY", lambda event: None)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        health = await watch.ask(client)
    assert [str(request.url) for request in seen] == ["http://model/v1/models"]
    assert seen[0].headers["authorization"] == "Bearer sesame"
    return health


@pytest.mark.parametrize(
    ("status", "reachable", "says"),
    [(200, True, ""), (302, True, "answers 302"), (401, True, "refuses the key"), (404, True, "answers 404"),
     (503, False, "answers 503"), (None, False, "ConnectError")],
)  # fmt: skip
async def test_any_answer_but_a_servers_failure_is_a_sign_of_life(
    status: int | None, reachable: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sesame")
    health = await _health(status)
    assert health.reachable is reachable and says in health.detail and "secret" not in health.detail


def test_a_long_outage_is_noted_once_and_so_is_its_end() -> None:
    told: list[ev.Event] = []
    watch = EndpointWatch("http://model", "NO_KEY", told.append)
    down, up = ev.GatewayHealth(reachable=False, detail="gone"), ev.GatewayHealth(reachable=True)
    for health, now in ((down, 0.0), (down, LONG_SECONDS - 1), (down, LONG_SECONDS), (down, 900.0), (up, 901.0)):
        watch.tell(health, now)
    notes = [event.text for event in told if isinstance(event, ev.Note)]
    assert len(notes) == 2 and "2 min (gone)" in notes[0] and "again" in notes[1]
    watch.tell(down, 1000.0)
    watch.tell(down, 1000.0 + LONG_SECONDS - 1)
    assert len([event for event in told if isinstance(event, ev.Note)]) == 2


async def test_the_watch_asks_a_real_server_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()) not in (b"\r\n", b""):
            lines.append(line.decode().strip())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\nendless")
        await writer.drain()
        writer.close()

    monkeypatch.setenv("THE_KEY", "sesame")
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    told: list[ev.Event] = []
    port = server.sockets[0].getsockname()[1]
    watch = asyncio.ensure_future(EndpointWatch(f"http://127.0.0.1:{port}/v1", "THE_KEY", told.append, 0.02).run())
    async with asyncio.timeout(20):
        while len(told) < 3:  # noqa: ASYNC110 - told by a callback
            await asyncio.sleep(0.02)
    watch.cancel()
    server.close()
    assert all(isinstance(event, ev.GatewayHealth) and event.reachable for event in told)
    assert lines.count("GET /v1/models HTTP/1.1") >= 3 and "Authorization: Bearer sesame" in lines


# --- verdicts and ends ----------------------------------------


def test_infrastructure_is_never_a_reward_and_a_time_in_the_queue_is_none_of_the_trials() -> None:
    judged = _judged()
    record = TrialRecord(
        job=Path("/j"), path=Path("/j/t"), name="t", began=100.0, ended=190.0,
        phases={"environment": Phase(began=160.0, ended=165.0), "agent": Phase(began=165.0, ended=185.0)},
    )  # fmt: skip
    event = finished(Judged(trial=record, outcome=judged.outcome, reward=0.0, evidence=Evidence(text="gone")), 1, 2, 3)
    assert event.reward is None and event.retryable and event.evidence == "gone"
    assert event.seconds == {"environment": 5.0, "agent": 20.0, "total": 30.0}
    assert (event.group, event.trial, event.try_) == (1, 2, 3)


def test_a_trial_that_was_cut_off_is_infrastructure_unless_its_exception_says_more(tmp_path: Path) -> None:
    for name in ("bare", "told"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "told" / "exception.txt").write_text("Traceback\nopenai.AuthenticationError: 401 bad key\n")
    judge = Judge(tmp_path)
    assert not judge.ended("bare")
    bare = without_result(finished(judge.look("bare"), 0, 0, 0), "Harbor was killed")
    assert (bare.outcome, bare.cause, bare.evidence, bare.retryable) == (
        "infrastructure",
        "runner",
        "Harbor was killed",
        True,
    )
    told = without_result(finished(judge.look("told"), 0, 0, 0), "Harbor was killed")
    assert (told.outcome, told.cause) == ("configuration", "key")


def test_an_end_by_harbor_has_its_words_and_its_code() -> None:
    mistake = JobFailed(kind="ValueError", text="no\n tasks sk-aaaaaaaaaaaaaa", mistake=True)
    cause = refused(mistake, 1)
    assert cause.exit_code == 2 and cause.reason == "Harbor does not start this job: ValueError: no tasks [redacted]"
    assert refused(JobFailed(kind="ConnectError", text="", mistake=False), 1).exit_code == 7
    assert "exit code 3" in refused(None, 3).reason
    assert "SIGSEGV" in ended_by_itself(None, -11, 2, "/j").reason
    assert failed(UsageError("no")).exit_code == 2 and failed(KeyError("k")).exit_code == 7
    assert "make room" in failed(OSError(28, "No space left on device", "/r")).reason
