"""The call journal: whole records, no matter how the disk, the engine or a resumed run treats it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from console.capture import journal as module
from console.capture import sealing
from console.capture.journal import CallJournal, CaptureWriteError, TrialJournal
from console.errors import CaptureError
from console.records.capture_format import Delivered, Intent, KeptMessage, Opened, Outcome, Refusal, Sealed, ids_bytes
from console.records.captured_calls import CapturedTrialFile, find_trial_file, trial_files


@pytest.fixture
async def journal(tmp_path):
    made = CallJournal(tmp_path / "run" / "capture")
    yield made
    with contextlib.suppress(CaptureError):
        await made.close()


def begin(journal: CallJournal, trial: int = 0, step: int = 3) -> TrialJournal:
    return journal.open_trial(Opened(key=f"s{step}.g0.t{trial}.y0", step=step, policy_version=2))


def intent(number: int = 0, size: int = 0) -> Intent:
    return Intent(call=number, node=f"n{number}x00000000", prompt_new=ids_bytes(range(size)), prompt_tokens=size)


def read(path: Path) -> CapturedTrialFile:
    file = CapturedTrialFile(path)
    file.refresh()
    return file


async def test_files_are_private_and_where_they_should_be(journal, tmp_path):
    trial = begin(journal)
    capture = tmp_path / "run" / "capture"
    assert trial.path == capture / "step-000003" / "s3.g0.t0.y0.calls"
    assert stat.S_IMODE(trial.path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(path.stat().st_mode) for path in (capture, capture / "step-000003")] == [0o700, 0o700]
    assert read(trial.path).opened.policy_version == 2
    for key, step in (("../x", 0), ("a/b", 0), ("", 0), ("x" * 129, 0), ("..", 0), ("a b", 0), ("k", -1)):
        with pytest.raises(ValueError, match="cannot name a file"):
            journal.open_trial(Opened(key=key, step=step))


async def test_a_record_is_in_the_file_when_write_returns(journal):
    trial = begin(journal)
    for number in range(5):
        trial.write(intent(number, 100))
        trial.write(Outcome(call=number, status="stop", reply=f"r{number}"))
        assert read(trial.path).answered == number + 1
        assert trial.size == trial.path.stat().st_size


async def test_text_that_no_encoding_can_carry_is_kept_readable(journal):
    trial = begin(journal)
    trial.write(Intent(call=0, node="n0", messages=[KeptMessage(role="user", text="a\ud800b")], prompt_new=b"\0\0\0\1"))
    (call,) = read(trial.path)
    assert call.intent.messages[0].text == "a?b" and call.intent.prompt_new == b"\0\0\0\1"
    with pytest.raises(ValueError, match="too large to be kept"):
        trial.write(Intent(call=1, node="n1", prompt_new=bytes(65 << 20)))
    assert len(read(trial.path)) == 1


class _Disk:
    """`os.write` that takes so many bytes at a time, and has room for so many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_a_time: int = 1 << 30, room: int = 1 << 30) -> None:
        self.at_a_time, self.room, self._write = at_a_time, room, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        data = memoryview(data)[: min(self.at_a_time, self.room)]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return self._write(fd, data)


async def test_short_writes_are_gone_on_with(journal, monkeypatch):
    trial = begin(journal)
    _Disk(monkeypatch, at_a_time=7)
    trial.write(intent(0, 50))
    assert len(read(trial.path)) == 1 and read(trial.path).torn == 0


async def test_no_room_leaves_no_half_record_and_room_again_goes_on(journal, monkeypatch):
    trial = begin(journal)
    trial.write(intent(0, 50))
    before = trial.path.read_bytes()
    for room in (0, 1, 7, 9, 100):
        with monkeypatch.context() as patch:
            _Disk(patch, at_a_time=5, room=room)
            with pytest.raises(OSError, match="No space left"):
                trial.write(intent(1, 50))
        assert trial.path.read_bytes() == before and trial.size == len(before)
    trial.write(intent(1, 50))
    assert len(read(trial.path)) == 2


async def test_what_cannot_be_taken_back_at_once_is_before_the_next_record(journal, monkeypatch):
    trial = begin(journal)
    with monkeypatch.context() as patch:
        _Disk(patch, room=40)

        def refuse(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "not now")

        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space"):
            trial.write(intent(0, 50))
        assert read(trial.path).torn == 40
        with pytest.raises(OSError, match="not now"):
            trial.write(intent(0, 50))
    trial.write(intent(0, 50))
    assert len(read(trial.path)) == 1 and read(trial.path).torn == 0


def test_a_limit_of_the_system_is_met_without_a_half_record(tmp_path):
    """A real limit on the size of files, in a process of its own."""
    code = """
        import os, resource, sys
        from pathlib import Path
        from console.capture.journal import CallJournal
        from console.records.capture_format import Intent, Opened
        trial = CallJournal(Path(sys.argv[1])).open_trial(Opened(key="k", step=0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        for number in range(100):
            try:
                trial.write(Intent(call=number, node=f"n{number}", prompt_new=bytes(1500)))
            except OSError as error:
                print(number, error.errno, trial.size, flush=True)
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        trial.write(Intent(call=100, node="n100"))
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert (int(out[0]), int(out[1])) == (12, errno.EFBIG) and int(out[2]) < 20_000
    file = read(find_trial_file(tmp_path.parent, "k") or tmp_path / "step-000000" / "k.calls")
    assert [call.intent.call for call in file] == [*range(12), 100] and not file.damage and not file.torn


async def test_one_flush_serves_all_who_wait(journal, monkeypatch):
    trials = [begin(journal, number) for number in range(6)]
    await journal.sync()
    flushed: list[int] = []
    gate = threading.Event()
    sync = os.fdatasync

    def slow(fd: int) -> None:
        gate.wait(10)
        flushed.append(fd)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    waiting = []
    for round_ in range(5):
        for trial in trials:
            trial.write(intent(round_, 5))
            waiting.append(asyncio.create_task(trial.durable()))
    await asyncio.sleep(0.02)
    assert not any(task.done() for task in waiting)
    for trial in trials:
        trial.write(intent(9, 5))
        waiting.append(asyncio.create_task(trial.durable()))
    waiting[0].cancel()  # one who goes away takes nobody along
    gate.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(flushed) == 12 and all(task.exception() is None for task in waiting[1:])
    await asyncio.gather(*(trial.durable() for trial in trials))
    assert len(flushed) == 12  # nothing new, nothing to do


async def test_a_disk_that_fails_is_told_once_and_for_all(journal, monkeypatch):
    trial, other = begin(journal), begin(journal, 1)
    await journal.sync()
    broken = os.fstat(journal._descriptor(trial)).st_ino
    sync = os.fdatasync

    def fail(fd: int) -> None:
        if os.fstat(fd).st_ino == broken:
            raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        for one in (trial, other):
            one.write(intent())
        await other.durable()
        with pytest.raises(CaptureError, match=r"t0.*cannot be put on the disk \(Input/output error\)") as caught:
            await trial.durable()
        assert isinstance(caught.value, OSError)
    # The kernel forgets pages that it could not write: a flush that works now would prove nothing.
    with pytest.raises(CaptureWriteError):
        await trial.durable()
    with pytest.raises(OSError, match="was not put on the disk before"):
        trial.write(intent(1))
    with pytest.raises(CaptureError, match=r"run/capture: .*Input/output error\); make room, then resume the run"):
        await journal.sync()


async def test_hundreds_of_trials_have_few_files_open(tmp_path):
    journal = CallJournal(tmp_path / "capture", files_open=10)
    trials = [begin(journal, number) for number in range(120)]

    def count() -> int:
        return sum("step-000003" in os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors())

    most = 0
    for number in range(3):
        for trial in trials:
            trial.write(intent(number, 10))
            most = max(most, count())
        await asyncio.gather(*(trial.durable() for trial in trials))
        most = max(most, count())
    await asyncio.gather(*(trial.seal(Sealed()) for trial in trials[:60]))
    assert most <= 10 + module.FLUSHES_AT_ONCE and count() <= 11
    await journal.close()
    assert count() == 0
    for trial in trials:
        assert len(read(trial.path)) == 3
    assert len(trial_files(tmp_path)) == 120


def _descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.readlink(f"/proc/self/fd/{fd}")
            found.append(fd)
    return found


async def test_few_descriptors_left_fail_a_call_and_nothing_else(tmp_path):
    journal = CallJournal(tmp_path / "capture", files_open=4)
    trials = [begin(journal, number) for number in range(8)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            trials[0].write(intent())
        trials[7].write(intent())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    trials[0].write(intent())
    assert len(read(trials[0].path)) == 1
    await journal.close()


# --- sealing ---


async def test_a_sealed_trial_is_one_compressed_file(journal, monkeypatch):
    trial = begin(journal)
    for number in range(20):
        trial.write(intent(number, 1000))
        trial.write(Outcome(call=number, status="stop"))
    live = trial.path
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    before = trial.size
    path, again = await asyncio.gather(trial.seal(Sealed(calls=20)), trial.seal(Sealed(calls=99)))
    assert path == again == trial.path == live.with_name("s3.g0.t0.y0.calls.zst") and not live.exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size < before / 2
    assert synced == [f"{path}.tmp", str(path.parent)]
    assert read(path).sealed.calls == 20 and read(path).answered == 20
    with pytest.raises(ValueError, match="is sealed"):
        trial.write(Delivered(call=0))
    await trial.durable()
    assert os.listdir(path.parent) == [path.name]


async def test_no_room_for_the_sealed_file_leaves_the_trial_whole(journal, monkeypatch, caplog):
    trial = begin(journal)
    trial.write(intent(0, 10))
    live = trial.path

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sealing, "write_all", full)
        path = await trial.seal(Sealed())
    assert path == live and "stays uncompressed (No space left on device)" in caplog.text
    assert read(path).sealed is not None and os.listdir(path.parent) == [live.name]


async def test_no_room_for_the_last_record_leaves_the_trial_open(journal, monkeypatch):
    trial = begin(journal)
    with monkeypatch.context() as patch:
        _Disk(patch, room=3)
        with pytest.raises(OSError, match="No space"):
            await trial.seal(Sealed())
    assert read(trial.path).sealed is None
    assert read(await trial.seal(Sealed(calls=1))).sealed.calls == 1


@pytest.mark.parametrize("harm", ["flip", "shorten", "append", "lose a record"])
async def test_a_file_that_is_not_what_was_written_is_not_sealed(journal, harm):
    trial = begin(journal)
    trial.write(intent(0, 100))
    before = trial.size
    trial.write(intent(1, 100))
    data = bytearray(trial.path.read_bytes())
    if harm == "flip":
        data[200] ^= 1
    keep = {"shorten": len(data) - 30, "lose a record": before}.get(harm, len(data))
    trial.path.write_bytes(data[:keep] + (b"\1" if harm == "append" else b""))
    with pytest.raises(CaptureError, match="is not what was written"):
        await trial.seal(Sealed())
    assert trial.path.exists() and not trial.path.with_name(trial.path.name + ".zst").exists()


async def test_a_seal_whose_waiter_goes_away_is_done_all_the_same(journal):
    trial = begin(journal)
    waiter = asyncio.create_task(trial.seal(Sealed(calls=4)))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await journal.sync()
    assert trial.path.suffix == ".zst" and read(trial.path).sealed.calls == 4


async def test_a_try_that_is_done_again_keeps_its_earlier_files(tmp_path):
    paths = []
    for engine in range(4):
        journal = CallJournal(tmp_path / "capture")
        trial = begin(journal)
        trial.write(Refusal(reason="request", message=f"engine {engine}"))
        paths.append(await trial.seal(Sealed()) if engine % 2 else trial.path)
        await journal.close()
        if engine == 0:
            trial.path.with_name(trial.key + ".calls.zst.tmp").write_bytes(b"left by a kill")
    directory = paths[0].parent
    assert sorted(os.listdir(directory)) == [
        "s3.g0.t0.y0.calls.earlier-1", "s3.g0.t0.y0.calls.earlier-2.zst", "s3.g0.t0.y0.calls.earlier-3",
        "s3.g0.t0.y0.calls.zst",
    ]  # fmt: skip
    assert trial_files(tmp_path) == [directory / "s3.g0.t0.y0.calls.zst"]
    for name in sorted(os.listdir(directory)):
        file = read(directory / name)
        engine = 3 if name.endswith("calls.zst") else int(name.removesuffix(".zst")[-1]) - 1
        assert [one.message for one in file.refusals()] == [f"engine {engine}"] and file.key == "s3.g0.t0.y0"


async def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "capture").write_text("in the way")
    with pytest.raises(CaptureWriteError, match=r"capture/step-000003/s3\.g0\.t0\.y0\.calls: cannot be written"):
        begin(CallJournal(tmp_path / "capture"))


async def test_no_room_for_the_first_record_leaves_no_file(journal, monkeypatch):
    with monkeypatch.context() as patch:
        _Disk(patch, room=10)
        with pytest.raises(CaptureWriteError, match="No space left"):
            begin(journal)
    trial = begin(journal)
    assert os.listdir(trial.path.parent) == [trial.path.name]


# --- kills and readers ---

_BUSY = """
    import asyncio, os, sys
    from pathlib import Path
    from console.capture.journal import CallJournal
    from console.records.capture_format import Delivered, Intent, Opened, Outcome, Sealed
    async def one(journal, number):
        call = 0
        for try_ in range(100):
            key = f"s0.g0.t{number}.y{try_}"
            trial = journal.open_trial(Opened(key=key, step=0))
            for call in range(40):
                trial.write(Intent(call=call, node=f"n{call}", prompt_new=os.urandom(400)))
                os.write(1, f"{key} intent {call}\\n".encode())
                await asyncio.sleep(0)
                outcome = Outcome(call=call, status="stop", tokens=os.urandom(400), reply="x" * 500)
                trial.write(outcome)
                os.write(1, f"{key} outcome {call}\\n".encode())
                if call % 10 == 0:
                    await trial.durable()
            if number % 2:
                await trial.seal(Sealed(calls=40))
                os.write(1, f"{key} sealed 0\\n".encode())
    async def main():
        journal = CallJournal(Path(sys.argv[1]), files_open=16)
        await asyncio.gather(*(one(journal, number) for number in range(32)))
    asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [2000, 6001])
def test_what_was_acknowledged_before_a_kill_can_be_read(tmp_path, lines):
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_BUSY), str(tmp_path / "capture")], stdout=subprocess.PIPE
    ) as engine:
        assert engine.stdout is not None
        told = [engine.stdout.readline() for _ in range(lines)]
        engine.kill()
        told += engine.stdout.readlines()
    assert engine.returncode == -9
    files = {path.name.partition(".calls")[0]: read(path) for path in trial_files(tmp_path)}
    assert len(files) >= 32
    for line in told:
        if not line.endswith(b"\n"):
            continue
        key, kind, number = line.decode().split()
        file = files[key]
        if kind == "sealed":
            assert file.sealed is not None and file.shown_path.suffix == ".zst"
        else:
            call = file.call(int(number))
            assert call.outcome is not None if kind == "outcome" else len(call.intent.prompt_new) == 400
    for file in files.values():
        assert file.damage == "" and file.oddities == []
        for call in file:
            assert call.outcome is None or (len(call.outcome.tokens), call.outcome.reply) == (400, "x" * 500)


async def test_a_reader_beside_the_writer_sees_whole_records_in_order(journal):
    trial = begin(journal)
    seen: list[int] = []
    failures: list[str] = []
    over = threading.Event()

    def follow() -> None:
        file = CapturedTrialFile(trial.path)
        while True:
            last = over.is_set()
            file.refresh()
            if file.damage or file.oddities:
                failures.append(file.damage)
                return
            while len(seen) < file.answered:
                call = file.answer(len(seen))
                if call.outcome.reply != f"{call.intent.call}" * 300:
                    failures.append(f"call {call.intent.call}")
                seen.append(call.intent.call)
            if last:
                if file.sealed is None:
                    failures.append("no seal")
                return

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(400):
        trial.write(intent(number, 300))
        trial.write(Outcome(call=number, status="stop", reply=f"{number}" * 300))
        if number % 50 == 0:
            await trial.durable()
    await trial.seal(Sealed(calls=400))
    over.set()
    await asyncio.to_thread(reader.join)
    assert failures == [] and seen == list(range(400))
