"""A Harbor environment on bubblewrap: a sandbox without root, Docker or images.

Use it from any Harbor configuration by import path:

    {"environment": {"import_path": "console.trials.bwrap:BwrapEnvironment", "kwargs": {"relay": "{proxy_url}"}}}

One namespace lives as long as the trial: private root, home, /tmp, /dev and /proc; the host's /usr read-only, the
task's `environment/` copied into the working directory (its Dockerfile is not run). No host environment, no network
but the relay to the capture gateway. Whatever network policy a task asks for, the sandbox gives no more than that: with
`no-network` the relay is closed, with `allowlist` it is open when the gateway's host is on the list, with `public` it
is open. Limits are per process (see `console.trials.limits`).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, Literal, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import DOCKERFILE_NAME
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkMode, NetworkPolicy
from pydantic import Field, field_validator

from console.trials import skeleton, transfer
from console.trials.bwrap_policy import error_policy
from console.trials.limits import Limits
from console.trials.relay import Relay, Target
from console.trials.roots import default_root_dir, make_root
from console.trials.sandbox import EnvironmentStartError, Sandbox, SandboxLostError

__all__ = ["BwrapEnvironment", "BwrapOptions", "EnvironmentStartError", "SandboxLostError", "error_policy"]

_NOT_COPIED = frozenset(
    {DOCKERFILE_NAME, "docker-compose.yaml", "docker-compose.yml", ".dockerignore", ".keep", ".gitkeep"}
)
_DEFAULT_WORKDIR = "/app"
_STORAGE_MB = 1024
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "HOSTNAME": skeleton.HOST_NAME,
    "TERM": "xterm-256color",
}


class BwrapOptions(EnvironmentOptions):
    """The keyword arguments of the environment."""

    relay: str | None = Field(default=None, description="URL of the capture gateway: the only reachable address")
    storage: Literal["memory", "disk"] = Field(default="memory", description="Where the sandbox's files are")
    storage_mb: int | None = Field(default=None, gt=0, description="Room in memory; default: the task's, else 1024")
    root_dir: Path | None = Field(default=None, description="Parent of roots on disk; default: the temporary directory")
    keep: bool = Field(default=False, description="Keep the sandbox's files after the trial; needs storage=disk")
    ro_binds: list[Path] = Field(default_factory=list, description="Host paths bound read-only at the same place")
    memory_mb: int | None = Field(default=None, gt=0, description="Memory of a process; default: the task's, else 2048")
    processes: int = Field(default=512, gt=0, description="Processes and threads at a time")
    file_size_mb: int = Field(default=1024, gt=0, description="Largest file")
    shared_memory_mb: int = Field(default=64, gt=0, description="Size of /dev/shm")
    cpus: int | None = Field(default=None, gt=0, description="Processors it may run on; default: all")
    output_kb: int = Field(default=1024, gt=0, description="Kept of each output stream of a command")

    @field_validator("relay")
    @classmethod
    def _check_relay(cls, value: str | None) -> str | None:
        if value:
            Target.parse(value)
        return value or None

    @field_validator("ro_binds")
    @classmethod
    def _check_binds(cls, value: list[Path]) -> list[Path]:
        for path in value:
            if not path.is_absolute() or not path.exists():
                raise ValueError(f"{path} is not an absolute path of this host")
        return value


class BwrapEnvironment(BaseEnvironment):
    """See the module."""

    options_model = BwrapOptions
    options: BwrapOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._target = Target.parse(self.options.relay) if self.options.relay else None
        self._sandbox: Sandbox | None = None
        self._relay: Relay | None = None
        self._warned_user = False
        memory = self.options.memory_mb or self._effective_memory_mb or Limits.memory_mb
        self._limits = Limits(memory, self.options.processes, self.options.file_size_mb, cpus=self.options.cpus)
        self._workdir = (
            self.task_env_config.workdir
            or skeleton.dockerfile_workdir(self.environment_dir / DOCKERFILE_NAME)
            or _DEFAULT_WORKDIR
        )
        self._ulimit = self._limits.ulimit()
        self._processors = self._limits.processors()

    @staticmethod
    @override
    def type() -> str:
        return "bwrap"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities | None:
        return EnvironmentResourceCapabilities(fractional_cpus=True)

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        from console.trials.bwrap_check import check_bubblewrap

        super().preflight(kwargs)
        if problems := check_bubblewrap():
            raise SystemExit("; ".join(problems))

    @override
    def _validate_definition(self) -> None:
        if self.task_env_config.docker_image is None and not self.environment_dir.is_dir():
            raise FileNotFoundError(f"task environment directory {self.environment_dir} does not exist")

    # start and stop ---------------------------------------------------------------------------------------------------

    @override
    async def start(self, force_build: bool) -> None:
        """Raises:
        EnvironmentStartError: the sandbox did not come up.
        """
        if self._sandbox is not None:
            raise EnvironmentStartError("this environment was started before")
        try:
            spec = self._prepare()
        except OSError as error:
            raise EnvironmentStartError(f"cannot prepare the sandbox's root: {error}") from error
        assert self._sandbox is not None
        await self._sandbox.start(spec)
        for target in self._mount_targets(writable_only=True):
            await self._sandbox.request("mkdir", path=target, mode=0o777)
        if self.environment_dir.is_dir() and self._enable_environment_dir_upload:
            await transfer.upload_dir(self._sandbox, self.environment_dir, self._workdir, skip=_NOT_COPIED)
        await self._apply_network_policy(self._network_policy)

    def _prepare(self) -> dict[str, Any]:
        """Make the root and say what to start in it."""
        on_disk = self.options.storage == "disk" or self.options.keep
        root = make_root(self.options.root_dir or default_root_dir(), self.session_id) if on_disk else None
        self._sandbox = Sandbox(self.session_id, root)
        hosts = {self._target.alias: self._target.address} if self._target and self._target.alias else {}
        binds = [(str(path), str(path), True) for path in self.options.ro_binds]
        for mount in self._host_mounts:
            if mount["type"] == "bind":
                binds.append((str(mount["source"]), str(mount["target"]), bool(mount.get("read_only"))))
        return skeleton.specification(
            root=root,
            storage_mb=self.options.storage_mb or self._effective_storage_mb or _STORAGE_MB,
            shared_memory_mb=self.options.shared_memory_mb,
            workdir=self._workdir,
            hosts=hosts,
            binds=binds,
            name=self.session_id,
        )

    @override
    async def stop(self, delete: bool) -> None:
        """Everything goes, at any moment of the environment's life, also when this call is cancelled. Idempotent."""
        if self._relay is not None:
            self._relay.stop()
            self._relay = None
        if self._sandbox is not None:
            await self._sandbox.stop(keep=self.options.keep or not delete)

    # network ----------------------------------------------------------------------------------------------------------

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        if self._target is None or self._sandbox is None:
            return
        is_open = network_policy.network_mode == NetworkMode.PUBLIC or (
            network_policy.network_mode == NetworkMode.ALLOWLIST and self._target.host in network_policy.allowed_hosts
        )
        if not is_open and self._relay is not None:
            self._relay.stop()
            self._relay = None
        elif is_open and self._relay is None:
            listener = await self._sandbox.listen(self._target.address, self._target.port)
            self._relay = Relay(self._target)
            await self._relay.start(listener)

    # commands and files -----------------------------------------------------------------------------------------------

    def _started(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxLostError("the sandbox was not started")
        return self._sandbox

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`. Return code 124 on time-out, 126 when `cwd` cannot be entered.

        Raises:
            SandboxLostError: the sandbox is gone.
        """
        if self._resolve_user(user) not in (None, "root", "0", 0) and not self._warned_user:
            self._warned_user = True
            self.logger.warning(f"bwrap sandboxes have one user: running as root, not as {self._resolve_user(user)!r}")
        order = {
            "command": command,
            "cwd": cwd or self._workdir,
            "env": _ENVIRONMENT | (self._merge_env(env) or {}),
            "limits": self._ulimit,
            "cpus": self._processors,
        }
        done = await self._started().run(order, timeout_sec or None, self.options.output_kb << 10)
        stderr = done.stderr + (f"\ntimed out after {timeout_sec} s\n" if done.timed_out else "")
        return ExecResult(stdout=done.stdout, stderr=stderr, return_code=done.code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await transfer.upload_file(self._started(), Path(source_path), self._absolute(target_path))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await transfer.upload_dir(self._started(), Path(source_dir), self._absolute(target_dir))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await transfer.download_file(self._started(), self._absolute(source_path), Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await transfer.download_dir(self._started(), self._absolute(source_dir), Path(target_dir))

    @override
    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return await self._kind(path) == "dir"

    @override
    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return await self._kind(path) == "file"

    async def _kind(self, path: str) -> str:
        answer, _ = await self._started().request("kind", path=self._absolute(path))
        return str(answer["kind"])

    def _absolute(self, path: str) -> str:
        return str(PurePosixPath(self._workdir) / str(path))
