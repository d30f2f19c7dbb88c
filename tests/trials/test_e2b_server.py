"""The server that stands in for E2B, with the real SDK: what trials and the ledger rely on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from e2b import AsyncSandbox, AsyncTemplate, SandboxQuery, SandboxState, Template
from e2b.exceptions import (
    AuthenticationException,
    BuildException,
    FileUploadException,
    InvalidArgumentException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotRunningException,
)
from e2b.sandbox.commands.command_handle import CommandExitException
from e2b_server.faults import Fault
from e2b_server.server import E2BServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2BServer]:
    with pytest.MonkeyPatch.context() as patch, E2BServer(tmp_path_factory.mktemp("e2b")) as server:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.delenv("E2B_DEBUG", raising=False)
        yield server


@pytest.fixture
def server(service: E2BServer) -> Iterator[E2BServer]:
    """The same one, with every fault off and no sandbox left by another test."""
    plan = (service.plan.concurrent, service.plan.lifetime)
    yield service
    service.faults.clear()
    service.plan.concurrent, service.plan.lifetime = plan
    for sandbox in service.live:
        service.end(sandbox)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def plain(service: E2BServer) -> str:
    """The name of a template with nothing in it."""
    await AsyncTemplate.build(Template().from_image("debian").set_user("root").set_workdir("/app"), "plain:default")
    return "plain"


def template(context: Path, dockerfile: str) -> Any:
    return Template(file_context_path=str(context)).from_dockerfile(dockerfile)


# --- templates and builds -----------------------------------------------------------------------------------------


async def test_a_build_copies_as_docker_does_and_runs_its_commands(server: E2BServer, tmp_path: Path) -> None:
    for name in ("one.txt", "data/two.txt", "data/deep/three.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "data/deep/three.sh").chmod(0o755)
    dockerfile = (
        "FROM debian\nUSER root\nWORKDIR /app\nENV GREETING='hello there'\nCOPY one.txt renamed.txt\n"
        "COPY one.txt below/\nCOPY data/ /given\nCOPY . everything/\n"
        'RUN echo "$GREETING" > said && pwd >> said && id -un >> said\n'
    )
    await AsyncTemplate.build(template(tmp_path, dockerfile), "copied:x", cpu_count=4, memory_mb=1024)
    sandbox = await AsyncSandbox.create("copied:x")
    listed = await sandbox.commands.run("cd /app && find . /given -type f | sort && stat -c %a /given/deep/three.sh")
    expected = ["./below/one.txt", "./everything/data/deep/three.sh", "./everything/data/two.txt"]
    expected += ["./everything/one.txt", "./renamed.txt", "./said", "/given/deep/three.sh", "/given/two.txt", "755"]
    assert listed.stdout.split() == expected
    assert await sandbox.files.read("/app/said") == "hello there\n/app\nroot\n"
    info = await sandbox.get_info()
    assert (info.cpu_count, info.memory_mb) == (4, 1024)
    before = server.state.calls["upload"]
    await AsyncTemplate.build(template(tmp_path, dockerfile), "copied:y")
    assert server.state.calls["upload"] == before, "files that are there are not sent again"


async def test_builds_that_fail(server: E2BServer, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("x")
    with pytest.raises(BuildException, match=r"failed to run command 'echo why >&2; exit 7': exit status 7"):
        await AsyncTemplate.build(template(tmp_path, "FROM debian\nRUN echo why >&2; exit 7"), "fails:x")
    assert "why" in next(b for b in server.state.images.builds.values() if "exit 7" in b.reason).logs
    server.state.images.missing.add("nowhere/image:1")
    with pytest.raises(BuildException, match="manifest unknown: image nowhere/image:1 not found"):
        await AsyncTemplate.build(Template().from_image("nowhere/image:1"), "missing:x")
    server.faults.add(Fault(at="upload", status=507, message="no space"))
    with pytest.raises(FileUploadException, match="507"):
        await AsyncTemplate.build(template(tmp_path, "FROM debian\nCOPY one.txt /other"), "upload:x")
    with pytest.raises(SandboxException, match="404: tag 'x' does not exist for template 'fails'"):
        await AsyncSandbox.create("fails:x")
    with pytest.raises(SandboxException, match="404: template 'never' not found"):
        await AsyncTemplate.get_tags("never")
    assert [tag.tag for tag in await AsyncTemplate.get_tags("fails")] == ["x"]


# --- sandboxes ------------------------------------------------------------------------------------------------------


async def test_listing_by_metadata_in_pages(server: E2BServer, plain: str) -> None:
    made = [await AsyncSandbox.create(plain, metadata={"n": str(n), "odd & key": "a=b c/ü"}) for n in range(5)]
    pages, seen = AsyncSandbox.list(limit=2, query=SandboxQuery(metadata={"odd & key": "a=b c/ü"})), []
    while pages.has_next:
        page = await pages.next_items()
        assert len(page) <= 2
        seen += [sandbox.sandbox_id for sandbox in page]
    assert sorted(seen) == sorted(sandbox.sandbox_id for sandbox in made)
    (third,) = await AsyncSandbox.list(query=SandboxQuery(metadata={"n": "3"})).next_items()
    assert third.sandbox_id == made[3].sandbox_id
    await made[3].pause()
    for state, count in ((SandboxState.RUNNING, 4), (SandboxState.PAUSED, 1)):
        assert len(await AsyncSandbox.list(query=SandboxQuery(state=[state])).next_items()) == count
    with pytest.raises(SandboxNotRunningException):
        await made[3].commands.run("true")
    assert await AsyncSandbox.kill(made[3].sandbox_id) and not await AsyncSandbox.kill(made[3].sandbox_id)


async def test_the_lease_ends_a_sandbox_and_everything_in_it(
    server: E2BServer, plain: str, unique: str, processes_naming: Any, wait_until: Any
) -> None:
    sandbox = await AsyncSandbox.create(plain, timeout=1)
    await sandbox.set_timeout(2)
    with pytest.raises(SandboxNotRunningException, match="reached its end of life"):
        await sandbox.commands.run(f"exec -a {unique} sleep 1000", timeout=30)
    (there,) = [one for one in server.state.ended if one.id == sandbox.sandbox_id]
    assert (there.ended, there.renewals) == ("lease", 1)
    await wait_until(lambda: not there.root.exists())
    assert not processes_naming(unique)
    with pytest.raises(NotFoundException):
        await sandbox.set_timeout(10)


async def test_limits_of_the_plan(server: E2BServer, plain: str, wait_until: Any) -> None:
    server.plan.concurrent = 1
    first = await AsyncSandbox.create(plain)
    with pytest.raises(RateLimitException, match="maximum number of concurrent E2B sandboxes"):
        await AsyncSandbox.create(plain, retries=0)
    await first.kill()
    await AsyncSandbox.create(plain)
    with pytest.raises(SandboxException, match="400: Timeout cannot be greater than 1 hours"):
        await AsyncSandbox.create(plain, timeout=3601)
    server.plan.lifetime = 0  # whatever was renewed
    await wait_until(lambda: not server.live)


async def test_keys_and_tokens(server: E2BServer, plain: str) -> None:
    with pytest.raises(AuthenticationException, match="401"):
        await AsyncSandbox.create(plain, api_key="e2b_0")
    sandbox = await AsyncSandbox.create(plain)
    server.live[0].token = "another"
    with pytest.raises(AuthenticationException, match="access token"):
        await sandbox.files.read("/etc/passwd")
    with pytest.raises(AuthenticationException, match="access token"):
        await sandbox.commands.run("true")


# --- processes and files ----------------------------------------------------------------------------------------


async def test_processes(server: E2BServer, plain: str) -> None:
    sandbox = await AsyncSandbox.create(plain, envs={"FROM_CREATE": "a"})
    done = await sandbox.commands.run("echo $FROM_CREATE $HERE; pwd; echo err >&2", envs={"HERE": "b"}, cwd="/app")
    assert (done.stdout, done.stderr, done.exit_code) == ("a b\n/app\n", "err\n", 0)
    with pytest.raises(CommandExitException) as failed:
        await sandbox.commands.run("echo before; exit 3")
    assert (failed.value.exit_code, failed.value.stdout) == (3, "before\n")
    big = await sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x", timeout=30)
    assert big.stdout == "x" * 3_000_000
    for wrong, kind in (
        ({"cwd": "/nowhere"}, InvalidArgumentException),
        ({"user": "nobody9"}, AuthenticationException),
    ):
        with pytest.raises(kind):
            await sandbox.commands.run("true", **wrong)
    # What runs in the background outlives its command, and dies when it is told to.
    handle = await sandbox.commands.run("sleep 1000; echo never", background=True, timeout=0)
    assert [process.pid for process in await sandbox.commands.list()] == [handle.pid]
    assert await sandbox.commands.kill(handle.pid) and not await sandbox.commands.kill(handle.pid + 1)
    with pytest.raises(CommandExitException) as killed:
        await handle.wait()
    assert killed.value.exit_code == 137 and await sandbox.commands.list() == []


async def test_a_stream_that_is_cut_leaves_the_process_alive(server: E2BServer, plain: str) -> None:
    sandbox = await AsyncSandbox.create(plain)
    server.faults.add(Fault(at="run", do="cut", seconds=0.2, times=1))
    handle = await sandbox.commands.run("sleep 1; echo late", background=True, timeout=0)
    with pytest.raises(Exception, match="ended without an end event"):
        await handle.wait()
    again = await sandbox.commands.connect(handle.pid, timeout=0)
    assert (await again.wait()).stdout == "late\n"
    with pytest.raises(NotFoundException, match="not found"):
        await sandbox.commands.connect(handle.pid)


async def test_files(server: E2BServer, plain: str, tmp_path: Path) -> None:
    sandbox = await AsyncSandbox.create(plain)
    data = os.urandom(2 << 20)
    await sandbox.files.write("/deep/er/file.bin", data)
    assert bytes(await sandbox.files.read("/deep/er/file.bin", format="bytes")) == data
    assert await sandbox.files.exists("/deep/er/file.bin") and not await sandbox.files.exists("/deep/none")
    assert (await sandbox.files.get_info("/deep/er")).type.value == "dir"
    with pytest.raises(NotFoundException):
        await sandbox.files.read("/deep/none")
    # A link never leads out of the sandbox.
    (tmp_path / "secret").write_text("secret")
    await sandbox.commands.run(f"ln -s {tmp_path} /out; ln -s ../../../../.. /up; ln -s /deep/er /in")
    for path in ("/out/secret", f"/up{tmp_path}/secret"):
        with pytest.raises(NotFoundException):
            await sandbox.files.read(path)
    assert bytes(await sandbox.files.read("/in/file.bin", format="bytes")) == data
    server.faults.add(Fault(at="read", do="cut", times=1))
    with pytest.raises(Exception, match=r".+"):
        await sandbox.files.read("/deep/er/file.bin", format="bytes")


async def test_the_network_policy_takes_the_network_away(server: E2BServer, plain: str) -> None:
    sandbox = await AsyncSandbox.create(plain)
    ask = f"bash -c '</dev/tcp/127.0.0.1/{server.url.rpartition(':')[2]}' && echo reached"
    assert (await sandbox.commands.run(ask)).stdout == "reached\n"
    await sandbox.update_network({"allow_internet_access": False})
    with pytest.raises(CommandExitException):
        await sandbox.commands.run(ask)
    await sandbox.update_network({})
    assert (await sandbox.commands.run(ask)).stdout == "reached\n"


async def test_a_create_that_is_never_answered_leaves_its_sandbox(
    server: E2BServer, plain: str, wait_until: Any
) -> None:
    server.faults.add(Fault(at="create", do="hang", after=True, sandbox="mine", times=1))
    asked = asyncio.create_task(AsyncSandbox.create(plain, metadata={"session_id": "mine"}))
    await wait_until(lambda: server.live)
    asked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked
    (left,) = await AsyncSandbox.list(query=SandboxQuery(metadata={"session_id": "mine"})).next_items()
    assert await AsyncSandbox.kill(left.sandbox_id) and server.live == []
