"""What a process in a sandbox can see and reach of the host: it tries."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkPolicy


async def test_host_files_environment_and_processes_are_invisible(make_environment, tmp_path, unique, monkeypatch):
    secret = f"host-secret-{unique}"
    hidden = tmp_path / "hidden.txt"
    hidden.write_text(secret)
    monkeypatch.setenv("HOST_VARIABLE", secret)
    marker = await asyncio.create_subprocess_exec("sleep", "600.25")  # a host process to look for
    try:
        environment = await make_environment()
        script = f"""
        env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ps -ef 2>/dev/null; hostname
        cat {shlex.quote(str(hidden))} /etc/shadow /etc/hostname /proc/1/root{hidden} /proc/self/cwd/../..{hidden}
        for fd in /proc/*/fd/*; do cat "$fd/{hidden.name}" "$fd/..{hidden}"; ls -d "$fd/../etc/shadow"; done
        ls -a {shlex.quote(str(Path.home()))}/.cache /home /var/lib/dpkg /boot /sys /work; cat /etc/passwd
        find / -xdev -name {hidden.name} -not -path '/proc/*'; ls -A /etc | sed s,^,listed-,
        """
        done = await environment.exec(script, env={"GIVEN": "yes"})
        assert secret not in done.stdout + done.stderr
        assert "600.25" not in done.stdout
        assert os.uname().nodename not in done.stdout.split() and "sandbox" in done.stdout
        assert "GIVEN=yes" in done.stdout  # the probe did look
        assert "/etc/shadow\n" not in done.stdout and "listed-passwd" in done.stdout
        for name in ("shadow", "gshadow", "machine-id", "ssh", "sudoers", "environment", "fstab"):
            assert f"listed-{name}\n" not in done.stdout
        assert {line.split(":")[0] for line in done.stdout.splitlines() if line.count(":") == 6} == {"root", "nobody"}
        pids = (await environment.exec("ls -d /proc/[0-9]*")).stdout.split()
        assert len(pids) <= 4  # process 1, the shell, ls
    finally:
        marker.kill()
        await marker.wait()


async def test_programs_are_there_read_only_and_the_rest_is_writable(make_environment):
    environment = await make_environment()
    done = await environment.exec(
        "cat given.txt; test -e Dockerfile && echo copied; "
        "touch /usr/x /usr/bin/x /dev/x 2>/dev/null && echo wrote; "
        "mount -o remount,rw /usr 2>/dev/null && echo mounted;"
        "unshare -Ur true 2>/dev/null && echo nested; touch /new /root/x /tmp/x /etc/x && echo private; id -u; pwd"
    )
    assert done.stdout.split() == ["given", "private", "0", "/app"]
    status = (await environment.exec("cat /proc/self/status")).stdout.splitlines()
    fields = {line.split(":")[0]: line.split(":")[1].strip() for line in status}
    system, network, tracing = 1 << 21, 1 << 12, 1 << 19
    for name in ("CapEff", "CapPrm", "CapBnd", "CapInh"):
        assert int(fields[name], 16) & (system | network | tracing) == 0
    assert fields["NoNewPrivs"] == "1"


async def test_secrets_stand_on_no_command_line_of_the_host(make_environment, unique):
    environment = await make_environment()
    token, command_secret = f"token-{unique}", f"command-{unique}"
    with environment.scoped_exec_env({"API_KEY": token}):
        running = asyncio.create_task(environment.exec(f"echo $API_KEY {command_secret}; read -t 1 < <(:; sleep 1)"))
        seen = []
        for _ in range(20):
            await asyncio.sleep(0.02)
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(entry.read_bytes())
                except OSError:
                    continue
        done = await running
    assert done.stdout == f"{token} {command_secret}\n"
    assert any(b"sleep" in line for line in seen)  # the command was running while we looked
    assert not [line for line in seen if token.encode() in line or command_secret.encode() in line]


@pytest.fixture
async def gateway():
    """A server on the host's loopback that answers with what it was sent; yields (port, list of peers' data)."""
    received: list[bytes] = []

    async def serve(reader, writer):
        data = await reader.read(1000)
        received.append(data)
        writer.write(b"answer to " + data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], received
    server.close()


def _ask(host: str, port: int) -> str:
    return f"exec 9<>/dev/tcp/{host}/{port} && echo hello >&9 && cat <&9"


async def test_the_relay_reaches_the_gateway_and_nothing_else(make_environment, gateway):
    port, received = gateway
    environment = await make_environment(relay=f"http://127.0.0.1:{port}/v1")
    done = await environment.exec(_ask("127.0.0.1", port))
    assert done.stdout == "answer to hello\n"
    other = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0probe-{port}")
    abstract.listen()
    try:
        host_address = socket.gethostbyname(socket.gethostname())
        for host, target in (
            ("127.0.0.1", other.sockets[0].getsockname()[1]),
            (host_address if not host_address.startswith("127.0.0.1") else "10.255.255.1", port),
            ("8.8.8.8", 53),
        ):
            failed = await environment.exec(_ask(host, target), timeout_sec=5)
            assert failed.return_code not in (0, 124), (host, target)
        listing = (await environment.exec("cat /proc/net/dev /proc/net/unix")).stdout
        assert f"probe-{port}" not in listing
        devices = [
            line.split(":")[0].strip() for line in listing.splitlines() if line.count(":") == 1 and "|" not in line
        ]
        assert devices[0] == "lo"
        assert not [device for device in devices if device.startswith(("e", "w"))]
    finally:
        abstract.close()
        other.close()
    assert received == [b"hello\n"]


async def test_a_gateway_by_name_or_address_keeps_its_url_inside(make_environment, gateway):
    port, _ = gateway
    named = await make_environment(relay=f"http://localhost:{port}")
    assert (await named.exec(_ask("localhost", port))).return_code == 0
    address = socket.gethostbyname(socket.gethostname())
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "0.0.0.0", 0)
    elsewhere = server.sockets[0].getsockname()[1]
    try:
        environment = await make_environment(relay=f"http://{address}:{elsewhere}")
        assert (await environment.exec(_ask(address, elsewhere))).stdout == "hi"
    finally:
        server.close()


async def test_the_network_policy_opens_and_closes_the_relay(make_environment, gateway):
    port, _ = gateway
    relay = f"http://127.0.0.1:{port}"
    closed = await make_environment(policy="no-network", relay=relay)
    assert (await closed.exec(_ask("127.0.0.1", port))).return_code != 0
    await closed.set_network_policy(NetworkPolicy(network_mode="allowlist", allowed_hosts=["127.0.0.1"]))
    assert (await closed.exec(_ask("127.0.0.1", port))).return_code == 0
    await closed.set_network_policy(NetworkPolicy(network_mode="allowlist", allowed_hosts=["example.org"]))
    assert (await closed.exec(_ask("127.0.0.1", port))).return_code != 0


async def test_a_dead_gateway_is_a_closed_connection(make_environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = await make_environment(relay=f"http://127.0.0.1:{port}")
    done = await environment.exec(_ask("127.0.0.1", port), timeout_sec=10)
    assert done.return_code == 0 and done.stdout == ""


async def test_planted_links_lead_nowhere_on_the_host(make_environment, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("host secret")
    environment = await make_environment(storage="disk")
    await environment.exec(
        f"mkdir -p /logs/agent/sub && cd /logs/agent && ln -s {outside}/secret stolen && ln -s {outside} dir && "
        f"ln -s /etc/passwd inside && ln -s /proc/self/root{outside} proc && "
        f"ln -s ../../../../..{outside}/secret up && "
        f"mkfifo pipe && ln -s {outside} /planted && ln -s {outside}/secret /planted-file && echo real > sub/real && "
        "ln -s loop loop && chmod 000 sub"
    )
    target = tmp_path / "download"
    await environment.download_dir("/logs/agent", target)
    assert "host secret" not in "".join(p.read_text() for p in target.rglob("*") if p.is_file())
    assert not [p for p in target.rglob("*") if p.is_symlink()]
    assert (target / "inside").read_text().startswith("root:x:0:0")
    for path in ("/planted-file", "/planted/secret", "/logs/agent/stolen"):
        with pytest.raises(OSError, match="No such file"):
            await environment.download_file(path, tmp_path / "stolen")
    with pytest.raises(OSError, match=r"Invalid"):
        await environment.download_file("/logs/agent/pipe", tmp_path / "pipe")
    source = tmp_path / "source"
    source.mkdir()
    (source / "secret").write_text("overwritten")
    for path in ("/planted", "/logs/agent/dir"):
        with pytest.raises(OSError, match=r".+"):
            await environment.upload_dir(source, path)
    await environment.upload_file(source / "secret", "/planted-file")
    assert (outside / "secret").read_text() == "host secret"
    assert (await environment.exec("cat /planted-file")).stdout == "overwritten"


async def test_a_download_replaces_links_that_lie_in_its_way(make_environment, tmp_path):
    environment = await make_environment()
    await environment.exec("mkdir -p /logs/agent/sub && echo new > /logs/agent/file && echo new > /logs/agent/sub/file")
    target, victim = tmp_path / "target", tmp_path / "victim"
    target.mkdir()
    victim.mkdir()
    (victim / "file").write_text("old")
    (target / "file").symlink_to(victim / "file")
    (target / "sub").symlink_to(victim)
    await environment.download_dir("/logs/agent", target)
    assert (victim / "file").read_text() == "old"
    assert (target / "file").read_text() == (target / "sub" / "file").read_text() == "new\n"
