"""An agent that does nothing, and a sandbox that is none: parts of jobs for any version of Harbor, imported by path."""

from __future__ import annotations

from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult


class SandboxError(Exception):
    """The name of a fault that people filter by."""


class Still(BaseAgent):
    """Fails where the instruction says so."""

    @staticmethod
    def name():
        return "still"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        if "fail" in instruction:
            raise SandboxError("the sandbox is gone")


class Nowhere(BaseEnvironment):
    """Executes nothing; what a verifier would have written is there when it is asked for."""

    @staticmethod
    def type():
        return "nowhere"

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        pass

    async def stop(self, delete):
        pass

    async def upload_file(self, source_path, target_path):
        pass

    async def upload_dir(self, source_dir, target_dir):
        pass

    async def download_file(self, source_path, target_path):
        pass

    async def download_dir(self, source_dir, target_dir):
        if "verifier" in str(source_dir):
            Path(target_dir).mkdir(parents=True, exist_ok=True)
            (Path(target_dir) / "reward.txt").write_text("1")

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None, **more):
        return ExecResult(stdout="", stderr="", return_code=0)
