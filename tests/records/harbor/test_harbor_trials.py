"""Trial directories of every version of Harbor, and of every state in which one may be found."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import BEGAN, HarborJob, put

from console.records.harbor.trials import RESULT_LIMIT, read_trial

VERSIONS = ("0.1.20", "0.1.45", "0.6.4", "0.14.0", "0.18.0", "0.20.0", "0.21.0", "0.26.0")


@pytest.fixture
def job(tmp_path: Path) -> HarborJob:
    return HarborJob(tmp_path / "job")


def read(trial: Path):
    return read_trial(trial.parent, trial)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_says_the_same_of_the_same_trial(tmp_path, version):
    job = HarborJob(tmp_path / "job", version, agent_timeout_multiplier=4.0, timeout_multiplier=2.0)
    sizes = {"override_cpus": 2, "kwargs": {"flavor": "cpu-upgrade"}}
    trial = job.trial("tune-mjcf", 1.0, kwargs={"reasoning_effort": "low"}, env={"A": "x"}, environment_config=sizes)
    job.write()
    record = read(trial)
    assert (record.problem, record.name, record.task, record.dataset) == ("", trial.name, "tune-mjcf", job.dataset)
    assert (record.agent, record.agent_version, record.model) == ("terminus-2", "2.0.0", job.model)
    assert record.agent_kwargs == {"reasoning_effort": "low"} and record.agent_env_names == ("A",)
    assert record.rewards == {"reward": 1.0} and record.reward_file is None and record.errors == ()
    assert (record.began, record.ended, record.ended_from) == (BEGAN, BEGAN + 85, "result")
    assert {name: phase.seconds for name, phase in record.phases.items()} == {
        "environment": 5,
        "setup": 10,
        "agent": 60,
        "verify": 8,
    }
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (1000, 400, 200)
    assert record.timeout_multiplier == 4 and record.agent_timeout is None and record.cost_usd is None
    assert (record.environment, record.sandbox) == ("docker", {"cpus": 2, "flavor": "cpu-upgrade"})
    assert record.harbor == (version if job.since("0.6.0") else "") and len(record.checksum or "") == 64


def test_the_builders_shapes_are_those_of_the_installed_harbor(job):
    from harbor.models.job.config import JobConfig
    from harbor.models.job.lock import JobLock
    from harbor.models.job.result import JobResult
    from harbor.models.trial.result import TrialResult

    trials = [
        job.trial("org/a", 1.0),
        job.trial("b", error="AgentTimeoutError", rewards={"reward": 0.0}),
        job.trial("c", 0.5, steps=[{"name": "one", "rewards": {"reward": 1}}, {"name": "two", "error": "ValueError"}]),
    ]
    job.write()
    for trial in trials:
        result = TrialResult.model_validate_json((trial / "result.json").read_bytes())
        assert read(trial).ended == result.finished_at.timestamp()
    for model, name in ((JobConfig, "config"), (JobResult, "result"), (JobLock, "lock")):
        model.model_validate_json((job.path / f"{name}.json").read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("zone", [0, 9, -7, 5.5, 5.75])
def test_an_error_is_placed_in_its_trial_whatever_the_zone_of_the_machine(tmp_path, version, zone):
    """Up to 0.26 an error's time is the machine's wall clock, while the trial's times have had a zone before that."""
    job = HarborJob(tmp_path / "job", version)
    if not job.since("0.1.45"):
        zone = 0
    trial = job.trial("a", error="SandboxError")
    happened = BEGAN + 70
    result = json.loads((trial / "result.json").read_text())
    local = happened + (0 if job.since("0.26.0") else zone * 3600)
    result["exception_info"]["occurred_at"] = job.stamp(local, zone=job.since("0.26.0"))
    put(trial / "result.json", result)
    assert read(trial).errors[0].at == happened


@pytest.mark.parametrize("hours", [5, -5, 14])
def test_of_several_zones_that_fit_a_long_trial_whole_hours_come_first(tmp_path, hours):
    job = HarborJob(tmp_path / "job", "0.20.0")
    trial = job.trial("a", error="SandboxError", seconds={"agent": 3500.0})
    happened = BEGAN + (2900 if hours < 0 else 900)
    result = json.loads((trial / "result.json").read_text())
    result["exception_info"]["occurred_at"] = job.stamp(happened + hours * 3600, zone=False)
    put(trial / "result.json", result)
    assert read(trial).errors[0].at == happened


def test_a_time_without_a_zone_is_the_same_for_every_reader(tmp_path, monkeypatch):
    trial = HarborJob(tmp_path / "job", "0.1.20").trial("a", 1.0)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read(trial).began == BEGAN
    finally:
        monkeypatch.undo()
        time.tzset()


def test_ends_come_from_the_result_else_from_the_error_else_from_a_file(job):
    whole, cut, bare = (
        job.trial("a", 1.0),
        job.trial("b", error="SandboxError", ended=False),
        job.trial("c", ended=False),
    )
    assert [read(trial).ended_from for trial in (whole, cut, bare)] == ["result", "error", "file"]
    assert read(cut).ended == read(cut).errors[0].at
    os.utime(bare / "result.json", (BEGAN, BEGAN + 5.0))
    assert read(bare).ended == BEGAN + 5


def test_a_multi_step_trial_has_the_errors_times_and_tokens_of_its_steps(job):
    trial = job.trial(
        "a",
        0.5,
        steps=[
            {"name": "one", "rewards": {"reward": 1.0}, "tokens": (10, None, 3)},
            {"name": "two", "error": ("NonZeroAgentExitCodeError", "exit 1"), "tokens": (20, None, 4)},
        ],
    )
    record = read(trial)
    assert [(error.type, error.step, error.message) for error in record.errors] == [
        ("NonZeroAgentExitCodeError", "two", "exit 1")
    ]
    assert record.steps == 2 and record.rewards == {"reward": 0.5}
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (30, None, 7)
    assert record.phases["agent"].seconds == 119 and record.phases["verify"].seconds == 1


@pytest.mark.parametrize(
    ("patch", "field", "value"),
    [
        ({"agent_info": {"name": "a", "version": "1", "model_info": None}}, "agent_version", "1"),
        ({"agent_result": None}, "input_tokens", None),
        ({"agent_result": {"n_input_tokens": 0, "n_output_tokens": None}}, "input_tokens", 0),
        ({"agent_result": {"n_input_tokens": 0, "n_output_tokens": None}}, "output_tokens", None),
        ({"agent_result": {"n_input_tokens": "many", "n_output_tokens": -1}}, "output_tokens", None),
        ({"agent_result": "nothing"}, "input_tokens", None),
        ({"agent_result": {"cost_usd": 0.25}}, "cost_usd", 0.25),
        ({"agent_result": {"cost_usd": float("nan")}}, "cost_usd", None),
        ({"task_id": {"path": "."}}, "task", "a"),
        ({"trial_uri": "file:///C:/jobs/x", "task_name": "org/b"}, "task", "org/b"),
        ({"source": None}, "dataset", "terminal-bench-2.1"),
        ({"started_at": "yesterday", "finished_at": 5}, "began", None),
        ({"exception_info": "it broke"}, "errors", ("Exception", "it broke")),
        ({"step_results": {"a": 1}}, "steps", 0),
        ({"step_results": [None, "x", {"step_name": "s"}]}, "steps", 3),
        ({"config": []}, "model", "openai/Qwen/Qwen3.8-27B-FP8"),
    ],
)
def test_values_of_any_type_are_read(job, patch, field, value):
    record = read(job.trial("a", 1.0, patch=patch))
    assert record.problem == ""
    found = getattr(record, field)
    assert (found if field != "errors" else (found[0].type, found[0].message)) == value


@pytest.mark.parametrize(
    ("recorded", "rewards"),
    [
        (None, None),
        ({"rewards": None}, None),
        ({"rewards": {}}, {}),
        ({"rewards": {"reward": 1}}, {"reward": 1.0}),
        ({"rewards": {"reward": float("nan")}}, {"reward": "nan"}),
        ({"rewards": {"a": float("inf"), "b": -float("inf")}}, {"a": "inf", "b": "-inf"}),
        ({"rewards": {"a": 0.909661, "b": 0}}, {"a": 0.909661, "b": 0.0}),
        ({"rewards": {"reward": True}}, {"reward": True}),
        ({"rewards": {"reward": "1.0"}}, {"reward": "1.0"}),
        ({"rewards": {"reward": None}}, {"reward": None}),
        ({"rewards": {"reward": [1]}}, {"reward": "<list>"}),
        ({"rewards": {"reward": 10**400}}, {"reward": "inf"}),
        ({"rewards": [1]}, None),
        ("done", None),
    ],
)
def test_rewards_are_kept_as_written(job, recorded, rewards):
    record = read(job.trial("a", patch={"verifier_result": recorded}))
    assert record.problem == "" and record.rewards == rewards
    assert type((record.rewards or {}).get("reward")) is type((rewards or {}).get("reward"))


def test_a_timeouts_limit_is_what_its_message_says_else_what_was_configured(job):
    said = job.trial("a", error=("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds"))
    limits = {"override_timeout_sec": 900, "max_timeout_sec": 600}
    job.config = {"agent_timeout_multiplier": None, "timeout_multiplier": 2.0}
    told = job.trial("b", 1.0, agent_config=limits)
    assert (read(said).agent_timeout, read(told).agent_timeout) == (3600, 1200)


def test_secrets_are_not_kept(tmp_path):
    job = HarborJob(tmp_path / "job", "0.1.20")
    secret = "hunter2-hunter2-hunter2"
    trial = job.trial(
        "a",
        1.0,
        kwargs={"api_key": secret, "api_base": f"https://user:{secret}@host/v1", "deep": [{"auth": {"token": secret}}]},
        env={"OPENAI_API_KEY": secret},
        environment_config={"kwargs": {"token": secret, "flavor": "a"}},
    )
    config = job.job_config()
    config["agents"][0] |= {"env": {"ODD": secret}, "kwargs": {"api_key": secret}}
    job.write(config=config)
    from console.records.harbor.jobs import read_job

    record = read(trial)
    assert record.agent_env_names == ("OPENAI_API_KEY",) and record.sandbox["flavor"] == "a"
    assert record.agent_kwargs["api_base"] == "https://[redacted]@host/v1"
    (trial / "result.json").unlink()
    for what in (record, read(trial), read_job(job.path)):
        assert secret not in repr(what)
    assert read_job(job.path).config["agents"][0]["env"] == {"ODD": "[redacted]"}


CHAIN = """Traceback (most recent call last):
  File "a.py", line 1, in run
    call()
    ~~~~^^
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in go
    raise
harbor.llms.base.ContextLengthExceededError: too long
said: twice

"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (CHAIN, "ContextLengthExceededError", "too long\nsaid: twice"),
        (
            'Traceback (most recent call last):\n  File "a", line 1\nasyncio.exceptions.CancelledError\n',
            "CancelledError",
            "",
        ),
        ("something else\nentirely\n", "Exception", "something else\nentirely"),
    ],
)
def test_a_trial_without_a_result_is_told_by_what_it_left(job, text, kind, message):
    trial = job.trial("org/a", 1.0, error="X", traceback=text, result=False, kwargs={"k": 1})
    put(trial / "verifier" / "reward.json", '{"reward": 0.5, "other": NaN}')
    os.utime(trial / "exception.txt", (BEGAN, BEGAN + 1e9))
    record = read(trial)
    assert (record.problem, record.problem_text) == (
        "incomplete",
        "no result.json: it was cut off, or it still runs",
    )
    assert [(error.type, error.message, error.file) for error in record.errors] == [(kind, message, "exception.txt")]
    assert record.task == "org/a" and record.agent_kwargs == {"k": 1} and record.model == job.model
    assert record.rewards is None and record.reward_file == {"reward": 0.5, "other": "nan"}
    assert (record.ended, record.ended_from) == (BEGAN + 1e9, "file")
    (trial / "verifier" / "reward.json").unlink()
    assert read(trial).reward_file == {"reward": 1.0}


def test_a_task_is_never_made_out_of_a_directorys_name(job):
    trial = job.trial("a", result=False)
    (trial / "lock.json").unlink()
    for path, task in ((".", ""), ("C:\\tasks\\tune-mjcf", "tune-mjcf"), ("tasks/b/", "b"), ("..", ""), ("", "")):
        put(trial / "config.json", {"task": {"path": path}, "trial_name": trial.name})
        assert read(trial).task == task
    put(trial / "lock.json", {"task": {"name": "org/c", "digest": "sha256:0"}})
    assert read(trial).task == "org/c" and read(trial).checksum is None


GOOD = json.dumps({"task_name": "t", "trial_name": "n", "verifier_result": {"rewards": {"reward": 1.0}}}).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "result.json is empty"),
        (b" \n", "result.json is empty"),
        (GOOD[:-9], "result.json is no JSON"),
        (GOOD.replace(b'"n"', b'"\x00"'), "result.json is no JSON"),
        (GOOD.decode().encode("utf-16"), "result.json is no JSON"),
        (b'{"task_name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "result.json is nested too deeply"),
        (b'{"x": NaN, "task_name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "result.json is nested too deeply"),
        (b"[1]", "result.json holds no JSON object"),
        (b'{"architectures": ["Bert"]}', "result.json is no result of a trial"),
        (GOOD + b"{", "result.json is no JSON"),
    ],
)
def test_a_broken_result_is_one_line_and_the_rest_is_still_told(job, content, says):
    trial = job.trial("org/a", error="SandboxError")
    put(trial / "result.json", content)
    record = read(trial)
    assert record.problem == "corrupt" and record.problem_text.startswith(says) and "\n" not in record.problem_text
    assert record.task == "org/a" and record.errors[0].type == "SandboxError" and record.ended_from == "file"


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD[:-1] + b', "source": "caf\xe9"}',
        GOOD[:-1] + b', "source": "\\ud800"}',
        GOOD[:-1] + b', "x": Infinity, "y": 1e999, "z": ' + b"1" * 5000 + b"}",
        GOOD.replace(b"1.0", b"0.0")[:-1]
        + b', "verifier_result": {"rewards": {"reward": 1.0}}}',  # the last one counts
    ],
)
def test_what_harbor_can_still_mean_is_read(job, content):
    trial = job.trial("a")
    put(trial / "result.json", content)
    record = read(trial)
    assert record.problem == "" and record.rewards == {"reward": 1.0}
    json.dumps(record.dataset).encode()


@pytest.mark.parametrize("cut", [b'{"task_name": "t', b'{"task_name": "t\n"}'])
def test_where_a_result_breaks_is_said_in_one_at(job, cut):
    trial = job.trial("org/a", 1.0)
    put(trial / "result.json", cut)
    said = read(trial).problem_text
    assert " at line 1 of " in said and "at at" not in said


def test_a_result_beyond_the_bound_is_answered_from_the_rest(job):
    trial = job.trial("org/a", 1.0)
    with (trial / "result.json").open("r+b") as file:
        file.truncate(RESULT_LIMIT + 1)
    tracemalloc.start()
    record = read(trial)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.problem == "too_large" and record.problem_text.startswith("result.json has 52,428,801 bytes")
    assert record.task == "org/a" and record.reward_file == {"reward": 1.0} and peak < 2 << 20


def test_a_large_result_is_read_without_building_what_is_not_needed(job):
    tokens = {"n_input_tokens": 7, "rollout_details": [{"prompt_token_ids": list(range(1000)) * 1500}]}
    trial = job.trial("a", 1.0, patch={"agent_result": tokens})
    size = (trial / "result.json").stat().st_size
    assert 16 << 20 < size < RESULT_LIMIT
    tracemalloc.start()
    record = read(trial)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.input_tokens == 7 and record.rewards == {"reward": 1.0} and peak < size * 1.1
    data = (trial / "result.json").read_bytes()
    (trial / "result.json").write_bytes(data.replace(b'"cost_usd"', b'"cost_usd"').replace(b" 1.0", b" NaN"))
    assert read(trial).problem_text.startswith("result.json is no strict JSON")


def test_texts_and_values_are_bounded(job):
    deep: Any = "x"
    for _ in range(60):
        deep = {"d": [deep]}
    trial = job.trial(
        "a",
        error=("E", "begin " + "m" * 100_000 + " end"),
        traceback="t" * 50_000 + "!",
        kwargs={"deep": deep, "long": "y" * 5000, "many": list(range(5000))},
        patch={"task_name": "t" * 5000},
    )
    record = read(trial)
    assert len(record.errors[0].message) <= 20_000 and len(record.errors[0].traceback) == 8_000
    assert record.errors[0].message.startswith("begin ") and record.errors[0].message.endswith(" end")
    assert record.errors[0].traceback.endswith("!") and len(record.task) == 300
    assert len(record.agent_kwargs["long"]) == 300 and len(record.agent_kwargs["many"]) == 200
    assert repr(record.agent_kwargs["deep"]).count("d") == 4 and "…" in repr(record.agent_kwargs["deep"])
