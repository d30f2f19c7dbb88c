"""Agents from npm, each started as its users start it, in a home of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from agents import AgentTrial
from npm_cli import npm_cli


class Ended(msgspec.Struct, kw_only=True):
    """An agent's program after its end. `out`: what it printed; `work`: the directory that it worked in."""

    code: int
    out: str
    err: str
    work: Path


async def claude_code(trial: AgentTrial, home: Path, **environment: str) -> Ended:
    """claude-code with its defaults; further environment variables."""
    program = npm_cli("@anthropic-ai/claude-code", "2.1.197")
    words = ["-p", "Please work on it", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
    given = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "IS_SANDBOX": "1",  # or it refuses to skip permissions as root
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ANTHROPIC_BASE_URL": trial.url,
        "ANTHROPIC_API_KEY": trial.api_key,
    }
    return await _run(trial, [str(program), *words], home, given | environment)


async def codex(trial: AgentTrial, home: Path, config: str = "") -> Ended:
    """codex as Harbor starts it: the provider that is built in, with another address. `config`: further lines."""
    program = npm_cli("@openai/codex", "0.171.0")
    settings = home / ".codex"
    settings.mkdir()
    (settings / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": trial.api_key}))
    lines = ['model = "policy"', 'model_provider = "openai"', f'openai_base_url = "{trial.url}/v1"', config]
    (settings / "config.toml").write_text("\n".join([*lines, "[analytics]", "enabled = false", ""]))
    words = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "fix it"]
    return await _run(trial, [str(program), *words], home, {"HOME": str(home), "CODEX_HOME": str(settings)})


async def opencode(trial: AgentTrial, home: Path) -> Ended:
    """opencode; the gateway is a provider of its configuration."""
    program = npm_cli("opencode-ai", "1.18.33")
    model = {"name": "policy", "reasoning": True, "tool_call": True, "limit": {"context": 65536, "output": 8192}}
    provider: dict[str, Any] = {"npm": "@ai-sdk/openai-compatible", "name": "gateway", "models": {"policy": model}}
    provider["options"] = {"baseURL": f"{trial.url}/v1", "apiKey": trial.api_key}
    config = home / ".config" / "opencode" / "opencode.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"autoupdate": False, "share": "disabled", "provider": {"gateway": provider}}))
    words = ["run", "--model", "gateway/policy", "do it"]
    return await _run(trial, [str(program), *words], home, {"HOME": str(home), "OPENCODE_DISABLE_MODELS_FETCH": "1"})


async def qwen_code(trial: AgentTrial, home: Path) -> Ended:
    """qwen-code."""
    program = npm_cli("@qwen-code/qwen-code", "0.15.10")
    words = ["--yolo", "--auth-type", "openai", "--model", "policy", "-p", "do it"]
    given = {"OPENAI_API_KEY": trial.api_key, "OPENAI_BASE_URL": f"{trial.url}/v1", "OPENAI_MODEL": "policy"}
    return await _run(trial, [str(program), *words], home, {"HOME": str(home), **given})


async def _run(trial: AgentTrial, words: list[str], home: Path, environment: dict[str, str]) -> Ended:
    work = home / "work"
    work.mkdir(exist_ok=True)
    code, out, err = await trial.command(words, work, environment)
    return Ended(code=code, out=out, err=err, work=work)
