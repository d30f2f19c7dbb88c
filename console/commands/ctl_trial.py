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
from console.state.lines import trial_name
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
    step, try_ = args.step, getattr(args, "try")
    if step is None:
        step = load_view(run).state.step
    if step is None:
        raise UsageError(f"run {run.run_id} has no step yet")
    return Ask(
        id=uuid.uuid4().hex, kind=kind, step=step, group=int(target["group"] or 0), trial=int(target["trial"] or 0),
        try_=-1 if try_ is None else try_ - 1, call=-1 if args.call is None else args.call - 1,
    )  # fmt: skip


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
