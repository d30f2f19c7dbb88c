"""Starting and ending the gateway: the launcher, the command line, the parent's death."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import psutil
import pytest

from console import cli
from console.errors import GatewayLostError
from console.gateway.embedded.launch import start_embedded
from console.gateway.embedded.serve import main
from console.gateway.probe import probe


async def test_start_probe_and_stop(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    log = tmp_path / "logs" / "gateway.log"
    gateway = await start_embedded(tiny_model, checkpoints=tmp_path / "checkpoints", log_path=log, name="org/tiny")
    try:
        assert gateway.model == "org/tiny" and gateway.context_window == 512
        assert "TINKER_API_KEY" not in psutil.Process(gateway.pid).environ()
        points = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in ("self", gateway.pid)]
        assert points[0] < points[1], "without memory, it goes before us"
        async with httpx.AsyncClient() as client:
            health = await probe(gateway.url, "tml-a", client=client)
    finally:
        code = await gateway.stop()
    assert health.reachable and health.models[0].name == "org/tiny"
    assert code == 0 and await gateway.stop() == 0
    assert not psutil.pid_exists(gateway.pid)
    assert "Traceback" not in log.read_text() and gateway.last_log_line()


async def test_a_failed_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(GatewayLostError, match=r"ended with exit code 2: error: .* has no config\.json"):
        await start_embedded(tmp_path, checkpoints=tmp_path / "checkpoints", log_path=tmp_path / "log")


def test_the_gateway_dies_with_its_parent(tiny_model: Path, tmp_path: Path) -> None:
    """A parent killed without warning leaves no gateway behind."""
    parent_code = f"""
        import asyncio, json
        from pathlib import Path
        from console.gateway.embedded.launch import start_embedded

        async def main():
            here = Path({str(tmp_path)!r})
            gateway = await start_embedded(Path({str(tiny_model)!r}), checkpoints=here / "c", log_path=here / "log")
            print(json.dumps({{"pid": gateway.pid}}), flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(parent_code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(json.loads(parent.stdout.readline())["pid"])
        assert child.is_running()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        psutil.wait_procs([child], timeout=20)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert "Shutting down" in (tmp_path / "log").read_text()


def test_launching_imports_neither_torch_nor_tinker() -> None:
    code = (
        "import sys, console.gateway.probe, console.gateway.embedded.launch, console.gateway.embedded.serve\n"
        "print([name for name in ('torch', 'tinker', 'uvicorn', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_bad_command_lines_are_one_line_and_exit_2(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        good = ["--model", str(tiny_model), "--checkpoints", str(tmp_path)]
        (tmp_path / "file").write_text("")
        for arguments, complaint in [
            (["--model", str(tmp_path / "nowhere")], "does not exist; pass --model DIR"),
            ([*good, "--port", port], f"port {port} of 127.0.0.1 is in use"),
            ([*good, "--host", "no.such.host.invalid"], "--host 'no.such.host.invalid'"),
            ([*good[:2], "--checkpoints", str(tmp_path / "file" / "x")], "cannot be created"),
        ]:
            assert main(arguments) == 2
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1 and complaint in err, err


@pytest.mark.parametrize(
    "arguments", [["--threads", "0"], ["--model", "x", "--port", "70000"], ["--model", "x", "--lease", "nan"]]
)
def test_bad_options_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1


def test_the_first_help_names_both_of_its_commands() -> None:
    tools = cli.HELP.partition("\n  gateway ")[2]
    assert [line.split()[0] for line in tools.splitlines()[:2]] == ["serve", "command"]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert "TINKER_BASE_URL" in text
    assert {"--model", "--lease", "--max-models", "--exit-with-stdin"} <= set(re.findall(r"--[a-z-]+", text))
