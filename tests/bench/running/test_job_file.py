"""A job file is read as Harbor takes it, whole and absolute; each mistake in it is one line that names the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.bench.running.job_file import find_job, override, presets, read_job, settle
from console.bench.running.yaml_text import DEEPEST, TextError, read_text
from console.errors import UsageError

JOB = """\
job_name: mine
agents:
  - name: terminus-2
    model_name: openai/openai/gpt-oss-20b
  - name: oracle
datasets:
  - path: tasks
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file beside its tasks, and a working directory elsewhere."""
    (tmp_path / "files/tasks").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "files/job.yaml"
    path.write_text(JOB)
    return path


def test_paths_are_absolute_and_tasks_are_found_beside_the_file(file: Path, tmp_path: Path) -> None:
    job = read_job(file)
    assert job["jobs_dir"] == str(tmp_path / "here/jobs")
    assert job["datasets"][0]["path"] == str(tmp_path / "files/tasks")
    assert job["job_name"] == "mine"


def test_tasks_of_the_working_directory_come_before_those_beside_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "here/tasks").mkdir()
    assert read_job(file)["datasets"][0]["path"] == str(tmp_path / "here/tasks")


def test_paths_within_a_repository_stay_as_they_are(file: Path) -> None:
    file.write_text(
        "datasets:\n  - {repo: https://host/set, path: tasks}\ntasks:\n  - {git_url: https://h/x, path: a}\n"
    )
    job = read_job(file)
    assert (job["datasets"][0]["path"], job["tasks"][0]["path"]) == ("tasks", "a")


def test_a_job_without_a_name_gets_one_of_agent_model_and_time() -> None:
    agents = [{"name": "terminus-2", "model_name": "openai/Qwen/Qwen3.8__27B FP8"}]
    name = settle({"agents": agents}, now=0.0)["job_name"]
    assert name.startswith("terminus-2-Qwen3.8_27B-FP8-19")
    assert "__" not in name and "/" not in name and " " not in name


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("n_attempts=5", ("n_attempts",), 5),
        ("job_name=0012", ("job_name",), "0012"),
        ("environment.kwargs.job_timeout=2h", ("environment", "kwargs", "job_timeout"), "2h"),
        ("agents.1.kwargs.x=true", ("agents", 1, "kwargs", "x"), True),
        ("agents.0.env.PORT=1", ("agents", 0, "env", "PORT"), "1"),
        ("agents.0.model_name=openai/openai/gpt-oss-20b", ("agents", 0, "model_name"), "openai/openai/gpt-oss-20b"),
        ("datasets.0.task_names=[a, 'b*']", ("datasets", 0, "task_names"), ["a", "b*"]),
        ("job_name=2026-11-30", ("job_name",), "2026-11-30"),
        ("environment.import_path=null", ("environment", "import_path"), None),
        ("agents.0.env.X=null", ("agents", 0, "env", "X"), "null"),
        ("x=2026-11-30", ("x",), "2026-11-30"),
        ("x=a: b: c", ("x",), "a: b: c"),
    ],
)
def test_a_value_is_replaced_by_its_dotted_key(
    file: Path, word: str, key: tuple[str | int, ...], value: object
) -> None:
    found: object = read_job(file, [word])
    for part in key:
        found = found[part]  # type: ignore[index]
    assert found == value


def test_agent_dot_stands_for_each_agent(file: Path) -> None:
    job = read_job(file, ["agent.kwargs.api_base=http://h/v1"])
    assert [agent["kwargs"] for agent in job["agents"]] == [{"api_base": "http://h/v1"}] * 2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("n_attempts", "is no KEY=VALUE"),
        ("=5", "is no KEY=VALUE"),
        ("a..b=5", "is no KEY=VALUE"),
        ("agents.7.name=x", "agents.7.name: agents is a list of 2"),
        ("agents.x.name=x", "agents.x.name: agents is a list of 2"),
        ("job_name.x=1", "job_name.x: job_name is a single value"),
        ("task.path=x", "task.path: the job has no tasks"),
        ("tasks.0.path=x", "tasks.0.path: the job has no tasks"),
    ],
)
def test_an_override_that_does_not_fit_names_its_key(file: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_job(file, [word])


def bomb() -> str:
    """Nine aliases of nine aliases of ...: a billion values out of some hundred characters."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("- a\n", "holds no mapping"),
        ("a: 1\nb: {c: 1\n", "no valid YAML at line 3"),
        ("a: 1\na: 2\n", "line 2: the key 'a' appears twice"),
        ("a: {b: 1,\n b: 2}\n", "line 2: the key 'b' appears twice"),
        ("a: !!python/object/apply:os.system [id]\n", "no valid YAML at line 1"),
        ("a: &a [*a]\n", "contains itself"),
        ("a: .nan\n", "a: nan is no number"),
        ("1: a\n", "the key 1 is no text"),
        ("a: " + "[" * (DEEPEST + 5) + "]" * (DEEPEST + 5), f"deeper than {DEEPEST} levels"),
        ("a: " + "[" * 5000, "nested deeper|no valid YAML"),
        ("a: !!binary aGk=\n", "a: a bytes is no plain value"),
        ("a: " + "9" * 5000 + "\n", "a value cannot be read"),
        ("a: b\0c\n", "no valid YAML"),
        (bomb(), "more than 200,000 values"),
        ("a: " + "x" * 1_000_001, "1,000,000 are allowed"),
        ("jobs_dir: 5\n", "jobs_dir=5: must be the path"),
        ("job_name: a/b\n", "job_name='a/b': must be the name of one directory"),
        ("job_name: ..\n", "must be the name of one directory"),
        ("job_name: 7\n", "job_name=7: must be the name"),
    ],
)
def test_each_mistake_of_a_file_is_one_line(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as raised:
        read_job(file)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 1,}', "no valid JSON at line 1"), ('{"a": 1, "a": 2}', "'a' appears twice"), ('{"a": NaN}', "no number")],
)
def test_json_is_read_by_its_own_rules(file: Path, text: str, said: str) -> None:
    path = file.with_suffix(".json")
    path.write_text('{\n\t"job_name": "tabs"\n}')
    assert read_job(path)["job_name"] == "tabs"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_job(path)


def test_a_file_that_cannot_be_read_is_one_line(file: Path) -> None:
    for path, said in ((file.parent, "Is a directory"), (file.parent / "no.yaml", "No such file")):
        with pytest.raises(UsageError, match=said):
            read_job(path)
    file.write_bytes(b"a: \xff\xfe")
    with pytest.raises(UsageError, match="no text in UTF-8"):
        read_job(file)


def test_anchors_are_fine() -> None:
    assert read_text("a: &x {k: 1}\nb: *x\nc: {<<: *x, m: 2}") == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "m": 2}}
    with pytest.raises(TextError):
        read_text("a: *x")


def test_a_bundled_job_is_found_by_name(file: Path) -> None:
    assert find_job("local").name == "local.yaml"
    assert {"local", "smoke", "terminus-2-hf", "mini-swe-agent-hf", "gpt-oss-hf", "e2b"} <= set(presets())
    Path("local").write_text("{}")
    assert find_job("local") == Path("local")  # a file comes first
    with pytest.raises(UsageError, match=r"there is no such job file; bundled ones: .*local"):
        find_job("nothing")
    with pytest.raises(UsageError, match="is a directory"):
        find_job(str(file.parent))


def test_what_is_given_is_not_changed() -> None:
    given = {"agents": [{"name": "a"}], "datasets": [{"path": "x"}]}
    before = json.dumps(given)
    settle(given)
    assert json.dumps(given) == before
    job: dict[str, object] = {}
    override(job, "agent.name=oracle")
    assert job == {"agents": [{"name": "oracle"}]}
