"""Results that are no JSON that anybody meant: every command answers, and each such trial is one finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash

PASSED = {"verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
DEEP = 100_000
MEGABYTE = 1 << 20
CORRUPT = ("unreadable", "corrupt", None)
CLEAN = ("completed", "", 1.0)


def rewarded(value: str) -> str:
    return f'"verifier_result": {{"rewards": {{"reward": {value}}}}}'


def failed(kind: str, message: str) -> str:
    return f'"exception_info": {{"exception_type": "{kind}", "exception_message": "{message}"}}'


def many(what: str, size: int) -> str:
    """A list of so many bytes."""
    return f"[{','.join([what] * (size // (len(what) + 1)))}]"


SMALL = {
    "nan": (rewarded("NaN"), ("bad_reward", "non_finite", None)),
    "inf": (rewarded("Infinity"), ("bad_reward", "non_finite", None)),
    "minus-inf": (rewarded("-Infinity"), ("bad_reward", "non_finite", None)),
    "1e400": (rewarded("1e400"), ("bad_reward", "non_finite", None)),
    "2-64": (rewarded(str(2**64)), ("bad_reward", "too_large", None)),
    "digits": (rewarded("1" + "0" * 5000), ("bad_reward", "non_finite", None)),
    "list": (rewarded("[[1]]"), ("bad_reward", "non_numeric", None)),
    "used": ('"agent_result": {"n_input_tokens": 1e400, "n_output_tokens": 18446744073709551616}', CLEAN),
    "cost": ('"agent_result": {"cost_usd": NaN, "n_cache_tokens": -Infinity, "n_output_tokens": [1]}', CLEAN),
    "twice": ('"verifier_result": {"rewards": {"reward": 0.0, "reward": 1.0}}', CLEAN),
    "twice-whole": (rewarded("0.0") + ", " + rewarded("1.0"), CLEAN),
    "deep": (f'"x": {"[" * DEEP}{"]" * DEEP}', CORRUPT),
    "deep-config": ('"config": ' + '{"a":' * DEEP + "1" + "}" * DEEP, CORRUPT),
    "deep-reward": (rewarded("[" * DEEP + "]" * DEEP), CORRUPT),
    "deep-nan": (f'"y": NaN, "x": {"[" * DEEP}{"]" * DEEP}', CORRUPT),
    "times": ('"started_at": "9999-12-31T23:59:59+00:00", "finished_at": "0001-01-01T00:00:00"', CLEAN),
    "surrogate": (failed("SandboxError", "\\udfff \\ud83d"), ("infrastructure", "sandbox", 1.0)),
    "escapes": (
        '"task_name": "org/\\u001b[2J\\u202e\\u2066\\nescapes", ' + failed("\\u001b]8;;x\\u0007Error", "\\u0000\\r"),
        None,
    ),
}  # fmt: skip
BROKEN = {
    "empty": b"",
    "zero": b"0",
    "half": b'{"task_name": "org/half", "config',
    "latin": b'{"task_name": "org/latin", "source": "caf\xe9',
    "nul": b"\0" * 5000,
}
LARGE = {
    "tokens": (f'"agent_result": {{"rollout_details": {many("1234567", 49 * MEGABYTE)}}}', CLEAN),
    "text": (failed("SandboxError", "é" * (49 * MEGABYTE // 2)), ("infrastructure", "sandbox", 1.0)),
    "some": (f'"config": {{"agent": {{"kwargs": {{"x": {many("{}", 990_000)}}}}}}}', CLEAN),
    "objects": (f'"config": {{"agent": {{"kwargs": {{"x": {many("{}", 49 * MEGABYTE)}}}}}}}', CORRUPT),
    "lists": (f'"config": {{"agent": {{"kwargs": {{"x": {many("[]", 49 * MEGABYTE)}}}}}}}', CORRUPT),
    "rewards": (f'"verifier_result": {{"rewards": {many("1", 49 * MEGABYTE)}}}', CORRUPT),
    "steps": (f'"step_results": {many("{}", 49 * MEGABYTE)}', CORRUPT),
    "some-steps": (
        '"step_results": ' + many('{"verifier":{"started_at":"a"}}', 7 * MEGABYTE), CLEAN
    ),
    "not-strict": (f'"y": NaN, "x": {many("{}", 15 * MEGABYTE)}', CORRUPT),
    "beyond": (f'"x": "{"y" * 50 * MEGABYTE}"', ("unreadable", "too_large", None)),
}  # fmt: skip


def write(job: HarborJob, told: dict[str, tuple[str, tuple[str, str, float | None] | None]]) -> None:
    """A trial for each, whose result has these keys behind its own: of a key that is there twice the last counts."""
    for name, (keys, _) in told.items():
        trial = job.trial(f"org/{name}", 1.0, files=PASSED)
        whole = json.dumps(json.loads((trial / "result.json").read_text()))
        put(trial / "result.json", f"{whole[:-1]}, {keys}}}")
    for name, content in BROKEN.items():
        put(job.trial(f"org/{name}", 1.0) / "result.json", content)
    job.write()


@pytest.fixture(scope="module")
def jobs(open_dir: Path) -> Path:
    for name, told in (("small", SMALL), ("large", LARGE)):
        write(HarborJob(open_dir / name), told)
    good = HarborJob(open_dir / "good")
    for name in (*SMALL, *LARGE, "empty", "half"):
        good.trial(f"org/{name}", 0.0, files=PASSED)
    good.write()
    return open_dir


@pytest.mark.parametrize(("name", "told"), [("small", SMALL), ("large", LARGE)])
def test_each_is_one_verdict_and_every_command_answers(jobs, bounded, name, told):
    job, good = jobs / name, jobs / "good"
    before = tree_hash(job)
    lines, text, again, tally, shown, compared, told_apart = answers = bounded(
        ["triage", job, "--json", "--no-cache"],
        ["triage", job, "--trials"],
        ["triage", job, "--trials"],
        ["tally", job, "--json"],
        ["tally", job, "--table", "figures", "--table", "tasks"],
        ["compare", job, good],
        ["compare", job, good, "--json"],
    )
    for answer in answers:
        answer.check()
    found = {row["task"].rsplit("/", 1)[-1]: (row["class"], row["cause"], row["reward"]) for row in lines.rows()}
    expected = {task: verdict for task, (_, verdict) in told.items() if verdict is not None}
    assert {task: found.get(task) for task in expected} == expected
    assert {task: found[task] for task in BROKEN} == dict.fromkeys(BROKEN, CORRUPT)
    assert again == text
    graded = sum(verdict == CLEAN for _, verdict in told.values())
    modes = {one["mode"]: one for one in json.loads(tally.out)["modes"] if one["agent"] == "terminus-2"}
    assert (modes["clean-only"]["numerator"], modes["clean-only"]["denominator"]) == (graded, graded)
    assert f" {graded}  " in shown.out and "unreadable/corrupt" in shown.out
    asked = json.loads(told_apart.out)
    assert asked["only_a"] == graded and asked["tasks"] == graded and f"{graded}" in compared.out
    assert tree_hash(job) == before


LINEAGE = "quarterdeck-mop-up.json"
OWN = [
    # (file of the job, its content, what stands for @ in it, what a tally says of it)
    ("config.json", '{"job_name": "x", "x": @}', many("{}", 7 * MEGABYTE), "more than 1,000,000 values"),
    ("config.json", '{"job_name": @}', "[" * DEEP + "]" * DEEP, "nested too deeply"),
    ("config.json", '{"job_name": "\\u001b[2J", "n_attempts": 1e400, "y": @', str(2**70), "no JSON"),
    ("result.json", '{"n_total_trials": 1, "stats": {"evals": @}}', many("{}", 60 * MEGABYTE), "objects"),
    ("result.json", '{"n_total_trials": @, "finished_at": NaN, "stats": []}', str(2**64), ""),
    ("result.json", '{"n_total_trials": 1, "x": "@"}', "y" * 65 * MEGABYTE, "more than the"),
    ("lock.json", '{"trials": @, "harbor": {"version": "0.26.0"}}', many("{}", 60 * MEGABYTE), "objects"),
    ("lock.json", '{"trials": @, "harbor": {"version": "0.26.0"}}', many("{}", 9 * MEGABYTE), ""),
    ("lock.json", '{"trials": [], "invocation": @}', many("1", 9 * MEGABYTE), "values"),
    ("lock.json", "@", "\0" * 1000, "no JSON"),
    (LINEAGE, '{"v": 1, "tasks": @}', many("{}", 60 * MEGABYTE), "merge.lineage"),
    (LINEAGE, '{"v": 1, "attempts": @}', many("{}", MEGABYTE), "merge.lineage"),
    (LINEAGE, '{"v": 1, "attempts": {"\\u001b": 1e400, "a": -1, "b": @}}', str(2**80), "merge.lineage"),
]


def test_a_jobs_own_file_is_one_finding(open_dir, bounded):
    commands = []
    for number, (name, content, filler, _) in enumerate(OWN):
        job = HarborJob(open_dir / "own" / str(number))
        job.trial("org/a", 1.0, files=PASSED)
        job.write()
        put(job.path / name, content.replace("@", filler))
        commands += [[command, job.path, *more] for command, *more in (("triage",), ("tally",), ("tally", "--json"))]
    answers = bounded(*commands)
    for number, (*_, said) in enumerate(OWN):
        triage, text, as_json = answers[3 * number : 3 * number + 3]
        for answer in (triage, text, as_json):
            answer.check()
            assert answer.err.count("\n") <= 1
        assert "completed       1" in triage.out and said in " ".join((text.out + text.err).split())
        assert {(one["numerator"], one["denominator"]) for one in json.loads(as_json.out)["modes"]} == {(1.0, 1)}
