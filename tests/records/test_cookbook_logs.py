"""A plain log directory of the cookbook opens with what it has, whatever is in its files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.errors import RecordingError
from console.journal import events as ev
from console.records import cookbook_log
from console.records.marking import MarkReader
from console.records.opening import is_plain_log, open_run
from console.records.run_dir import RunRecord
from console.state.reduce import fold

ENDED = 1_790_000_000.0


def metrics(step: int, **more: Any) -> dict[str, Any]:
    """A row as the cookbook's RL loop logs it."""
    return {
        "step": step, "progress/batch": step, "optim/lr": 0.002, "progress/done_frac": (step + 1) / 4,
        "env/all/total_episodes": 4, "env/all/total_ac_tokens": 737, "env/all/total_ob_tokens": 5322,
        "env/all/reward/total": 0.5, "env/all/by_group/frac_mixed": 0.5, "grad_norm": 39.4,
        "optimizer_steps": step + 1.0,
        "optim/kl_sample_train_v1": -8e-10, "optim/kl_sample_train_v2": 8.6e-14, "optim/entropy": 0.16,
        "time/do_group_rollout_and_filter_constant_reward:count": 2, "time/sampling": 6.0, "time/train_step": 3.0,
        "time/save_checkpoint": 0.5, "time/total": 10.0, **more,
    }  # fmt: skip


def trajectory(step: int, group: int, trial: int, reward: float, **more: Any) -> dict[str, Any]:
    """A line of the rollout summaries."""
    return {
        "schema_version": 1, "split": "train", "iteration": step, "group_idx": group, "traj_idx": trial,
        "tags": ["terminal", f"task-{group}"], "sampling_client_step": step, "total_reward": reward,
        "final_reward": reward, "trajectory_metrics": {}, "final_ob_len": 0,
        "steps": [{"step_idx": i, "ob_len": 30 * (i + 1), "ac_len": 10, "logs": {}} for i in range(2)], **more,
    }  # fmt: skip


def write(directory: Path, rows: list[Any], checkpoints: list[Any] = [], config: Any = None) -> None:  # noqa: B006
    directory.mkdir(exist_ok=True)
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "checkpoints.jsonl").write_text("".join(json.dumps(row) + "\n" for row in checkpoints))
    (directory / "config.json").write_text(json.dumps(config if config is not None else {"model_name": "Qwen/Q"}))
    os.utime(directory / "metrics.jsonl", (ENDED, ENDED))


def summaries(directory: Path, step: int, rows: list[Any]) -> None:
    folder = directory / f"iteration_{step:06d}"
    folder.mkdir(exist_ok=True)
    (folder / "train_rollout_summaries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three of four steps, summaries of the second one, a checkpoint."""
    config = {
        "model_name": "Qwen/Q", "max_steps": 4, "learning_rate": 0.002, "wandb_api_key": "sk-aaaabbbbccccdddd",
        "base_url": "http://user:pass@gateway:1", "dataset_builder": {"groups_per_batch": 2, "group_size": 2},
    }  # fmt: skip
    save = {"name": "000002", "batch": 2, "state_path": "tinker://r/weights/000002"}
    write(tmp_path / "log", [metrics(step) for step in range(3)], [save], config)
    group = [trajectory(1, g, t, float(t)) for g in range(2) for t in range(2)]
    summaries(tmp_path / "log", 1, group)
    return tmp_path / "log"


def test_steps_trials_and_checkpoints_are_where_they_were(log: Path) -> None:
    record = open_run(log)
    assert is_plain_log(log) and record.damage == []
    view = record.view_at_end()
    state = view.state
    assert (state.model, state.steps_planned, state.groups_per_batch, state.group_size) == ("Qwen/Q", 4, 2, 2)
    assert state.name == "log" and state.status == "live" and state.steps_done == 3
    assert [(c.name, c.step, c.ts) for c in state.checkpoints] == [("000002", 2, ENDED - 10)]
    row = view.history.rows[1]
    assert (row.reward_mean, row.reward_std, row.outcomes) == (0.5, 0.5, {"completed": 4})
    assert (row.kl_sample_train_v1, row.entropy, row.grad_norm, row.learning_rate) == (-8e-10, 0.16, 39.4, 0.002)
    assert (row.tokens_prompt, row.tokens_sampled, row.policy_version) == (5322, 737, 2)
    assert (row.groups_kept, row.groups_zero_variance, row.ppo_loss) == (2, 1, None)
    assert (row.seconds_rollout, row.seconds_train, row.seconds_save, row.seconds_total) == (6.0, 3.0, 0.5, 10.0)
    line = record.timeline()
    assert (line.first_ts, line.last_ts) == (ENDED - 30, ENDED)
    assert [(m.step, m.started, m.ended) for m in line.steps] == [
        (n, ENDED - 30 + 10 * n, ENDED - 20 + 10 * n) for n in range(3)
    ]
    second = record.view_at(ts=ENDED - 14 + 1).state
    assert {g.task for g in second.groups.values()} == {"terminal/task-0", "terminal/task-1"}
    trial = second.groups[1].trials[1]
    assert (trial.reward, trial.turns, trial.prompt_tokens, trial.sampled_tokens) == (1.0, 2, 90, 20)
    assert trial.finished == ENDED - 14 and second.phase == "training"
    assert "no journal" not in record.coarse and "trials of one step" in record.coarse


def test_secrets_of_the_config_are_hidden(log: Path) -> None:
    text = json.dumps(open_run(log).view_at_end().state.config)
    assert "sk-aaaa" not in text and "user:pass" not in text and "config.dataset_builder.group_size" in text


def test_numbers_that_are_none_become_null(tmp_path: Path) -> None:
    write(tmp_path, [metrics(0, **{"grad_norm": math.nan, "env/all/reward/total": math.inf, "optim/entropy": 10**400})])
    row = open_run(tmp_path).view_at_end().history.rows[0]
    assert (row.grad_norm, row.reward_mean, row.entropy) == (None, None, None)
    assert sorted(row.nonfinite) == ["entropy", "grad_norm", "reward_mean"]


def test_a_resumed_log_undoes_steps(tmp_path: Path) -> None:
    write(tmp_path, [metrics(n, **{"env/all/reward/total": n / 10}) for n in (0, 1, 2, 1, 2)])
    record = open_run(tmp_path)
    assert [row.step for row in record.view_at_end().history.rows] == [0, 1, 2]
    assert record.view_at_end().state.engines == 2
    assert len([e for e in record.journal.events() if isinstance(e, ev.StepFinished)]) == 5


def test_a_finished_run_has_ended(tmp_path: Path) -> None:
    write(tmp_path, [metrics(n) for n in range(4)], [{"name": "final", "batch": 4, "state_path": "x", "final": True}])
    state = open_run(tmp_path).view_at_end().state
    assert (state.status, state.exit_code) == ("finished", 0) and state.checkpoints[0].name == "final"


@pytest.mark.parametrize("exported", [True, False])
def test_the_marks_have_every_trial_also_those_that_end_with_the_log(tmp_path: Path, exported: bool) -> None:
    steps = 30
    write(tmp_path, [metrics(n, **{"time/sampling": 10.0, "time/total": 9.7 - n / 7}) for n in range(steps)])
    for step in range(steps if exported else 0):
        summaries(tmp_path, step, [trajectory(step, g, t, float(t)) for g in range(2) for t in range(2)])
    record = open_run(tmp_path)
    reader = MarkReader(record)
    reader.begin(30)
    line = record.timeline()
    assert reader.marks is not None and line.first_ts is not None and line.last_ts is not None
    assert sum(reader.marks.between(line.first_ts, line.last_ts).values()) == 4 * steps


def test_our_outcome_classes_come_back(tmp_path: Path) -> None:
    shares = {
        "env/all/outcome/completed": 0.75,
        "env/all/outcome/agent_timeout": 0.25,
        "env/all/outcome/cancelled": 0.0,
    }
    write(
        tmp_path, [metrics(0, **shares), metrics(1, **{"rollout_errors/total": 3, "rollout_errors/groups_skipped": 1})]
    )
    rows = open_run(tmp_path).view_at_end().history.rows
    assert rows[0].outcomes == {"completed": 3, "agent_timeout": 1}
    assert rows[1].outcomes == {"completed": 4, "ambiguous": 3} and rows[1].groups_dropped == 1
    summaries(
        tmp_path, 0, [trajectory(0, 0, 0, 0.0, trajectory_metrics={"outcome/agent_timeout": 1.0}),
                      trajectory(0, 0, 1, math.nan)],
    )  # fmt: skip
    ends = [e for e in open_run(tmp_path).journal.events() if isinstance(e, ev.TrialFinished)]
    assert [(e.outcome, e.reward) for e in ends] == [("agent_timeout", 0.0), ("bad_reward", None)]


def test_a_step_under_way_shows_its_trials(log: Path) -> None:
    summaries(log, 3, [trajectory(3, 0, 0, 1.0), trajectory(3, 0, 1, 0.0)])
    state = open_run(log).view_at_end().state
    assert state.step == 3 and [t.reward for t in state.groups[0].trials] == [1.0, 0.0]


def test_what_is_written_later_is_taken_in_and_nothing_moves(log: Path) -> None:
    record = open_run(log)
    before = list(record.journal.events())
    with (log / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(metrics(3)) + "\n")
    os.utime(log / "metrics.jsonl", (ENDED + 500, ENDED + 500))
    record.refresh()
    assert list(record.journal.events())[: len(before)] == before
    assert record.view_at_end().state.steps_done == 4 and record.timeline().last_ts == ENDED + 10
    journal = record.journal
    record.refresh()
    assert record.journal is journal


def test_every_moment_is_the_fold_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.records.event_log.SNAPSHOT_EVENTS", 7)
    write(tmp_path, [metrics(n % 3) for n in range(6)])
    for step in range(3):
        summaries(tmp_path, step, [trajectory(step, g, t, 1.0) for g in range(2) for t in range(2)])
    record = open_run(tmp_path)
    events = list(record.journal.events())
    assert sum(isinstance(e, ev.Snapshot) for e in events) > 3
    for seq in range(len(events) + 1):
        assert record.view_at(seq=seq) == fold(events[:seq])
        found = record.journal.nearest_snapshot(seq=seq)
        assert found == next((e for e in reversed(events[:seq]) if isinstance(e, ev.Snapshot)), None)
    for event in events:
        assert record.view_at(ts=event.ts) == fold(e for e in events if e.ts <= event.ts)


@pytest.mark.parametrize(
    "line",
    [b"no", b"[1, 2]", b"{", b'{"step": "x"}', b'{"step": -1}', b'{"step": 1e400}', b"[" * 100_000, b"\xff\xfe"],
)  # fmt: skip
def test_a_bad_line_costs_no_other(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, [metrics(0)])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n" + json.dumps(metrics(1)).encode() + b"\n")
    record = open_run(tmp_path)
    assert [row.step for row in record.view_at_end().history.rows] == [0, 1]
    assert bool(record.damage) == (not line.startswith(b'{"step"'))


def test_lines_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookbook_log, "LINE_LIMIT", 4096)
    monkeypatch.setattr(cookbook_log, "SUMMARIES_LIMIT", 2000)
    write(tmp_path, [metrics(0), metrics(1, **{"x" * 9000: 1}), metrics(2)])
    for step in range(3):
        summaries(tmp_path, step, [trajectory(step, 0, t, 1.0) for t in range(4)])
    record = open_run(tmp_path)
    assert [row.step for row in record.view_at_end().history.rows] == [0, 2]
    assert "trials of one step" in record.coarse  # the latest
    assert any("not a JSON object" in damage.reason for damage in record.damage)


KEY = st.sampled_from(
    ["step", "progress/done_frac", "env/all/reward/total", "env/all/total_episodes", "time/total", "time/sampling",
     "env/all/outcome/completed", "env/all/outcome/\x1b[31m", "rollout_errors/total", "optim/entropy", "grad_norm",
     "env/all/by_group/frac_mixed", "optimizer_steps", "iteration", "group_idx", "traj_idx", "total_reward", "tags",
     "steps", "trajectory_metrics", "name", "batch", "state_path", "final", "max_steps", "dataset_builder"]
)  # fmt: skip
SCALAR = st.none() | st.booleans() | st.integers(-(10**12), 10**400) | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3), max_leaves=6
)
OBJECT = st.dictionaries(KEY, JSON | st.integers(0, 4), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(OBJECT, max_size=6),
    saves=st.lists(OBJECT, max_size=3),
    config=JSON,
    ends=st.lists(OBJECT, max_size=6),
)
def test_no_content_is_too_strange(
    rows: list[Any], saves: list[Any], config: Any, ends: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("strange") / "log"
    write(path, rows, saves, config)
    summaries(path, 2, ends)
    try:
        record = open_run(path)
    except RecordingError:
        return
    events = list(record.journal.events())
    assert record.view_at_end() == fold(events)
    assert all(a.ts <= b.ts for a, b in zip(events, events[1:])) and events[-1].ts < 1e12  # noqa: RUF007
    record.timeline()


def test_directories_without_a_step_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "log", [])
    with pytest.raises(RecordingError, match="without a step yet"):
        open_run(tmp_path / "log")
    (tmp_path / "other").mkdir()
    with pytest.raises(RecordingError, match="not a run directory"):
        open_run(tmp_path / "other")
    assert not is_plain_log(tmp_path / "nowhere")


def test_a_journal_of_ours_comes_first(tmp_path: Path) -> None:
    from console.journal.writer import JournalWriter

    write(tmp_path, [metrics(0)])
    with JournalWriter(tmp_path / "journal") as writer:
        writer.append(ev.RunStarted(run_id="ours"))
    assert not is_plain_log(tmp_path) and type(open_run(tmp_path)) is RunRecord
