"""What a resume trains again, what it uses, and what it leaves alone: every way in which an engine may have ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_runs import CANCELLED, INFRA, POLICY, RECIPE, RUNNING, UNSEALED, RecordedRun

from console.journal import events as ev
from console.records.batches import owes_row, read_batches
from console.training import lineage

PAIR = {0: 1.0, 1: 0.0}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedRun]:
    recorded = RecordedRun(tmp_path / "run")
    recorded.engine()
    yield recorded
    recorded.close()


def used(found, step: int, group: int = 0) -> dict[int, str]:
    """Key by trial of what is used of a group."""
    return {trial: one.key for trial, one in found.batches[step].groups[group].trials.items()}


def test_a_new_run_begins_with_nothing(tmp_path):
    run = RecordedRun(tmp_path / "new")
    found = run.plan()
    run.close()
    assert (found.weights, found.step, found.batches, found.missing, found.why_not) == (f"{POLICY}.2", 0, {}, [], "")
    assert found.group(0, 0, found.weights).tries == {}


def test_trained_steps_are_trained_again_and_the_interrupted_one_goes_on(run):
    run.save(0, name="000000-start")
    for step in range(3):
        run.step(step, PAIR)
    run.begin(3, size=2)
    run.group(3, 0, {0: 1.0, 1: RUNNING, 2: INFRA, 3: 0.0}, ended=False)
    run.group(3, 1, {0: UNSEALED, 1: CANCELLED}, ended=False, size=4)
    found = run.plan()
    assert found.replayed == [0, 1, 2]
    assert found.why_not == "not used: s3.g1.t0.y0: it was not sealed"
    assert used(found, 3) == {0: "s3.g0.t0.y0", 3: "s3.g0.t3.y0"}
    assert used(found, 3, 1) == {1: "s3.g1.t1.y0"}
    event = found.event()
    assert (event.checkpoint, event.step, event.reused, event.redone) == ("000000-start", 0, 3, 5)
    assert found.batches[3].weights == run.weights
    assert found.group(3, 0, run.weights).tries == {0: 1, 1: 1, 2: 1, 3: 1}, "no try has a number twice"
    assert found.group(3, 1, run.weights).tries == {0: 1, 1: 1}
    assert found.batch(3, "others") is None and found.group(3, 0, "others").trials == {}
    assert found.group(3, 0, "others").tries == {0: 1, 1: 1, 2: 1, 3: 1}


def test_what_is_brought_back_is_what_was_captured(run):
    run.save(0)
    run.step(0, PAIR)
    (batch,) = run.plan().batches.values()
    trial = batch.groups[0].trials[1]
    captured = trial.captured()
    (segment,) = captured.segments
    assert [list(turn.tokens_T) for turn in segment.turns] == [[1, 2]]
    assert [list(turn.prompt_new) for turn in segment.turns] == [[1, 2, 3]]
    assert (captured.policy_version, trial.verdict.reward, trial.verdict.scored) == (0, 0.0, True)
    assert (captured.evidence.sampled_tokens, captured.prompt_tokens) == (2, 3)


@pytest.mark.parametrize("what", ["gone", "flipped", "cut", "unsealed", "of another version", "other segments"])
def test_a_batch_that_is_not_whole_ends_the_replay_and_its_other_trials_are_used(run, what):
    run.save(0)
    run.step(0, PAIR)
    run.step(1, {0: 1.0, 1: 0.0, 2: 0.5})
    after = run.weights
    run.step(2, PAIR)
    path = run.file("s1.g0.t2.y0")
    data = path.read_bytes()
    if what in ("gone", "unsealed", "of another version"):
        path.unlink()
    if what == "flipped":
        path.write_bytes(data[:60] + bytes([data[60] ^ 8]) + data[61:])
    elif what == "cut":
        path.write_bytes(data[:-10])
    elif what == "unsealed":
        run.version = 1
        run.capture((1, 0, 2, 0), sealed=False)
    elif what == "of another version":
        run.version = 9
        run.capture((1, 0, 2, 0))
    elif what == "other segments":
        run.emit(ev.RunStarted(run_id="r", resumed_from=0))
        run.weights, run.version = lineage.after(f"{POLICY}.1", RECIPE, ["s0.g0.t0.y0", "s0.g0.t1.y0"]), 1
        run.begin(1)
        run.emit(ev.GroupStarted(step=1, group=0, task="task0", size=3))
        for trial, reward in enumerate((1.0, 0.0, 0.5)):
            run.emit(
                ev.TrialFinished(
                    step=1, group=0, trial=trial, outcome="completed", reward=reward, segments=1 + (trial == 2)
                )
            )
        run.emit(ev.GroupFinished(step=1, group=0, kept=True))
        run.finish(1, ["s1.g0.t0.y0", "s1.g0.t1.y0", "s1.g0.t2.y0"])
        (run.file("s1.g0.t2.y0")).rename(path.with_suffix(".kept"))
        run.version = 1
        run.capture((1, 0, 2, 0), sealed=False)
    found = run.plan()
    assert found.replayed == [0]
    assert used(found, 1) == {0: "s1.g0.t0.y0", 1: "s1.g0.t1.y0"}
    assert 2 not in found.batches and found.batch(2, after) is None, "what followed has other weights now"
    assert found.why_not.startswith("step 1 is begun again: s1.g0.t2.y0: ") and "\n" not in found.why_not
    assert found.group(1, 0, found.batches[1].weights).tries[2] == 1


def test_a_journal_that_lacks_a_part_of_a_trained_batch_does_not_train_the_rest_as_if_it_were_whole(run):
    run.save(0)
    run.begin(0, size=2)
    keys = run.group(0, 0, PAIR)
    run.finish(0, [*keys, "s0.g1.t0.y0", "s0.g1.t1.y0"], kept=2)
    found = run.plan()
    assert (found.replayed, found.batches[0].reused, found.batches[0].redone) == ([], 2, None)
    assert found.why_not == "step 0 is begun again: the journal lacks a part of its batch"


def test_a_row_that_tells_of_other_groups_than_the_batch_is_believed(run):
    run.save(0)
    run.begin(0, size=2)
    keys = run.group(0, 0, PAIR) + run.group(0, 1, PAIR)
    run.finish(0, keys, kept=1)
    found = run.plan()
    assert found.replayed == [] and "2 groups that were kept, and 1 were trained" in found.why_not


def test_groups_that_did_not_train_are_what_they_were(run):
    run.save(0)
    run.begin(0, size=3)
    keys = run.group(0, 0, PAIR)
    run.group(0, 1, PAIR, reason="cancelled by ada")
    run.group(0, 2, {0: 1.0, 1: CANCELLED}, reason="1 scored of 2 trials, 2 needed")
    run.finish(0, keys)
    for key in ("s0.g1.t0.y0", "s0.g2.t0.y0"):
        run.file(key).unlink()  # nothing of them is needed
    found = run.plan()
    assert (found.replayed, found.why_not) == ([0], "")
    groups = found.batches[0].groups
    assert [group.ended.reason for group in groups.values()] == [
        "", "cancelled by ada", "1 scored of 2 trials, 2 needed"
    ]  # fmt: skip
    assert all(group.whole and group.replayed for group in groups.values())
    assert lineage.after(found.weights, RECIPE, found.batches[0].trained_keys) == run.weights


def test_a_step_without_anything_to_train_leaves_the_weights(run):
    run.save(0)
    run.step(0, {0: 1.0, 1: CANCELLED}, reason="1 scored of 2 trials, 2 needed")
    before = run.weights
    run.step(1, PAIR)
    found = run.plan()
    assert found.replayed == [0, 1] and found.batches[1].weights == before == found.weights


def test_all_engines_of_a_batch_count(run):
    """The second crash right after a resume loses nothing; the last usable try of a trial is the one that counts."""
    run.save(0)
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: RUNNING, 2: INFRA, 3: 0.5}, size=5, ended=False)
    run.engine(0)
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.0, 2: INFRA}, size=5, ended=False, tries={1: 1, 2: 1}, reused=frozenset({0}))
    run.engine(0)
    run.begin(0)
    found = run.plan()
    assert used(found, 0) == {0: "s0.g0.t0.y0", 1: "s0.g0.t1.y1", 3: "s0.g0.t3.y0"}
    assert found.group(0, 0, run.weights).tries == {0: 1, 1: 2, 2: 2, 3: 1}
    run.file("s0.g0.t1.y1").write_bytes(b"")
    found = run.plan()
    assert used(found, 0) == {0: "s0.g0.t0.y0", 3: "s0.g0.t3.y0"}
    assert (found.event().reused, found.event().redone) == (2, 3)


def test_another_task_or_size_is_another_group(run):
    run.save(0)
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: RUNNING}, ended=False)
    run.engine(0)
    run.begin(0)
    run.group(0, 0, {0: RUNNING, 1: 0.5}, task="other", tries={0: 1, 1: 1}, ended=False)
    found = run.plan()
    assert used(found, 0) == {1: "s0.g0.t1.y1"} and found.batches[0].groups[0].task == "other"


def test_a_batch_that_was_trained_twice_is_trained_again_as_it_was_the_last_time(run):
    run.save(0)
    run.step(0, PAIR)
    run.engine(0, f"{POLICY}.1", 0)
    run.step(0, {0: 0.25, 1: 0.75}, tries={0: 1, 1: 1})
    assert run.plan().batches[0].trained_keys == ["s0.g0.t0.y1", "s0.g0.t1.y1"]
    run.file("s0.g0.t0.y1").unlink()
    assert run.plan().batches[0].trained_keys == ["s0.g0.t0.y0", "s0.g0.t1.y0"]


def test_a_replay_that_was_killed_is_begun_again(run):
    run.save(0)
    run.step(0, PAIR)
    run.step(1, PAIR)
    run.engine(0, f"{POLICY}.1", 0)
    run.begin(0, replayed=True)
    keys = run.group(0, 0, PAIR, reused=frozenset(PAIR))
    run.finish(0, keys, replayed=True)
    run.begin(1, replayed=True)
    run.group(1, 0, {0: 1.0}, size=2, reused=frozenset({0}), ended=False)
    found = run.plan()
    assert (found.replayed, found.why_not) == ([0, 1], "")


def test_what_was_sampled_from_other_weights_is_never_used(run):
    run.save(0)
    run.step(0, PAIR)
    run.engine(0, f"{POLICY}.1", 0)
    run.step(0, PAIR, tries={0: 1, 1: 1})  # done anew, say because a file could not be read
    first = lineage.after(f"{POLICY}.1", RECIPE, ["s0.g0.t0.y0", "s0.g0.t1.y0"])
    run.engine(0, first, 1)
    run.step(1, PAIR)
    found = run.plan()
    assert found.replayed == [0] and 1 not in found.batches
    assert found.why_not == "step 1: its trials run again, for they were sampled from other weights"
    assert found.group(1, 0, run.weights).tries == {0: 1, 1: 1}


def test_another_recipe_makes_other_weights_of_the_same_batch(run):
    run.save(0)
    run.step(0, PAIR)
    run.step(1, PAIR)
    found = run.plan(recipe="half the learning rate")
    assert found.replayed == [0] and 1 not in found.batches


def test_adapters_that_began_at_random_and_were_not_saved_are_not_taken_for_others(run):
    """The first step was sampled from what every adapter begins as; the second from what no other becomes."""
    run.step(0, PAIR)
    run.step(1, PAIR)
    found = run.plan()
    assert (found.weights, found.replayed) == (f"{POLICY}.2", [0]) and 1 not in found.batches
    assert "were not saved" in found.why_not
    assert run.plan(fresh_weights="another model.2").batches == {}


def test_journals_of_before_weights_had_names_are_not_used(run):
    run.weights = ""
    run.save(0)
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: RUNNING}, ended=False)
    found = run.plan()
    assert found.batches == {} and "does not say which weights" in found.why_not
    assert found.weights == lineage.of_checkpoint("tinker://m/0")


def test_the_checkpoint_says_where_to_begin(run):
    run.save(0)
    for step in range(4):
        run.step(step, PAIR)
        if step == 1:
            run.save(2)
    found = run.plan()
    assert (found.step, found.checkpoint, found.replayed) == (2, "000002", [2, 3])
    assert found.policy_version == 2 and found.missing == []
    assert run.plan(max_steps=3).replayed == [2]


@pytest.mark.parametrize("told", ["checkpoint", "row", "neither", "by its row alone"])
def test_the_name_of_a_checkpoint_is_found_whatever_the_kill_left(run, told):
    """Between the cookbook's row and ours there are two moments at which an engine may die."""
    run.step(0, PAIR)
    run.begin(1)
    keys = run.group(1, 0, PAIR)
    run.train(keys)
    if told == "by its row alone":
        run.weights = "known to nobody else"
    run.save(2, told=told == "checkpoint", named=told == "by its row alone")
    if told == "row":
        run.emit(ev.StepFinished(step=1, groups_kept=1, policy_version=2, weights=run.weights))
    found = run.plan()
    assert (found.weights, found.policy_version) == (run.weights, 2)
    if told == "row":
        assert found.missing == [] and not owes_row(run.run_dir, 2)
        return
    assert owes_row(run.run_dir, 2) and not owes_row(run.run_dir, 1)
    (row,) = found.missing
    assert (row.step, row.recovered, row.replayed, row.weights) == (1, True, False, run.weights)
    assert (row.reward_mean, row.groups_kept, row.outcomes) == (0.5, 1, {"completed": 2})
    assert (row.tokens_sampled, row.tokens_prompt, row.ppo_loss, row.tokens_trained) == (4, 6, None, None)
    run.engine(2)
    run.emit(row)
    assert run.plan().missing == [] and run.plan().weights == run.weights and not owes_row(run.run_dir, 2)


def test_a_row_of_an_earlier_lineage_does_not_name_a_checkpoint(run):
    """Somebody took away checkpoint 1, whose row had been recovered; step 0 was done again."""
    run.begin(0)
    run.train(run.group(0, 0, PAIR))
    run.save(1, told=False)
    (row,) = run.plan().missing
    run.engine(1)
    run.emit(row)
    (run.run_dir / "checkpoints.jsonl").unlink()
    run.engine(0, f"{POLICY}.2", 0)
    run.begin(0)
    run.train(run.group(0, 0, PAIR, tries={0: 1, 1: 1}))
    run.save(1, told=False, path="tinker://m2/1")
    assert run.plan().weights == run.weights != row.weights


def test_a_checkpoint_of_another_run_has_a_name_of_its_own(run):
    run.save(7, told=False, path="tinker://other/7")
    found = run.plan()
    assert found.weights == lineage.of_checkpoint("tinker://other/7")
    assert (found.step, found.missing, found.policy_version) == (7, [], None) and not owes_row(run.run_dir, 7)
    run.engine(7, found.weights, 7)
    run.step(7, PAIR)
    run.begin(8)
    run.group(8, 0, {0: 1.0, 1: RUNNING}, ended=False)
    found = run.plan()
    assert found.replayed == [7] and used(found, 8) == {0: "s8.g0.t0.y0"}


@pytest.mark.parametrize("moment", ["told", "accepted", "refused"])
def test_a_group_that_an_operator_cancelled_stays_cancelled(run, moment):
    run.save(0)
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.0, 2: RUNNING}, ended=False)
    run.emit(ev.CommandRequested(id="c", command="cancel_group", args={"group": 0}, author="ada"))
    if moment != "refused":
        run.emit(ev.CommandAccepted(id="c"))
    else:
        run.emit(ev.CommandFinished(id="c", status="refused"))
    if moment == "told":
        run.trial((0, 0, 2, 0), CANCELLED)
        run.emit(ev.GroupFinished(step=0, group=0, kept=False, reason="cancelled by ada"))
        run.emit(ev.CommandFinished(id="c", status="done"))
    group = run.plan().batches[0].groups[0]
    assert group.cancelled_by == ("" if moment == "refused" else "ada")
    assert group.whole is (moment != "refused")


def test_files_take_numbers_that_the_journal_lost(run):
    run.save(0)
    run.begin(0)
    run.group(0, 0, {0: RUNNING}, size=2, ended=False)
    run.capture((0, 0, 0, 4), sealed=False)
    aside = run.capture((0, 0, 1, 2), sealed=False)
    aside.rename(aside.with_name(f"{aside.name}.earlier-1"))
    assert run.plan().group(0, 0, run.weights).tries == {0: 5, 1: 3}


def test_reading_from_a_step_on_finds_the_same_as_reading_all(run):
    run.save(0)
    for step in range(5):
        run.step(step, PAIR)
    run.engine(3, version=3)
    run.step(3, PAIR, tries={0: 1, 1: 1})
    run.engine(2, version=2)
    run.step(2, PAIR, tries={0: 1, 1: 1})
    whole = read_batches(run.run_dir)
    for first in range(6):
        part = read_batches(run.run_dir, first)
        assert part.openings == [one for one in whole.openings if one.step >= first]
        assert part.next_try == {place: number for place, number in whole.next_try.items() if place[0] >= first}


def test_an_only_step_that_was_saved_and_not_written_is_owed(run):
    run.begin(0)
    run.train(run.group(0, 0, PAIR))
    run.save(1, told=False)
    assert owes_row(run.run_dir, 1) and not owes_row(run.run_dir / "nowhere", 1)
    (row,) = run.plan().missing
    assert (row.step, row.weights) == (0, run.weights)


def test_a_policy_version_counts_optimiser_steps_and_not_batches(run):
    run.begin(0)
    keys = run.group(0, 0, PAIR)
    run.train(keys)
    run.save(1)
    assert run.plan(num_substeps=4).missing[0].policy_version == 2, "no more of them than there are sequences"
