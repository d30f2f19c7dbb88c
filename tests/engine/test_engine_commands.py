"""Every command of the table on real trials and groups: what it says it will cost, and what it then does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from operated import Engine
from trial_stage import BUG, LOST
from whole_runs import until

from console.control.commands import COMMANDS
from console.journal import events as ev
from console.training.checkpoints import Saved


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for name in ("copy-file", "create-file", "make-folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.toml").touch()
    return tmp_path


@pytest.fixture
async def engine(tasks: Path) -> Engine:
    return Engine(tasks)


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def test_every_command_of_the_table_is_there(engine):
    assert set(engine._commands._plans) == set(COMMANDS)


# --- trials and groups ----------------------------------------


async def test_cancelling_a_trial_says_when_its_group_and_the_step_are_lost(engine):
    engine.begin(groups=2)
    await engine.running(4)
    assert engine.asks("cancel_trial", group=0, trial=2) == (
        True, "cancels g1/t3 (task); its group goes on with 2 trials",
    )  # fmt: skip
    assert await engine.does("cancel_trial", group=0, trial=2) == (True, "g1/t3 cancelled")
    assert engine.asks("cancel_trial", group=0, trial=1) == (
        True,
        "cancels g1/t2 (task); g1 keeps 1 of 2 scored trials needed and is dropped; the step goes on with 1 group",
    )
    await engine.does("cancel_group", group=1)
    assert engine.asks("cancel_trial", group=0, trial=1)[1].endswith("the step has no group left and trains nothing")
    assert engine.asks("cancel_trial", group=0, trial=9) == (False, "g1/t10 does not run now")
    await settled()
    assert engine.asks("cancel_trial", group=0, trial=2) == (False, "g1/t3 has ended already")
    kept, dropped = await engine.end()
    assert kept.kept and kept.outcomes == {"completed": 2, "cancelled": 1} and not dropped.kept
    assert dropped.reason == "cancelled by ada"


async def test_cancelling_a_group_counts_what_it_costs(engine):
    engine.begin(groups=3)
    await engine.running(6)
    said = "cancels g2 (task): stops 2 running trials, ends 1 that waits, discards 0 scored"
    assert engine.asks("cancel_group", group=1) == (True, f"{said}; the step goes on with 2 groups")
    assert (await engine.does("cancel_group", group=1))[0]
    assert await engine.does("cancel_group", group=1) == (True, "g2 is being cancelled already")
    assert engine.asks("cancel_group", group=7)[0] is False
    assert [r.kept for r in await engine.end()] == [True, False, True]


@pytest.mark.parametrize(
    ("name", "args", "what"),
    [
        ("cancel_trial", {"group": 0, "trial": 1}, "g1/t2 of step"),
        ("cancel_group", {"group": 0}, "g1 of step"),
        ("retry", {"group": 0, "trial": 1}, "g1/t2 of step"),
        ("retry", {}, "step"),
    ],
)
async def test_an_order_for_another_step_is_refused(engine, name, args, what):
    engine.stage.script["s5.g0.t1.y0"] = LOST
    assert engine.asks(name, **args, step=4) == (False, f"{what} 4 has not begun yet")
    engine.begin(step=5)
    engine.stage.gate.set()
    trials = engine.steering.groups
    await until(lambda: bool(trials.active) and trials.trials[1].held is not None)
    for does in (engine.does(name, **args, step=4), engine.does(name, **args, step=6)):
        assert not (await does)[0]
    assert engine.asks(name, **args, step=4) == (False, f"{what} 4 is over: step 5 runs now")
    assert engine.asks(name, **args, step=6) == (False, f"{what} 6 has not begun yet")
    assert trials.trials[1].held is not None and engine.told(ev.TrialRetried) == []
    assert (await engine.does(name, **args, step=5))[0]
    await engine.end()


async def test_a_group_that_has_ended_is_discarded_while_the_batch_waits_for_another(engine):
    engine.begin(groups=2, size=2)
    await engine.running(4)
    engine.stage.script["s0.g1.t0.y0"] = LOST
    engine.stage.gate.set()
    held = engine.steering.groups.active[1].trials[0]
    await until(lambda: held.held is not None and engine.steering.groups.active[0].result is not None)
    possible, text = engine.asks("cancel_group", group=0)
    assert possible and "stops 0 running trials, discards 2 scored; the step goes on with 1 group" in text
    await engine.does("cancel_group", group=0)
    assert (await engine.does("cancel_group", group=0))[1] == "g1 is being cancelled already"
    await engine.does("retry")
    first, second = await engine.end()
    assert (first.kept, first.reason, first.trials) == (False, "cancelled by ada", []) and second.kept
    assert engine.steering.groups.active == {}
    assert engine.asks("cancel_group", group=0)[0] is False, "the batch is complete"


async def test_a_retry_names_its_try_and_is_bounded(engine):
    engine.stage.script |= {f"s0.g0.t0.y{n}": LOST for n in range(4)} | {"s0.g0.t1.y0": BUG}
    engine.begin()
    engine.stage.gate.set()
    trials = engine.steering.groups
    await until(lambda: bool(trials.active) and all(t.held or t.done for t in trials.trials))
    assert engine.asks("retry", group=0, trial=1)[1].startswith("only infrastructure failures are tried again")
    assert engine.asks("retry", group=0, trial=2) == (False, "no trial is held for a retry")
    fresh = "fresh sandbox, fresh route, same policy version"
    for number in (2, 3):
        assert engine.asks("retry") == (True, f"g1/t1: try {number} of 3; {fresh}")
        assert await engine.does("retry") == (True, "1 trial tried again: g1/t1")
        await until(lambda n=number: trials.trials[0].try_ == n - 1 and trials.trials[0].held is not None)
    assert engine.asks("retry") == (False, "g1/t1: try 3 of 3; `set max_tries=` raises it")
    assert "1 of 2 held trials may not be tried again" not in engine.asks("set", max_tries=4)[1]
    await engine.does("set", max_tries=4)
    await engine.does("pause")
    assert engine.asks("retry")[1].endswith("try 4 of 4; " + fresh + "; waits until dispatch is resumed")
    await engine.does("cancel_group", group=0)
    assert [e.by for e in engine.told(ev.TrialRetried)] == ["ada", "ada"]
    assert not (await engine.end())[0].kept


# --- dispatch ----------------------------------------


async def test_a_pause_begins_nothing_until_it_is_taken_back(engine):
    engine.begin()
    await engine.running(2)
    assert engine.asks("pause") == (True, "begins no new trial until resumed: 2 under way go on, 1 wait in the queue")
    assert await engine.does("pause") == (True, "paused: 2 under way go on, 1 wait")
    assert await engine.does("pause") == (True, "paused already, by ada")
    engine.stage.gate.set()
    await engine.running(0)
    await settled()
    assert engine.steering.groups.trials[2].queued
    waits = "dispatch is paused, and the step waits for its 1 queued trial until it is resumed"
    said = f"stops when the current step is trained and saved; {waits}"
    assert engine.asks("stop_after_step") == (True, said)
    assert engine.asks("resume") == (True, "begins 1 queued trial now, and the others in their turn")
    assert await engine.does("resume") == (True, "resumed: 1 trial begun")
    assert await engine.does("resume") == (True, "not paused")
    assert (await engine.end())[0].kept
    assert [(e.paused, e.by) for e in engine.told(ev.DispatchPaused)] == [(True, "ada"), (False, "ada")]


async def test_a_step_that_begins_in_a_pause_starts_no_trial(engine):
    await engine.does("pause")
    engine.begin()
    await settled()
    assert engine.stage.running == set() and len(engine.told(ev.GroupStarted)) == 1
    assert (await engine.does("stop_now"))[1] == "stopping: 0 trials cancelled"
    engine.ending = False
    await engine.does("resume")
    assert (await engine.end())[0].kept


# --- tunables ----------------------------------------


async def test_parallelism_counts_at_once_and_each_change_is_one_event(engine):
    engine.begin(size=5)
    await engine.running(2)
    assert engine.asks("set", parallel=4) == (True, "parallel from 2 to 4: 2 queued trials begin at once")
    assert await engine.does("set", parallel=4.0, max_tries=3) == (True, "parallel is 4")
    await engine.running(4)
    said = "parallel from 4 to 1: none is stopped, 1 group begins no trial until fewer run"
    assert engine.asks("set", parallel=1) == (True, said)
    await engine.does("set", parallel=1, hold_timeout=5, max_tries=9)
    assert [(e.name, e.old, e.new, e.by) for e in engine.told(ev.RunTuned)] == [
        ("parallel", 2, 4, "ada"), ("parallel", 4, 1, "ada"), ("hold_timeout", 600.0, 5, "ada"),
        ("max_tries", 3, 9, "ada"),
    ]  # fmt: skip
    assert await engine.does("set", parallel=1) == (True, "parallel is 1 already")
    assert len(engine.told(ev.RunTuned)) == 4
    assert engine.view.state.tunables | engine.steering.tunables == engine.steering.tunables
    await engine.end()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"parallel": 2.5}, "parallel must be a whole number"),
        ({"parallel": 0}, "parallel must be above 0"),
        ({"parallel": None}, "parallel must be a number"),
        ({"max_tries": 0.5}, "max_tries must be a whole number"),
        ({"max_tries": 10**9}, "max_tries must be at most 1,000"),
        ({"hold_timeout": 1e300}, "hold_timeout must be at most 2,592,000 s"),
        ({"token_budget": 0}, "token_budget must be above 0, or none for no bound"),
        ({"token_budget": 1e300}, "token_budget must be at most"),
        ({"time_budget": -1.0}, "time_budget must be above 0, or none for no bound"),
        ({"time_budget": True}, "time_budget must be a number"),
        ({"parallel": 3, "max_tries": -1}, "max_tries must be above 0"),
    ],
)
async def test_values_that_do_not_fit_are_refused_and_nothing_is_set(engine, args, why):
    possible, text = await engine.does("set", **args)
    assert not possible and text.startswith(why)
    assert engine.told(ev.RunTuned) == []


async def test_a_hold_time_out_says_whom_it_ends(engine):
    engine.stage.script["s0.g0.t0.y0"] = LOST
    engine.begin()
    engine.stage.gate.set()
    trials = engine.steering.groups
    await until(lambda: bool(trials.active) and trials.trials[0].held is not None)
    assert engine.asks("set", hold_timeout=900) == (
        True, "hold_timeout from 600 s to 900 s: moves the deadline of 1 held trial",
    )  # fmt: skip
    await asyncio.sleep(0.02)
    possible, text = await engine.does("set", hold_timeout=0.01, parallel=9)
    assert not possible and text.startswith("hold_timeout 0.01 s is less than g1/t1 has waited (")
    assert "the run would stop at once; cancel or retry it first" in text and engine.told(ev.RunTuned) == []
    await engine.does("set", hold_timeout=900)
    first, second = engine.told(ev.TrialHeld)
    assert second.deadline - first.deadline == pytest.approx(300, abs=5)
    await engine.does("retry")
    await engine.end()


async def test_a_token_budget_sets_the_latch_and_raising_it_takes_it_back(engine):
    engine.totals.prompt_tokens, engine.totals.sampled_tokens = 900, 90
    latch, budgets = engine.steering.latch, engine.steering.budgets
    assert engine.asks("set", token_budget=1000) == (True, "token_budget from none to 1,000: 990 used")
    await engine.does("set", token_budget=1000)
    assert not latch.held
    engine.totals.sampled_tokens = 100
    budgets.check()
    budgets.check()
    assert latch.held and engine.view.state.stop_requested == "after_step"
    assert engine.asks("stop_after_step", on=False) == (
        False, "the token budget of 1,000 is used up; `set token_budget=` raises it, and the run goes on",
    )  # fmt: skip
    assert engine.asks("set", token_budget=5000)[1].endswith(": 1,000 used, takes its stop back")
    await engine.does("set", token_budget=5000)
    assert not latch.held and not latch.asked()
    assert await engine.does("set", token_budget=1000) == (
        False, "token_budget 1,000 is used up already (1,000 used): `stop-after-step` stops the run",
    )  # fmt: skip
    assert not latch.held
    await engine.does("set", token_budget=1001)
    engine.totals.sampled_tokens = 101
    budgets.check()
    assert [(e.when, e.by) for e in engine.told(ev.StopRequested)] == [
        ("after_step", "token budget"), ("", "ada"), ("after_step", "token budget"),
    ]  # fmt: skip
    assert latch.asked() and latch.left
    assert (latch.cause.exit_code, latch.cause.reason) == (3, "token budget of 1,001 reached")
    assert engine.asks("set", token_budget=None)[0] is False, "the loop has stopped"
    assert engine.asks("stop_after_step", on=False)[0] is False


async def test_the_operators_stop_and_a_budgets_are_two(engine):
    latch = engine.steering.latch
    engine.steering.budgets.change("time_budget", 1e-9, "ada")
    assert latch.held
    assert (await engine.does("stop_after_step"))[0]
    assert await engine.does("stop_after_step") == (True, "already asked for")
    await engine.does("set", time_budget=None)
    assert latch.held, "the operator still asks"
    assert engine.view.state.stop_requested == "after_step"
    assert await engine.does("stop_after_step", on=False) == (True, "goes on")
    assert not latch.held and engine.view.state.stop_requested == ""
    assert await engine.does("stop_after_step", on=False) == (True, "no stop is asked for")


# --- tasks ----------------------------------------


async def test_tasks_are_quarantined_but_for_the_last(engine):
    possible, text = engine.asks("quarantine", task="copy-fil")
    assert not possible and text.startswith("no task 'copy-fil' in this run; did you mean copy-file")
    assert engine.asks("quarantine", task="\x1b]0;x\x07zzz")[1].startswith("no task 'zzz' in this run; tasks are")
    said = "leaves copy-file out of the batches that begin from now on: 2 tasks remain"
    assert engine.asks("quarantine", task="copy-file") == (True, said)
    assert await engine.does("quarantine", task="copy-file") == (True, "copy-file left out from the next batch on")
    assert await engine.does("quarantine", task="copy-file", on=True) == (True, "copy-file is quarantined already")
    assert await engine.does("quarantine", task="make-folder", on=False) == (True, "make-folder is not quarantined")
    await engine.does("quarantine", task="make-folder")
    assert engine.asks("quarantine", task="create-file") == (
        False, "create-file is the last task that is not quarantined; a run needs one",
    )  # fmt: skip
    assert (await engine.does("quarantine", task="copy-file", on=False))[0]
    assert engine.steering.quarantined == {"make-folder"} == set(engine.view.state.quarantined)
    assert [(e.task, e.on, e.by) for e in engine.told(ev.TaskQuarantined)] == [
        ("copy-file", True, "ada"), ("make-folder", True, "ada"), ("copy-file", False, "ada"),
    ]  # fmt: skip


async def test_a_quarantine_of_an_earlier_engine_holds_unless_it_leaves_nothing(tasks):
    engine = Engine(tasks, quarantined=("copy-file", "gone"))
    engine.steering.check_quarantine()
    assert engine.steering.quarantined == {"copy-file", "gone"} and engine.told(ev.TaskQuarantined) == []
    assert (await engine.does("quarantine", task="gone", on=False))[0]
    engine = Engine(tasks, quarantined=("copy-file", "create-file", "make-folder"))
    engine.steering.check_quarantine()
    assert engine.steering.quarantined == frozenset()


# --- alarms, notes, the whole run ----------------------------------------


async def test_alarms_are_acknowledged_and_shelved(engine):
    for key in ("a", "b", "c"):
        engine.emit(ev.AlarmOpened(key=key, level="critical", text="x"))
    assert engine.asks("ack", alarm="nope") == (False, "no alarm 'nope'; there are a, b, c")
    assert await engine.does("ack", alarm="a") == (True, "1 alarm acknowledged")
    assert await engine.does("ack", alarm="a") == (True, "a is acknowledged already, by ada")
    assert engine.asks("ack") == (True, "acknowledges b, c: silent until it opens again")
    assert await engine.does("ack") == (True, "2 alarms acknowledged")
    assert await engine.does("ack") == (True, "no alarm asks for anybody")
    assert [(e.key, e.by) for e in engine.told(ev.AlarmAcked)] == [("a", "ada"), ("b", "ada"), ("c", "ada")]


async def test_the_shelf(engine):
    engine.emit(ev.AlarmOpened(key="a", level="warning", text="x"))
    assert engine.asks("shelve", alarm="b", minutes=5) == (False, "no alarm 'b'; there are a")
    assert await engine.does("shelve", alarm="a", minutes=0) == (True, "a is not shelved")
    for minutes in (1e300, None):
        assert engine.asks("shelve", alarm="a", minutes=minutes)[0] is False
    assert await engine.does("shelve", alarm="a", minutes=5) == (True, "a is silent for 5 min")
    engine.emit(ev.AlarmClosed(key="a"))
    assert engine.view.state.shelf["a"] == pytest.approx(engine.view.state.ts + 300, abs=5)
    assert await engine.does("shelve", alarm="a", minutes=0) == (True, "a is back from the shelf")
    assert engine.view.state.shelf == {}
    assert engine.asks("shelve", alarm="a") == (False, "no alarm 'a'; there is none")


async def test_a_note_is_cleaned_and_signed(engine):
    assert engine.asks("note", text="\x1b[31m\x07 ")[0] is False
    assert await engine.does("note", text="disk \x1b[31mfull\x1b[0m\nsoon") == (True, "noted")
    (note,) = engine.told(ev.Note)
    assert (note.text, note.source) == ("disk full soon", "ada")


async def test_a_checkpoint_says_its_name_its_seconds_and_where_a_resume_goes_on(engine):
    said = "checkpoint 000001-request saved in 0.5 s; a resume goes on at step 1"
    assert await engine.does("checkpoint") == (True, said)
    engine.saved = Saved(name="000001", steps=1)
    assert (await engine.does("checkpoint"))[1].startswith("checkpoint 000001 has these weights already")
    engine.saved = Saved(name="", steps=-1)
    assert await engine.does("checkpoint") == (False, "not saved")


async def test_while_the_run_ends_only_words_are_taken(engine):
    engine.emit(ev.AlarmOpened(key="a", level="critical", text="x"))
    engine.ending = True
    taken = {name for name in COMMANDS if engine.asks(name, text="x", alarm="a", task="copy-file", parallel=9)[0]}
    assert taken == {"stop_now", "ack", "shelve", "note"}
    assert engine.asks("pause") == (False, "the run is ending")


async def test_before_the_first_step_there_is_nothing_to_lose(tasks):
    engine = Engine(tasks)
    engine.view.state.step = None
    assert engine.asks("stop_now") == (True, "cancels 0 running trials and ends the run")
    assert engine.asks("stop_after_step") == (True, "stops before the first step")
    for name in ("pause", "resume", "note", "ack"):
        assert engine.asks(name, text="x")[0]
