"""A run goes on only as it began: what may differ, what may not, and how that is said."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.errors import UsageError
from console.findings import Finding, errors
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.manifest import Ancestor, Manifest, read_manifest, renew_manifest, write_manifest
from console.records.sandbox_ledger import LEDGER
from console.training import fingerprints
from console.training.options import parse
from console.training.resume_check import check, standing
from console.training.schema import load_schema

TRIAL: dict[str, Any] = {
    "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
    "agent": {"name": "x", "env": {"SOME_API_KEY": "sk-0123456789abcdef"}, "kwargs": {"max_turns": 4}},
}
MAY_DIFFER = {
    *("config.log_path", "config.dataset_builder.tasks_dir", "config.recipe_name", "config.eval_every"),
    *("config.save_every", "config.evaluator_builders", "config.wandb_project", "config.wandb_name"),
    *("config.session_name", "config.compute_post_kl", "config.enable_trace", "config.span_chart_every"),
    *("config.base_url", "config.ttl_seconds", "config.rolling_save_every", "config.rolling_ttl_seconds"),
    *("config.num_groups_to_log", "config.rollout_json_export", "config.max_steps"),
    *(
        f"harbor.{name}"
        for name in (
            *("trial_config", "listen_host", "advertised_host", "listen_port", "advertised_url", "tls_certificate"),
            *("tls_key", "allow_insecure", "sandbox_cost_per_hour", "max_calls", "max_prompt_tokens"),
            *("max_sampled_tokens", "max_call_bytes", "max_inflight_calls", "max_parallel_trials_per_group"),
            *("runners", "on_failure", "max_tries"),
        )
    ),
}
"""Of the trial file and the tasks the contents count, not where they lie."""


class Made:
    """A run in a directory, with tasks and a trial file that a test may change."""

    def __init__(self, root: Path) -> None:
        self.root, self.run_dir = root, root / "run"
        for name in ("one", "two", "three"):
            (root / "tasks" / name / "tests").mkdir(parents=True)
            (root / "tasks" / name / "task.toml").write_text(f"# {name}\n")
            (root / "tasks" / name / "tests/test.sh").write_text("exit 0\n")
        self.trial(TRIAL)
        self.words = [
            "config.model_name=Qwen/Qwen3-8B", "config.learning_rate=1e-3", "config.max_tokens=64",
            "config.loss_fn=ppo", "config.max_steps=6", f"config.log_path={self.run_dir}",
            f"config.dataset_builder.tasks_dir={root / 'tasks'}", "config.dataset_builder.epochs=4",
            f"harbor.trial_config={root / 'trial.json'}", "config.base_url=http://127.0.0.1:1",
        ]  # fmt: skip

    def trial(self, config: dict[str, Any]) -> None:
        (self.root / "trial.json").write_text(json.dumps(config))

    def began(self, *words: str, kept: bool = True, steps: int = 0, saved: int | None = None) -> Made:
        """The run began with these options; `steps` were trained, and the weights after `saved` of them saved."""
        self.run_dir.mkdir()
        (self.run_dir / LEDGER).touch()  # trials began
        now = [1000.0]
        with JournalWriter(self.run_dir / "journal", clock=lambda: now[0]) as journal:
            journal.append(ev.RunStarted(run_id="r1"))
            for step in range(steps):
                now[0] += 60
                journal.append(ev.StepStarted(step=step, groups=0, weights=f"w{step}", policy_version=step))
                journal.append(ev.StepFinished(step=step, policy_version=step + 1, weights=f"w{step + 1}"))
                if step + 1 == saved:
                    path = f"tinker://m/weights/{saved:06d}"
                    row = {"name": f"{saved:06d}", "batch": saved, "state_path": path}
                    (self.run_dir / "checkpoints.jsonl").write_text(json.dumps(row) + '\n{"name": "0000')
                    journal.append(ev.CheckpointSaved(name=row["name"], step=saved, path=path))
        found = fingerprints.of(parse([*self.words, *words])) if kept else {}
        write_manifest(self.run_dir, Manifest(run_id="r1", created=5.0, fingerprints=found))
        return self

    def found(self, *words: str) -> list[Finding]:
        return [f for f in check(parse([*self.words, *words]), self.run_dir) if f.code != "resume.from"]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_a_directory_without_a_run_has_nothing_to_check(made: Made) -> None:
    options = parse(made.words)
    assert check(options, made.run_dir) == []
    made.run_dir.mkdir()
    assert check(options, made.run_dir) == []


def test_every_option_is_kept_or_may_differ() -> None:
    known = {option.key for option in load_schema().options if not option.refused}
    rest = {key for key in known if key.startswith(("console.", "config.termination."))} - {"console.gateway"}
    kept = {*fingerprints.KEPT, *fingerprints.GROWING}
    assert kept | MAY_DIFFER | rest == known
    assert not kept & (MAY_DIFFER | rest)


def test_the_same_options_go_on(made: Made) -> None:
    assert made.began().found() == []


def test_a_run_without_a_trial_may_be_corrected(made: Made) -> None:
    """The gateway refused the rank, say: the remedy is another one, in the same command."""
    made.began()
    assert errors(made.found("config.lora_rank=8"))
    (made.run_dir / LEDGER).unlink()
    assert errors(made.found("config.lora_rank=8")) == []


@pytest.mark.parametrize(
    "word",
    [
        *("config.max_steps=9", "config.dataset_builder.epochs=5", "config.save_every=1", "config.eval_every=3"),
        *("config.base_url=http://127.0.0.1:2", "console.name=other", "console.probe_interval=1"),
        *("harbor.runners=2", "harbor.on_failure=retry", "harbor.max_calls=3", "harbor.listen_port=4000"),
        # as the cookbook takes it when it is not given, and another spelling of one number
        *("config.renderer_name=qwen3", "config.learning_rate=0.001", "config.loss_fn_config={}"),
    ],
)
def test_what_may_differ(made: Made, word: str) -> None:
    assert made.began().found(word) == []


@pytest.mark.parametrize(
    ("word", "was", "now"),
    [
        ("config.model_name=Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-4B"),
        ("config.renderer_name=qwen3_instruct", "qwen3", "qwen3_instruct"),
        ("config.lora_rank=8", "32", "8"),
        ("config.loss_fn=importance_sampling", "ppo", "importance_sampling"),
        ('config.loss_fn_config={"clip_low_threshold": 0.9}', "None", '{"clip_low_threshold":0.9}'),
        ("config.learning_rate=2e-3", "0.001", "0.002"),
        ("config.num_substeps=2", "1", "2"),
        ("config.kl_penalty_coef=0.1", "0.0", "0.1"),
        ("config.dataset_builder.group_size=8", "4", "8"),
        ("config.dataset_builder.groups_per_batch=2", "4", "2"),
        ("config.dataset_builder.shuffle_seed=3", "None", "3"),
        ("harbor.reward_key=score", "reward", "score"),
        ("harbor.reward_limit=10", "1000000.0", "10.0"),
        ("harbor.sampling=force", "agent", "force"),
        ("harbor.history_thinking=template", "keep", "template"),
        ("harbor.train=main", "all", "main"),
        ("console.gateway=embedded", "none", "embedded"),
    ],
)
def test_what_decides_the_learning_must_be_as_it_was(made: Made, word: str, was: str, now: str) -> None:
    key = word.partition("=")[0]
    (finding,) = [f for f in made.began().found(word) if f.object == key]
    assert (finding.code, finding.level) == ("resume.option", "error")
    assert finding.message == f"is {now}, and the run began with {was}"
    assert finding.remedy.startswith("put it back, or ")
    assert ("quarterdeck fork" in finding.remedy) == (
        key not in ("config.model_name", "config.lora_rank", "console.gateway")
    )


def test_each_key_that_differs_is_told(made: Made) -> None:
    found = made.began().found("config.learning_rate=1", "config.lora_rank=8", "harbor.train=main")
    assert {f.object for f in found} == {"config.learning_rate", "config.lora_rank", "harbor.train"}


def test_epochs_may_only_grow(made: Made) -> None:
    (finding,) = made.began().found("config.dataset_builder.epochs=3")
    assert "is 3, and the run has 4" in finding.line()


def _touch(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tasks: shutil.rmtree(tasks / "one"), "one was removed"),
        (lambda tasks: shutil.copytree(tasks / "one", tasks / "four"), "four was added"),
        (lambda tasks: (tasks / "two/tests/test.sh").write_text("exit 1\n"), "two was changed"),
        (lambda tasks: (tasks / "two/tests/test.sh").chmod(0o755), "two was changed"),
        (lambda tasks: (tasks / "two/tests/test.sh").rename(tasks / "two/tests/t.sh"), "two was changed"),
        (lambda tasks: (tasks / "two/more").write_text(""), "two was changed"),
        (lambda tasks: [(tasks / n / "x").write_text("") for n in ("one", "two")], "one, two were changed"),
        (lambda tasks: _touch(tasks / "two/tests/.git"), "two was changed"),
    ],
)
def test_tasks_must_be_as_they_were(made: Made, change: Callable[[Path], None], said: str) -> None:
    made.began()
    change(made.root / "tasks")
    (finding,) = made.found()
    assert finding.code == "resume.tasks"
    assert finding.line().startswith(f"config.dataset_builder.tasks_dir: {said} since the run began; put ")


@pytest.mark.parametrize(
    "change",
    [
        lambda tasks: os.utime(tasks / "two/task.toml", (1, 1)),
        lambda tasks: _touch(tasks / "two/tests/__pycache__/a.cpython-313.pyc"),
        lambda tasks: _touch(tasks / "two/task.toml~"),
        lambda tasks: _touch(tasks / "two/.git/HEAD"),
        lambda tasks: (tasks / "two/empty").mkdir(),
        lambda tasks: _touch(tasks / "no-task/readme.md"),
        lambda tasks: (
            (shutil.copytree(tasks, tasks.parent / "elsewhere"), shutil.rmtree(tasks))
            and (tasks.parent / "elsewhere").rename(tasks)
        ),
    ],
)
def test_what_is_no_part_of_a_task_does_not_count(made: Made, change: Callable[[Path], None]) -> None:
    made.began()
    change(made.root / "tasks")
    assert made.found() == []


def test_links_are_followed_and_end(made: Made) -> None:
    shared = made.root / "shared"
    shared.mkdir()
    (shared / "data").write_text("1")
    task = made.root / "tasks/one"
    (task / "linked").symlink_to(shared)
    (task / "loop").symlink_to(task)
    (task / "nowhere").symlink_to("missing")
    made.began()
    assert made.found() == []
    (shared / "data").write_text("2")
    assert [f.line().split(";")[0] for f in made.found()] == [
        "config.dataset_builder.tasks_dir: one was changed since the run began"
    ]


def test_a_pipe_among_the_files_holds_nothing_up(made: Made) -> None:
    os.mkfifo(made.root / "tasks/one/pipe")
    assert made.began().found() == []


def test_a_task_that_cannot_be_read_is_named(made: Made) -> None:
    made.began()
    (made.root / "tasks/one/deep").symlink_to("/proc/self/mem")  # readable by nobody, whoever runs the test
    (finding,) = made.found()
    assert "tasks/one/deep: cannot be read" in finding.line()
    with pytest.raises(UsageError, match="make it readable"):
        fingerprints.of(parse(made.words))


def test_names_of_files_may_be_any_bytes(made: Made) -> None:
    strange = os.fsencode(made.root / "tasks") + b"/t\xff"
    shutil.copytree(made.root / "tasks/one", os.fsdecode(strange))
    assert made.began().found() == []


def test_the_trial_file_is_compared_key_by_key(made: Made) -> None:
    made.began()
    made.trial(TRIAL | {"agent": {"name": "x", "env": TRIAL["agent"]["env"], "kwargs": {"max_turns": 5, "new": True}}})
    first, second = made.found()
    assert first.message == "agent.kwargs.max_turns is 5, and the run began with 4"
    assert second.message == "agent.kwargs.new is true, and the run began with not set"
    assert str(made.root / "trial.json") in first.object


def test_a_renewed_key_and_another_format_change_nothing_and_secrets_are_not_kept(made: Made) -> None:
    made.began()
    agent = TRIAL["agent"] | {"env": {"SOME_API_KEY": "sk-fedcba9876543210"}}
    (made.root / "trial.json").write_text(json.dumps({"agent": agent} | TRIAL | {"agent": agent}, indent=3))
    assert made.found() == []
    assert "0123456789abcdef" not in (made.run_dir / "run.json").read_text()


def test_the_embedded_model_must_be_the_same_and_its_checkpoint_there(made: Made) -> None:
    model = made.root / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text(name)
    made.words[-1] = "console.gateway=embedded"
    made.words.append(f"console.embedded_model={model}")
    made.began(steps=2, saved=2)
    (gone,) = made.found()
    assert (gone.code, gone.object) == ("resume.checkpoint", "console.embedded_checkpoints")
    kept = made.run_dir / "gateway/tenant/m/weights/000002"
    kept.mkdir(parents=True)
    (kept / "checkpoint.json").write_text("{}")
    assert made.found() == []
    (model / "model.safetensors").write_text("other")
    (other,) = made.found()
    assert other.code == "resume.model" and "model.safetensors differs" in other.message


@pytest.mark.parametrize(
    "given",
    [
        ["config.dataset_builder.tasks_dir={root}/harder ones"],
        ["config.dataset_builder.tasks_dir={root}/harder ones", "config.learning_rate=1e-4", "harbor.train=main"],
        ["config.learning_rate=1e-4", "harbor.max_calls=3", 'config.loss_fn_config={{"clip_low_threshold": 0.8}}'],
        ["config.dataset_builder.shuffle_seed=None", "config.remove_constant_reward_groups=false"],
        ["harbor.trial_config={root}/other.json", "config.max_steps=None", "config.learning_rate=1e-4"],
    ],
)
def test_the_fork_that_is_proposed_has_what_the_user_gave(made: Made, given: list[str]) -> None:
    """And nothing else: it begins with the run's own options."""
    shutil.copytree(made.root / "tasks", made.root / "harder ones")
    _touch(made.root / "harder ones/two/more")
    (made.root / "other.json").write_text(json.dumps(TRIAL | {"timeout_multiplier": 2.0}))
    made.words += ["config.dataset_builder.shuffle_seed=3", "config.remove_constant_reward_groups=true"]
    made.began()
    before = parse(made.words)
    before.write(made.run_dir / "options.json")
    wanted = parse([word.format(root=made.root) for word in given], base=before)
    found = check(wanted, made.run_dir)
    assert errors(found)
    for finding in errors(found):
        command, _, words = finding.remedy.partition("quarterdeck fork ")[2].partition(" ")
        assert command == str(made.run_dir)
        *words, place = shlex.split(words)
        assert place == "config.log_path=NEW" and len(words) == len(given)
        assert parse(words, base=before).overrides() == wanted.overrides()


def test_a_fork_that_is_proposed_shows_no_secret_and_not_what_no_fork_can_change(made: Made) -> None:
    made.began()
    parse(made.words).write(made.run_dir / "options.json")
    (made.root / "tasks/two/more").touch()
    found = made.found("config.lora_rank=8", "console.ping_url=https://ping.example/abcdef", "harbor.train=main")
    assert {f.object for f in found} == {"config.dataset_builder.tasks_dir", "config.lora_rank", "harbor.train"}
    forks = [f.remedy.partition("quarterdeck fork ")[2] for f in found if "quarterdeck fork" in f.remedy]
    assert forks == [f"{made.run_dir} harbor.train=main config.log_path=NEW"] * 2


def test_fewer_steps_than_are_trained(made: Made) -> None:
    made.began(steps=4, saved=2)
    assert made.found("config.max_steps=4") == []
    (finding,) = made.found("config.max_steps=3")
    assert (finding.code, finding.message) == ("resume.max_steps", "is 3, and 4 steps of the run are trained")


@pytest.mark.parametrize("damage", ["old", "empty", "half", "gone"])
def test_without_fingerprints_the_last_engines_options_count(made: Made, damage: str) -> None:
    """Tasks and trial file cannot be compared then, which is a warning; a changed option is refused all the same."""
    made.began(kept=damage != "old")
    (made.run_dir / "options.json").write_bytes(parse(made.words).to_json())
    manifest = made.run_dir / "run.json"
    if damage in ("empty", "half"):
        manifest.write_text("" if damage == "empty" else '{"a":')
    elif damage == "gone":
        manifest.unlink()
    (warned,) = made.found()
    assert (warned.code, warned.level, warned.object) == ("resume.unchecked", "warning", str(manifest))
    (refused,) = errors(made.found("config.learning_rate=9"))
    assert (refused.code, refused.object) == ("resume.option", "config.learning_rate")


@pytest.mark.parametrize("options", ["{", None])
def test_with_nothing_to_compare_with_a_resume_is_refused(made: Made, options: str | None) -> None:
    made.began()
    (made.run_dir / "run.json").write_text("{")
    if options is not None:
        (made.run_dir / "options.json").write_text(options)
    (finding,) = errors(made.found())
    assert finding.code == "resume.unchecked" and "options.json cannot be read" in finding.message


def test_checkpoints_that_the_journal_knows_and_the_file_has_not(made: Made) -> None:
    made.began(steps=4, saved=2)
    (made.run_dir / "checkpoints.jsonl").write_text('{"name": "0000')
    (finding,) = errors(made.found())
    assert finding.code == "resume.checkpoint" and "lacks checkpoint 000002" in finding.message
    row = finding.remedy.partition("append the line ")[2]
    (made.run_dir / "checkpoints.jsonl").write_text(f"{row}\n")
    assert made.found() == []


def test_an_option_that_is_newer_than_the_run_counts_as_its_default(made: Made) -> None:
    made.began()
    manifest = read_manifest(made.run_dir)
    del manifest.fingerprints["harbor.train"]
    write_manifest(made.run_dir, manifest)
    assert made.found() == []
    assert [f.message for f in made.found("harbor.train=main")] == ["is main, and the run began with all"]


@pytest.mark.parametrize(
    ("steps", "saved", "said"),
    [
        (0, None, "run r1 begins anew: it has no checkpoint yet"),
        (1, None, "run r1 begins anew: it has no checkpoint yet; step 0 is applied again from what was captured"),
        (2, 2, "run r1 resumes from step 2 (checkpoint 000002, saved 12 min ago)"),
        (3, 2, "run r1 resumes from step 2 (checkpoint 000002, saved 12 min ago); step 2 is applied again"),
        (5, 2, "run r1 resumes from step 2 (checkpoint 000002, saved 12 min ago); steps 2 to 4 are applied again"),
    ],
)
def test_it_says_from_where(made: Made, steps: int, saved: int | None, said: str) -> None:
    at = standing(made.began(steps=steps, saved=saved).run_dir)
    assert at is not None
    assert at.line(now=1120.0 + 12 * 60).startswith(said)
    (told,) = [f for f in check(parse(made.words), made.run_dir) if f.code == "resume.from"]
    assert told.level == "note"


def test_a_second_start_keeps_what_only_the_first_one_knew(made: Made) -> None:
    made.run_dir.mkdir()
    parent = Ancestor(run_id="p", run_dir="/p", checkpoint="000002", path="tinker://m/weights/000002", step=2)
    write_manifest(made.run_dir, Manifest(run_id="r", created=5.0, fingerprints={"a": "1"}, lineage=[parent]))
    renewed = renew_manifest(made.run_dir, Manifest(run_id="r", created=9.0, versions={"x": "2"}))
    assert renewed == read_manifest(made.run_dir)
    assert (renewed.created, renewed.fingerprints, renewed.lineage) == (5.0, {"a": "1"}, [parent])
    assert renew_manifest(made.run_dir, Manifest(run_id="r", fingerprints={"a": "2"})).fingerprints == {"a": "2"}
    assert renew_manifest(made.run_dir, Manifest(run_id="another", created=9.0)).lineage == []


def test_values_that_a_file_made_up_are_not_believed(made: Made) -> None:
    """A manifest that somebody edited by hand is compared, and never a reason to fail."""
    made.began()
    manifest = read_manifest(made.run_dir)
    manifest.fingerprints |= {"config.learning_rate": "{", "config.dataset_builder.epochs": "many", "task:\x1b[31m": ""}
    write_manifest(made.run_dir, manifest)
    lines = "\n".join(finding.line() for finding in made.found())
    assert "config.learning_rate: is 0.001, and the run began with {" in lines
    assert "\x1b" not in lines
