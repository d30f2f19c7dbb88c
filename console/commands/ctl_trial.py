"""`quarterdeck ctl trial`: what a trial said and did, from the run's engine, or from its directory when it is over."""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from console.commands.parsing import say
from console.control.blocking import ask_content
from console.control.commands import parse_target
from console.control.messages import Ask, Content, ContentKind, Turn
from console.control.runs import RunInfo, load_view
from console.errors import UsageError
from console.records.content import TrialContent
from console.records.run_dir import RunRecord
from console.state.lines import trial_name
from console.state.model import RunState
from console.state.sanitize import sanitize

ITEMS_SHOWN, ITEMS_AT_MOST = 1000, 100_000
TEXT = 20_000
PAGES_WITHOUT_NEWS = 100


def show_trial(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """Print it: sanitised text, or with --json one object whose strings are as they were captured."""
    ask = _ask(run, words, args)
    limit = ITEMS_SHOWN if args.limit is None else args.limit
    if not 1 <= limit <= ITEMS_AT_MOST:
        raise UsageError(f"--limit {limit}: give 1 to {ITEMS_AT_MOST}")
    content = _gather(_asker(run, args.timeout), ask, limit)
    if content.calls == 0 and not content.over and ask.kind in ("transcript", "tokens"):
        content.note = "no model call has been answered yet"
    if args.json:
        say(json.dumps(_record(run, ask, content)))
        return 0
    for line in _lines(content):
        say(line)
    if content.more:
        say(f"more: ask for it with --limit above {limit}")
    if content.note:
        say(f"note: {sanitize(content.note, 300)}")
    return 0


def _ask(run: RunInfo, words: list[str], args: argparse.Namespace) -> Ask:
    if len(words) != 1:
        raise UsageError("trial needs one trial: g3/t5, as the console shows")
    target = parse_target(words[0])
    if "trial" not in target:
        raise UsageError(f"trial needs a trial: {words[0]}/t1, for example")
    kind: ContentKind = args.kind or "transcript"
    if args.call is not None and kind != "tokens":
        raise UsageError("--call belongs to --kind tokens")
    for option in ("try", "call"):
        if getattr(args, option) == 0:
            raise UsageError(f"--{option} counts from 1")
    try_ = getattr(args, "try")
    step, group, trial = args.step, int(target["group"] or 0), int(target["trial"] or 0)
    state = _state_of_step(run, step)
    if state.step is None:
        raise UsageError(f"run {run.run_id} has no step yet")
    step = state.step
    _check(state, group, trial, try_)
    return Ask(
        id=uuid.uuid4().hex, kind=kind, step=step, group=group, trial=trial,
        try_=-1 if try_ is None else try_ - 1, call=-1 if args.call is None else args.call - 1,
    )  # fmt: skip


def _state_of_step(run: RunInfo, step: int | None) -> RunState:
    """The run as it is, or as it was at the end of an earlier step. Raises `UsageError` for no such step."""
    view = load_view(run)
    if step is None or step == view.state.step:
        return view.state
    row = next((row for row in view.history.rows if row.step == step), None)
    if row is None:
        there = [row.step for row in view.history.rows] + [s for s in [view.state.step] if s is not None]
        known = f"there are {min(there)} to {max(there)}" if there else "there is none yet"
        raise UsageError(f"step {step} does not exist in run {run.run_id}: {known}")
    return RunRecord(run.run_dir).view_at(seq=row.seq).state


def _check(state: RunState, group: int, trial: int, try_: int | None) -> None:
    """Raises `UsageError` for a group, trial or try that there is not."""
    found = state.groups.get(group)
    where = f"in step {state.step}"
    if found is None:
        names = [f"g{index + 1}" for index in sorted(state.groups)]
        known = "no group has begun" if not names else f"there {_range(names)}"
        raise UsageError(f"g{group + 1} does not exist {where}: {known}")
    if trial >= len(found.trials):
        names = [f"t{index + 1}" for index in range(len(found.trials))]
        raise UsageError(f"{trial_name(group, trial)} does not exist {where}: there {_range(names) or 'is none'}")
    tries = found.trials[trial].try_ + 1
    if try_ is not None and try_ > tries:
        many = f"were {tries} tries" if tries > 1 else "was one try"
        raise UsageError(f"{trial_name(group, trial)} has no try {try_} {where}: there {many}")


def _range(names: list[str]) -> str:
    if len(names) < 2:
        return f"is {names[0]} only" if names else ""
    return f"are {names[0]} to {names[-1]}"


def _asker(run: RunInfo, timeout: float) -> Callable[[Ask], Content]:
    if run.state == "live" and run.socket is not None:
        socket = run.socket
        return lambda ask: ask_content(socket, ask, timeout, run=run.run_id)
    return TrialContent(run.run_dir).answer


def _gather(answer: Callable[[Ask], Content], ask: Ask, limit: int) -> Content:
    """Page after page until there is no more, or `limit` items are there."""
    whole: Content | None = None
    idle = 0
    while True:
        count = 0 if whole is None else _count(whole)
        cursor = ask.cursor if whole is None else whole.cursor
        page = answer(msgspec.structs.replace(ask, id=uuid.uuid4().hex, cursor=cursor, limit=min(200, limit - count)))
        if whole is not None:
            page.turns, page.tokens, page.lines = (
                whole.turns + page.turns,
                whole.tokens + page.tokens,
                whole.lines + page.lines,
            )
        idle = idle + 1 if page.cursor == cursor else 0
        whole = page
        if not page.more or _count(page) >= limit or idle == PAGES_WITHOUT_NEWS:
            return whole


def _count(content: Content) -> int:
    return len(content.turns) + len(content.tokens) + len(content.lines)


def _record(run: RunInfo, ask: Ask, content: Content) -> dict[str, Any]:
    record: dict[str, Any] = {
        "v": 1, "type": "trial", "run_id": run.run_id, "trial": trial_name(ask.group, ask.trial), "step": ask.step,
        "try": content.try_ + 1, "kind": content.kind, "over": content.over, "more": content.more,
        "calls": content.calls, "note": content.note or None,
    }  # fmt: skip
    if content.kind == "transcript":
        record["turns"] = [msgspec.structs.asdict(turn) | {"call": turn.call + 1} for turn in content.turns]
    elif content.kind == "tokens":
        record["call"] = content.call + 1 if content.call >= 0 else None
        record["tokens"] = [{"id": t.id, "text": t.text, "logprob": t.logprob} for t in content.tokens]
    else:
        record["lines"] = content.lines
    return record


def _lines(content: Content) -> Iterator[str]:
    if content.call >= 0:
        yield f"call {content.call + 1} of {content.calls}"
    for turn in content.turns:
        yield _heading(turn)
        text = sanitize(turn.text, TEXT, keep_newlines=True)
        yield from (f"  {line}" for line in text.split("\n") if text)
        if turn.cut:
            yield f"  [{turn.cut} characters left out]"
    for token in content.tokens:
        yield f"{token.logprob:9.4f}  {token.id:>7}  {json.dumps(sanitize(token.text, 200, keep_newlines=True))}"
    for line in content.lines:
        yield sanitize(line, TEXT)


def _heading(turn: Turn) -> str:
    parts = [f"call {turn.call + 1}", sanitize(turn.role, 40)]
    if turn.sampled_tokens is not None:
        parts.append(f"{turn.prompt_tokens} tokens in, {turn.sampled_tokens} out")
    if turn.seconds is not None:
        parts.append(f"{turn.seconds:.1f} s")
    if turn.stop_reason and turn.stop_reason != "stop":
        parts.append(f"ended by {sanitize(turn.stop_reason, 40)}")
    return " · ".join(parts)
