"""What a trial said and did, for viewers: transcript, verifier output, captured tokens, log, result.

Read from the run directory on demand, the same for a run that goes on and for a recording. An answer is bounded: at
most `ITEMS` items and about `ANSWER_BYTES` as JSON; longer fields are cut and say so. Texts come from policies, tools
and sandboxes and are not sanitised here: whoever paints them does that.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from console.control.messages import Ask, Content, carried
from console.errors import RecordingError
from console.records.answer_room import ANSWER_BYTES as ANSWER_BYTES
from console.records.answer_room import ITEMS as ITEMS
from console.records.answer_room import Room
from console.records.calls import RunCalls, is_textless, shortened, tokens_of, turns_of
from console.records.captured_calls import CapturedTrialFile
from console.records.redact import redact
from console.records.trajectory_turns import fill_trajectory
from console.records.trial_files import StepEnds, TrialDirs, TryEnds, job_dirs, names_in, read_block
from console.records.try_key import try_key

LINE_CHARS = 4000
READ_BYTES = 32 << 20
"""Bytes of captured calls that are read for one answer."""
RESULT_BYTES = 4 << 20
TAIL_BYTES = 64 << 10
FILES_SHOWN = 32
TRIES = 100
_TURN_BITS, _TOKEN_BITS, _FILE_BITS, _AGAIN_BITS = 16, 28, 44, 52
_FILES_FIRST = ("trial.log", "test-stdout.txt", "test-stderr.txt")
_GROWING = _FILES_FIRST[:2]


class TrialContent:
    """Answers questions about the trials of one run directory. Safe to call from several threads.

    What is not there is said in the answer's `note`; nothing is raised for it.
    """

    def __init__(self, run_dir: Path | str) -> None:
        """Nothing is opened before the first question."""
        self._run_dir = Path(run_dir)
        self._ends = StepEnds(self._run_dir)
        self._dirs = TrialDirs(self._run_dir / "trials")
        self._calls = RunCalls(self._run_dir)

    def answer(self, ask: Ask) -> Content:
        """The content asked for, from its cursor on. May read files for a while: not for an event loop."""
        content = Content(id=ask.id[:64], kind=ask.kind, cursor=max(0, ask.cursor))
        if min(ask.step, ask.group, ask.trial) < 0 or max(ask.step, ask.group, ask.trial) >= 1 << 31:
            content.over, content.note = True, "there is no such trial"
            return content
        try:
            # The end first: what was captured before it is then found, and nothing can follow.
            ends = self._ends.of(ask.step)
        except RecordingError as error:
            ends = TryEnds()
            content.note = str(error)
        try:
            keys = self._calls.keys(ask.step) if not ends.job_dir else set()
            ask = _which_try(ask, keys, ends)
            content.try_ = ask.try_
            content.over = ends.over or ends.stopped or (ask.group, ask.trial, ask.try_) in ends.dirs
            if ends.job_dir:
                self._fill_from_job(content, ask, ends)
                return content
            calls = self._calls.of(ask.step, _key(ask))
            with calls.lock:
                there = calls.file.refresh()
                content.calls = calls.file.answered
                if ask.kind in ("transcript", "tokens"):
                    if not keys:
                        content.note = "no calls of this step were captured"
                    elif content.over and not there:
                        content.note = "there is no file of this try's calls: none were captured, or it is gone"
                    elif not calls.file.complete:
                        content.note = "the captured calls of this trial are still being looked through"
                    fill = _fill_tokens if ask.kind == "tokens" else _fill_transcript
                    fill(content, ask, calls.file)
            if ask.kind not in ("transcript", "tokens"):
                self._fill_from_files(content, ask, ends, self._dirs)
        except OSError as error:
            content.note = f"it cannot be read: {error.strerror or error}"
        except RecordingError as error:
            content.note = str(error)
        if content.more:
            content.over = False
        return content

    # --- Harbor's files -----------------------------------------------------------------------------------------

    def _fill_from_job(self, content: Content, ask: Ask, ends: TryEnds) -> None:
        """Of a benchmark's trial, whose calls are not captured: its transcript is what the agent wrote of itself."""
        recorded = ends.dirs.get((ask.group, ask.trial, ask.try_))
        if ask.kind == "tokens":
            content.over, content.note = True, "the tokens of a benchmark are not captured"
        elif not recorded:
            content.note = "nothing is there" if content.over else "where Harbor keeps it is told when the trial ends"
        elif ask.kind == "transcript":
            fill_trajectory(content, ask, recorded, job_dirs(self._run_dir, ends.job_dir))
        else:
            self._fill_from_files(content, ask, ends, job_dirs(self._run_dir, ends.job_dir))
        if content.more:
            content.over = False

    def _fill_from_files(self, content: Content, ask: Ask, ends: TryEnds, dirs: TrialDirs) -> None:
        recorded = ends.dirs.get((ask.group, ask.trial, ask.try_))
        name, content.note = dirs.locate(recorded, _key(ask))
        if name is None:
            if content.over and not recorded:
                content.note = "Harbor has no files of this try"
            return
        with dirs.open(name) as directory:
            if directory is None:
                content.note = "Harbor's directory of this trial is gone"
            elif ask.kind == "result":
                _fill_result(content, ask, directory)
            elif ask.kind == "log":
                _fill_lines(content, ask, [("trial.log", directory, ""), ("exception.txt", directory, "exception.txt")])
                if not content.lines and ask.cursor <= 0:
                    content.note = "the log is empty so far"
            else:
                with _verifier_files(dirs, name) as files:
                    _fill_lines(content, ask, files)
                if not content.lines and ask.cursor <= 0:
                    content.note = (
                        "the verifier has written nothing" if content.over else "the verifier has not run yet"
                    )


_File = tuple[str, int, str]
"""Name, descriptor of its directory, and the heading of its lines (none when empty)."""


def _place_of_file(name: str) -> tuple[int, str]:
    return (_FILES_FIRST.index(name) if name in _FILES_FIRST else len(_FILES_FIRST)), name


class _OpenFiles:
    """Files, and their directories, which are open as long as it is."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.files: list[_File] = []

    def __enter__(self) -> list[_File]:
        return self.files

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


def _verifier_files(dirs: TrialDirs, name: str) -> _OpenFiles:
    """The verifier's files, of multi-step trials those of each step; the tests' output before the rest."""
    files = _OpenFiles()
    try:
        _add_files(files, dirs, name, "verifier")
        with dirs.open(name, "steps") as steps:
            for step in names_in(steps) if steps is not None else []:
                _add_files(files, dirs, name, "steps", step, "verifier")
    except BaseException:
        files.close()
        raise
    return files


def _add_files(files: _OpenFiles, dirs: TrialDirs, *parts: str) -> None:
    with dirs.open(*parts) as directory:
        if directory is None:
            return
        kept = os.dup(directory)
        files.descriptors.append(kept)
        label = "/".join(parts[1:])
        named = [(name, kept, f"{label}/{name}") for name in sorted(names_in(directory), key=_place_of_file)]
        files.files += named[: FILES_SHOWN - len(files.files)]


def _key(ask: Ask, try_: int | None = None) -> str:
    """The engine's name of the try, as the call log has it."""
    return try_key((ask.step, ask.group, ask.trial, ask.try_ if try_ is None else try_))


def _which_try(ask: Ask, keys: set[str], ends: TryEnds) -> Ask:
    if ask.try_ >= 0:
        return ask
    ended = [try_ for group, trial, try_ in ends.dirs if (group, trial) == (ask.group, ask.trial)]
    known = [try_ for try_ in range(TRIES) if _key(ask, try_) in keys]
    return msgspec.structs.replace(ask, try_=max([0, *ended, *known]))


# --- captured calls -------------------------------------------------------------------------------------------------


def _fill_transcript(content: Content, ask: Ask, file: CapturedTrialFile) -> None:
    room, left, behind = Room(ask.limit), READ_BYTES, file.endings
    again, cursor = _cursor(ask, file)
    position, skip = cursor >> _TURN_BITS, cursor & ((1 << _TURN_BITS) - 1)
    if cursor < 0:
        position, skip = max(0, behind - max(1, ask.limit // 4)), 0
        if position > 0:
            content.note = f"{file.answered_before(position)} earlier calls are left out"
    textless = False
    while position < behind:
        if left <= 0:
            content.more = True
            break
        left -= max(1, file.ending_bytes(position))
        ended, number = file.ending(position)
        textless = textless or is_textless(ended)
        for turn in list(turns_of(ended, number, first=position == 0))[skip : (1 << _TURN_BITS) - 1]:
            if not room.take(turn):
                content.more = True
                break
            content.turns.append(turn)
            skip += 1
        if content.more:
            break
        position, skip = position + 1, 0
    content.cursor = max(content.cursor, again | position << _TURN_BITS | skip)
    if not file.complete:
        content.more = True
    elif file.damage:
        content.note = file.damage
    elif textless:
        content.note = "these calls were captured without their text"
    elif content.over and behind == 0 and not content.note:
        content.note = "this try made no model call that was answered"


def _fill_tokens(content: Content, ask: Ask, file: CapturedTrialFile) -> None:
    room = Room(ask.limit)
    # The cursor knows its call, so that the last one stays the same while others come.
    again, cursor = _cursor(ask, file)
    number, start = (cursor >> _TOKEN_BITS) - 1, cursor & ((1 << _TOKEN_BITS) - 1)
    if cursor <= 0:
        number, start = (file.answered - 1 if ask.call < 0 else ask.call), 0
    if not 0 <= number < file.answered:
        if file.damage:
            content.note = file.damage
        elif file.complete and not content.note:
            content.note = f"call {number + 1} was not captured" if ask.call >= 0 else "no call was captured yet"
        content.more = not file.complete
        return
    content.call, content.over = number, True
    try:
        tokens = tokens_of(file.answer(number))
    except (ValueError, RecordingError):
        content.note = "this call cannot be read"
        return
    if cursor < 0:
        start = max(0, len(tokens) - max(1, min(ask.limit, ITEMS)))
    if tokens and not any(token.text for token in tokens):
        content.note = "these tokens were captured without their text"
    for token in tokens[start:]:
        if not room.take(token):
            content.more = True
            break
        content.tokens.append(token)
        start += 1
    content.cursor = max(content.cursor, again | (number + 1) << _TOKEN_BITS | start)


def _cursor(ask: Ask, file: CapturedTrialFile) -> tuple[int, int]:
    """The bits of a cursor that say which file of the try it is of, and the rest of the one asked with.

    The rest is 0, the start, when the try was done again since.
    """
    again = file.earlier << _AGAIN_BITS
    if ask.cursor < 0 or ask.cursor >> _AGAIN_BITS == file.earlier:
        return again, ask.cursor - again if ask.cursor >= 0 else ask.cursor
    return again, 0


# --- lines ------------------------------------------------------------------------------------------------------------


def _fill_lines(content: Content, ask: Ask, files: list[_File]) -> None:
    """Lines of several files, one after the other. The cursor is the file's place in the list and an offset in it.

    While the trial runs, only the file that grows is read: the others are complete when it ends.
    """
    room = Room(max(2, ask.limit))  # a heading is not alone
    place, offset = ask.cursor >> _FILE_BITS, ask.cursor & ((1 << _FILE_BITS) - 1)
    if ask.cursor < 0:
        place, offset = 0, -TAIL_BYTES
    while place < len(files):
        name, directory, heading = files[place]
        if not content.over and name not in _GROWING:
            break
        block = read_block(name, directory, offset, ANSWER_BYTES)
        if block is not None:
            data, size = block
            if offset < 0:
                offset, data = _whole_lines(data, size)
                if offset > 0:
                    content.lines.append(f"[{offset} earlier bytes are left out]")
            if heading and offset == 0 and data and not _put(content, room, f"== {carried(heading)} =="):
                break
            offset = _put_lines(content, room, data, offset, at_end=content.over and offset + len(data) >= size)
            if content.more:
                break
        if not content.over:
            break
        place, offset = place + 1, 0
    content.cursor = max(content.cursor, place << _FILE_BITS | max(0, offset))


def _whole_lines(data: bytes, size: int) -> tuple[int, bytes]:
    """The end of a file from its first whole line on, and where that begins."""
    start = size - len(data)
    if start > 0:
        begin = data.find(b"\n") + 1
        return start + begin, data[begin:]
    return 0, data


def _put_lines(content: Content, room: Room, data: bytes, offset: int, at_end: bool) -> int:
    """Put whole lines into the answer; the offset behind them. A last line without an end waits for it."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            if not at_end and len(data) < ANSWER_BYTES:
                break
            if start > 0 and len(data) == ANSWER_BYTES:
                content.more = True  # this line from its start next time
                break
            end = len(data)
        text, cut = shortened(data[start:end].decode("utf-8", "replace").removesuffix("\r"), LINE_CHARS)
        if not _put(content, room, f"{text} [{cut} characters left out]" if cut else text):
            break
        start = end + 1
    else:
        content.more = content.more or len(data) == ANSWER_BYTES
    return offset + min(start, len(data))


def _put(content: Content, room: Room, line: str) -> bool:
    if room.take(line):
        content.lines.append(line)
        return True
    content.more = True
    return False


def _fill_result(content: Content, ask: Ask, directory: int) -> None:
    block = read_block("result.json", directory, 0, RESULT_BYTES)
    if block is None:
        content.note = "Harbor has not written a result" + ("" if content.over else " yet")
        return
    data, size = block
    if size > RESULT_BYTES:
        content.note = f"the result has {size} bytes, which is too long to show"
        return
    try:
        text = json.dumps(redact(json.loads(data)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        content.note = "the result is not JSON" + ("" if content.over else " yet")
        return
    room = Room(ask.limit)
    lines = text.encode("utf-8", "replace").decode().split("\n")
    start = max(0, len(lines) - ask.limit) if ask.cursor < 0 else ask.cursor
    for line in lines[start:]:
        text, cut = shortened(line, LINE_CHARS)
        if not _put(content, room, f"{text} [{cut} characters left out]" if cut else text):
            break
        start += 1
    content.cursor = max(content.cursor, start)
