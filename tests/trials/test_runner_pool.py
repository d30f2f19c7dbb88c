"""Real Harbor trials through the runner process: reports, cancellation, and the death of either side."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from console.outcomes.classes import OutcomeClass, TrialEvidence
from console.outcomes.rules import classify
from console.trials.bwrap_policy import error_policy
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial
from console.trials.runner_process import RunnerStartError
from console.trials.shortage import shortage

HANG = "touch /app/up; sleep 1000"


# One event loop and one pool for the module: a runner takes a second to come up.
pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = """
import asyncio
import resource
from pathlib import Path

from harbor.agents.base import BaseAgent

class Scripted(BaseAgent):
    def __init__(self, *args, script="true", error=None, stubborn=False, starve=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.script, self.error, self.stubborn, self.starve = script, error, stubborn, starve

    @staticmethod
    def name():
        return "scripted"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        context.metadata = {"turns": 3, "odd": {1, 2}, "long": "x" * 10}
        context.n_input_tokens, context.n_output_tokens = 11, 7
        try:
            await environment.exec(self.script)
        except asyncio.CancelledError:
            if self.stubborn:
                await environment.exec(self.script)
            raise
        if self.starve == "memory":
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken, taken))
        if self.starve == "file descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        if self.error == "hang":
            await asyncio.sleep(1000)
        if self.error == "OSError":
            raise OSError(28, "No space left on device")
        if self.error:
            raise type(self.error, (Exception,), {})("said " + "y" * 5000)
"""


def scripted(**kwargs: Any) -> dict[str, Any]:
    return {"import_path": "scripted_agents:Scripted", "kwargs": kwargs}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunnerPool]:
    directory = tmp_path_factory.mktemp("pool")
    (directory / "scripted_agents.py").write_text(AGENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory))
        pool = RunnerPool(log_path=directory / "runner.log", root_dir=directory / "roots", stop_limit=15)
        await pool.start()
        yield pool
        await pool.close()


@pytest.fixture
def spec(tmp_path: Path, unique: str) -> Callable[..., StartTrial]:
    """`spec(task_path, agent="nop", **config)`; trial names and sandboxes carry the test's unique name."""
    count = iter(range(1000))

    def make(
        task: Path | None, agent: Any = "oracle", kwargs: dict[str, Any] | None = None, **config: Any
    ) -> StartTrial:
        number = next(count)
        complete = {
            "task": {"path": str(task)},
            "trial_name": f"{unique}-{number}",
            "trials_dir": str(tmp_path / "trials"),
            "agent": {"name": agent} if isinstance(agent, str) else agent,
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment", "kwargs": kwargs or {}},
            "override_error_policy": error_policy(),
        }
        return StartTrial(key=f"k{number}", config=complete | config)

    return make


def ignore(progress: Any) -> None:
    pass


async def test_a_trial_is_run_and_reported(pool, spec, make_task):
    solve = "test -e given.txt && echo solved > answer.txt"
    test = "echo looked; cat /app/answer.txt && R=1; echo ${R:-0} > /logs/verifier/reward.txt; echo '<<end>>' >&2"
    task = make_task("good", solve, test)
    phases: list[str] = []
    good = await pool.run(spec(task), lambda progress: phases.append(progress.phase))
    assert good.exception_type is None and good.rewards == {"reward": 1.0}
    assert phases == ["create", "environment", "setup", "agent", "verify", "teardown"]
    assert good.verifier_output.startswith("looked\nsolved\n") and "<<end>>" in good.verifier_output
    assert {"create", "environment", "setup", "agent", "verify", "teardown", "total"} == set(good.seconds)
    assert all(0 <= seconds <= good.seconds["total"] for seconds in good.seconds.values())
    assert good.agent_timeout == 60 and good.sandbox_left == []
    assert json.loads(Path(good.trial_dir, "result.json").read_text())["trial_name"] == good.trial_name
    idle = await pool.run(spec(task, "nop"), ignore)
    assert idle.rewards == {"reward": 0.0} and idle.exception_type is None
    assert pool.versions["harbor"].startswith("0.26") and pool.pid in pool.pids


ODD_VERIFIERS = [
    ("echo nan > $R.txt", "VerifierOutputParseError", None),
    ("echo '{\"reward\": NaN}' > $R.json", "VerifierOutputParseError", None),
    ('echo \'{"reward": "1"}\' > $R.json', "VerifierOutputParseError", None),
    ("echo 0.7 > $R.json", "ValidationError", None),
    ("echo word > $R.txt", "VerifierOutputParseError", None),
    ("true", "RewardFileNotFoundError", None),
    (": > $R.txt", "RewardFileEmptyError", None),
    ("echo 1e30 > $R.txt", None, {"reward": 1e30}),
    ('echo \'{"a": 1, "b": 0.5, "c": true}\' > $R.json', None, {"a": 1, "b": 0.5, "c": True}),
    ("printf '{\"reward\": 1%0400d}' 0 > $R.json", None, {"reward": "inf"}),
    ("sleep 5; echo 1 > $R.txt", "VerifierTimeoutError", None),
    ("rm -rf /logs/verifier; ln -s /etc /logs/verifier", "RewardFileNotFoundError", None),
]


async def test_odd_verifiers(pool, spec, make_task):
    async def one(number: int, written: str, kind: str | None, rewards: Any) -> None:
        task = make_task(f"odd{number}", test=f"R=/logs/verifier/reward\n{written}")
        report = await pool.run(spec(task, verifier={"override_timeout_sec": 2}), ignore)
        assert (report.exception_type, report.rewards) == (kind, rewards), written
        if kind:
            assert report.exception_phase == "verify" and report.exception_message, written

    async with asyncio.TaskGroup() as group:
        for number, case in enumerate(ODD_VERIFIERS):
            group.create_task(one(number, *case))


async def test_what_harbor_refuses_is_a_report_that_names_the_field(pool, spec, make_task, tmp_path):
    task = make_task("refused")
    for refused, named in (
        (spec(task, agent={"name": "oracle", "override_timeout_sec": "soon"}), "agent.override_timeout_sec"),
        (spec(task, "nobody"), "nobody"),
        (spec(task, kwargs={"memory": 1}), "memory"),
        (spec(task, kwargs={"relay": "{proxy_url}"}), "proxy_url"),
        (spec(tmp_path / "absent"), "absent"),
        (spec(task, agent={"name": "oracle", "env": {"KEY": "${QUARTERDECK_UNSET}"}}), "QUARTERDECK_UNSET"),
    ):
        report = await pool.run(refused, ignore)
        assert report.exception_type == "TrialCreateError" and report.exception_phase == "create"
        assert named in report.exception_message and "\n" not in report.exception_message


async def test_a_dead_sandbox_is_recorded_and_not_graded(pool, spec, make_task, unique, processes_naming, wait_until):
    task = make_task("killed", HANG)
    running = asyncio.create_task(pool.run(spec(task), ignore))
    await wait_until(lambda: processes_naming("sleep 1000") and processes_naming(unique))
    for line in processes_naming(unique):
        if "--as-pid-1" in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)
    report = await running
    assert report.exception_type == "SandboxLostError" and report.rewards is None
    assert report.exception_phase == "agent"
    assert not processes_naming(unique)


async def test_an_agent_that_runs_out_of_time_is_graded(pool, spec, make_task):
    task = make_task("slow", test="test -e /app/up && echo 0.5 > /logs/verifier/reward.txt")
    agent = scripted(script=HANG) | {"override_timeout_sec": 1}
    report = await pool.run(spec(task, agent=agent), ignore)
    assert report.exception_type == "AgentTimeoutError" and report.rewards == {"reward": 0.5}
    assert report.agent_timeout == 1 and report.exception_phase == "agent"
    assert report.agent == {"turns": 3, "odd": "{1, 2}", "long": "x" * 10, "input_tokens": 11, "output_tokens": 7}


async def test_an_agent_that_raises_is_reported_by_name(pool, spec, make_task):
    report = await pool.run(spec(make_task("raises"), agent=scripted(error="OddError")), ignore)
    assert report.exception_type == "OddError" and report.exception_phase == "agent"
    assert report.exception_message.startswith("said yyy") and len(report.exception_message) == 2000


async def test_a_disk_that_refuses_a_trial_is_named(pool, spec, make_task):
    report = await pool.run(spec(make_task("full"), agent=scripted(error="OSError")), ignore)
    said = f"[Errno 28] No space left on device (the trial's files are in {report.trial_dir})"
    assert (report.exception_type, report.exception_message) == ("TrialFilesError", said)
    evidence = TrialEvidence(exception_type=report.exception_type, exception_message=report.exception_message)
    assert classify(evidence).outcome is OutcomeClass.INFRASTRUCTURE


async def test_an_agent_that_swallows_its_cancellation_ends_all_the_same(
    pool, spec, make_task, unique, processes_naming
):
    started, runner = asyncio.Event(), pool.pid
    agent = scripted(script=HANG, stubborn=True)
    run = pool.run(spec(make_task("stubborn"), agent=agent), lambda p: p.phase == "agent" and started.set())
    running = asyncio.create_task(run)
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not processes_naming(unique) and pool.pid == runner  # insisted upon, not killed


async def test_a_cancelled_trial_is_gone_when_its_caller_knows(pool, spec, make_task, unique, processes_naming):
    task = make_task("cancelled", HANG)
    chance = random.Random(5)
    tasks = []
    for _ in range(16):
        tasks.append(asyncio.create_task(pool.run(spec(task, kwargs={"storage": "disk"}), ignore)))
    for running in tasks:
        await asyncio.sleep(chance.random() * 0.06)
        running.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    assert not processes_naming(unique)
    assert not list(Path(pool._root_dir).glob("*"))


async def test_a_second_cancellation_does_not_leave_the_removal_behind(spec, make_task, unique, processes_naming):
    from console.trials.drive import drive

    for number in range(4):
        started = asyncio.Event()
        run = drive(spec(make_task(f"twice{number}", HANG)), lambda p, s=started: p.phase == "agent" and s.set())
        running = asyncio.create_task(run)
        await started.wait()
        await asyncio.sleep(0.05)
        while not running.done():  # at every moment of what follows
            running.cancel()
            await asyncio.sleep(0.0005 * number)
        assert not processes_naming(unique)
        assert (await running).exception_type == "CancelledError"


async def test_a_cancelled_trial_still_leaves_its_result(pool, spec, make_task, tmp_path, unique, wait_until):
    running = asyncio.create_task(pool.run(spec(make_task("result", HANG)), ignore))
    await wait_until(lambda: list((tmp_path / "trials").glob("*/agent")))
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.wait({running})
    (result,) = (tmp_path / "trials").glob("*/result.json")
    assert json.loads(result.read_text())["exception_info"]["exception_type"] == "CancelledError"


async def test_the_death_of_the_runner_is_a_report_and_the_next_trial_runs(
    pool, spec, make_task, unique, processes_naming, wait_until
):
    task, quick = make_task("orphaned", HANG), make_task("quick")
    phases: list[str] = []
    runs = [spec(task, kwargs={"storage": "disk"}) for _ in range(3)]
    running = [asyncio.create_task(pool.run(run, lambda p: phases.append(p.phase))) for run in runs]
    await wait_until(lambda: phases.count("agent") == 3)
    first = pool.pid
    os.kill(first, signal.SIGKILL)
    reports = await asyncio.gather(*running)
    assert {report.exception_type for report in reports} == {"RunnerLostError"}
    assert {report.exception_phase for report in reports} == {"agent"}
    assert all(str(first) in report.exception_message and not report.sandbox_left for report in reports)
    assert not processes_naming(unique)
    assert not list(Path(pool._root_dir).glob("*"))
    assert (await pool.run(spec(quick), ignore)).rewards == {"reward": 1.0}
    assert pool.pid not in (None, first)


@pytest.mark.parametrize("lacks", ["memory", "file descriptors"])
async def test_a_runner_that_lacks_what_a_trial_needs_gets_no_more_of_them(
    pool, spec, make_task, unique, wait_until, processes_naming, monkeypatch, lacks
):
    """Every trial in it would fail at once, so it would be the one with the fewest trials, and be handed the next."""
    monkeypatch.setattr("console.trials.runner_process._DRAIN_LIMIT", 2.0)
    first = pool.pid
    phases: list[str] = []
    other = asyncio.create_task(pool.run(spec(make_task("other", HANG)), lambda p: phases.append(p.phase)))
    await wait_until(lambda: "agent" in phases)
    report = await pool.run(spec(make_task("eater"), scripted(starve=lacks, error="Odd")), ignore)
    assert report.exception_type == "RunnerShortageError"
    assert f"no {lacks} left (Odd: said" in report.exception_message
    evidence = TrialEvidence(exception_type=report.exception_type, exception_message=report.exception_message)
    assert classify(evidence).cause == "runner"
    assert (await pool.run(spec(make_task("after")), ignore)).rewards == {"reward": 1.0}
    assert pool.pid not in (None, first)
    assert psutil.pid_exists(first) and not other.done()  # what it has may end in it
    lost = await other  # but not for ever: it could not even read what a command says
    assert lost.exception_type == "RunnerLostError"
    assert lost.exception_message == f"the runner process {first} had no {lacks} left and was ended"
    await wait_until(lambda: not psutil.pid_exists(first))
    assert not processes_naming(unique)


async def test_a_runner_in_which_nothing_ends_any_more_is_known_as_such(pool, spec, make_task, monkeypatch):
    monkeypatch.setattr("console.trials.runner_process._DRAIN_LIMIT", 0.5)
    first = pool.pid
    report = await pool.run(spec(make_task("stuck"), scripted(starve="memory", error="hang")), ignore)
    assert report.exception_message == f"the runner process {first} had no memory left and was ended"
    assert (await pool.run(spec(make_task("after")), ignore)).rewards == {"reward": 1.0}


@pytest.mark.parametrize(
    ("place", "error", "lacks"),
    [
        ("threading.Thread.start", RuntimeError, "threads"),
        ("os.open", OSError, "file descriptors"),
        ("mmap.mmap", OSError, "memory"),
    ],
)
async def test_a_shortage_is_named(monkeypatch, place, error, lacks):
    def refuse(*_args):
        raise error("none left")

    assert shortage() == ""
    monkeypatch.setattr(place, refuse)
    assert shortage() == lacks


async def test_without_memory_a_sandbox_goes_before_its_runner_and_that_before_the_engine(
    pool, spec, make_task, wait_until
):
    def points(pid: int | str) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    def asleep() -> list[int]:
        children = psutil.Process(pool.pid).children(recursive=True)
        return [child.pid for child in children if child.cmdline() == ["sleep", "1000"]]

    running = asyncio.create_task(pool.run(spec(make_task("hungry", HANG)), ignore))
    await wait_until(lambda: bool(asleep()))
    assert points("self") < points(pool.pid) < min(map(points, asleep()))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_runner_that_does_not_obey_is_killed(tmp_path, spec, make_task, unique, processes_naming):
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots", stop_limit=0.5)
    await pool.start()
    started = asyncio.Event()
    run = pool.run(spec(make_task("stuck", HANG)), lambda p: p.phase == "agent" and started.set())
    running = asyncio.create_task(run)
    await started.wait()
    stuck = pool.pid
    os.kill(stuck, signal.SIGSTOP)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/{stuck}").exists() and not processes_naming(unique)
    await pool.close()


async def test_closing_the_pool_ends_what_runs(tmp_path, spec, make_task, unique, processes_naming, wait_until):
    pool = RunnerPool(runners=2, log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots")
    await pool.start()
    pids = pool.pids
    task = make_task("closing", HANG)
    running = [asyncio.create_task(pool.run(spec(task), ignore)) for _ in range(4)]
    await wait_until(lambda: len([p for p in processes_naming(unique) if "--as-pid-1" in p]) >= 4)
    await pool.close()
    reports = await asyncio.gather(*running)
    assert {report.exception_type for report in reports} == {"CancelledError"}
    assert not processes_naming(unique) and not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(RunnerStartError):
        await pool.run(spec(task), ignore)
    await pool.close()


async def test_a_grown_runner_is_replaced_between_steps(pool, spec, make_task, monkeypatch):
    first = pool.pid
    assert await pool.recycle() == []
    monkeypatch.setattr(pool, "_rss_limit_mb", 1)
    assert await pool.recycle() == [first]
    assert pool.pid not in (None, first)
    assert (await pool.run(spec(make_task("after")), ignore)).rewards == {"reward": 1.0}


async def test_a_runner_that_cannot_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    pool = RunnerPool(log_path=tmp_path / "runner.log")
    with pytest.raises(RunnerStartError, match=r"ended at once: .*runner\.log"):
        await pool.start()


async def test_the_death_of_the_engine_ends_runner_and_sandboxes(
    tmp_path, spec, make_task, unique, processes_naming, wait_until
):
    task = make_task("abandoned", HANG)
    configs = [spec(task, kwargs={"storage": "disk"}).config for _ in range(3)]
    script = textwrap.dedent(f"""
        import asyncio, json
        from pathlib import Path
        from console.trials.pool import RunnerPool
        from console.trials.protocol import StartTrial

        async def main():
            here = Path({str(tmp_path)!r})
            pool = RunnerPool(log_path=here / "runner.log", root_dir=here / "roots")
            await pool.start()
            print(pool.pid, flush=True)
            say = lambda progress: print(progress.phase, flush=True)
            configs = json.loads({json.dumps(configs)!r})
            await asyncio.gather(*(pool.run(StartTrial(key=str(i), config=c), say) for i, c in enumerate(configs)))

        asyncio.run(main())
    """)
    engine = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert engine.stdout is not None
    runner = int(await engine.stdout.readline())
    seen: list[bytes] = []
    while seen.count(b"agent\n") < 3:
        seen.append(await engine.stdout.readline())
        assert seen[-1]
    engine.kill()
    await engine.wait()
    await wait_until(lambda: not Path(f"/proc/{runner}/root").exists())
    await wait_until(lambda: not processes_naming(unique))
    assert not list((tmp_path / "roots").glob("*"))
    results = [json.loads(path.read_text()) for path in (tmp_path / "trials").glob("*/result.json")]
    assert [r["exception_info"]["exception_type"] for r in results] == ["CancelledError"] * 3  # in order


async def test_the_token_of_a_trial_is_on_no_command_line(pool, spec, make_task, unique, wait_until):
    token = f"sk-{unique}-token"
    agent = {"name": "oracle", "env": {"OPENAI_API_KEY": token}}
    phases: list[str] = []
    running = asyncio.create_task(
        pool.run(
            spec(make_task("token", "echo $OPENAI_API_KEY; sleep 0.5"), agent=agent), lambda p: phases.append(p.phase)
        )
    )
    seen: list[bytes] = []
    while not running.done():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(path.read_bytes())
            except OSError:
                continue
        await asyncio.sleep(0.03)
    report = await running
    assert report.rewards == {"reward": 1.0}
    assert any(b"sleep\x000.5" in line for line in seen)
    assert not [line for line in seen if token.encode() in line]
    written = "".join(p.read_text() for p in Path(report.trial_dir).rglob("*") if p.is_file())
    assert token not in written
