"""The Tinker gateway of a run: a child of the engine or somebody's, what kind it is, and the watch over it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from console.engine.cause import one_line
from console.engine.tasks import spawn
from console.errors import GatewayLostError, UsageError
from console.findings import WARNING, refuse
from console.gateway.health import HealthWatch
from console.gateway.loss import forgotten_line
from console.gateway.profiles import PROFILES, GatewayProfile
from console.gateway.proxies import except_loopback, gateway_client
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.resources import BUNDLED_MODEL, models_dir
from console.training.options import RunOptions

if TYPE_CHECKING:
    from console.gateway.embedded.launch import EmbeddedGateway

EMBEDDED_KEY = "tml-embedded"
"""The embedded gateway serves this machine and this run only; the SDK insists on a key of this form."""


class GatewayLink:
    """Makes the gateway ready for the SDK of this process, and lets go of it.

    Args:
        options: of the run; run_dir: for the embedded gateway's log and checkpoints; emit: appends an event.
        last_alive: when an engine before this one was last alive, Unix seconds, None for no such engine: it may hold a
            model slot until its lease ends.
        ahead: seconds by which the run's time is ahead of the time of day.

    Attributes:
        base_url: of the gateway, empty for the hosted service at the address that the SDK knows: it is not probed.
        window: tokens of a prompt and its sample together, None while not known.
        on_death: called with a reason when the gateway can do nothing more for the run.
    """

    def __init__(
        self,
        options: RunOptions,
        run_dir: Path,
        emit: Callable[[ev.Event], None],
        last_alive: float | None,
        ahead: Callable[[], float] = lambda: 0.0,
    ) -> None:
        except_loopback(os.environ)  # for the runners too: some agents live there, and call the capture gateway
        self._options, self._run_dir, self._emit, self._last_alive = options, run_dir, emit, last_alive
        self._ahead = ahead
        self._model = str(options.value("config.model_name"))
        self._embedded: EmbeddedGateway | None = None
        self._health: HealthWatch | None = None
        self._undo: list[Callable[[], None]] = []
        self._api_key = os.environ.get("TINKER_API_KEY", "").strip()
        self.base_url = str(options.value("config.base_url") or os.environ.get("TINKER_BASE_URL", ""))
        self.window: int | None = None
        self.on_death: Callable[[str], None] = lambda reason: None

    @property
    def embedded_model(self) -> Path:
        """The embedded gateway's model directory. Raises `UsageError` when there is none."""
        model_dir = Path(self._options.console.embedded_model or models_dir() / BUNDLED_MODEL)
        if not (model_dir / "config.json").is_file():
            raise UsageError(f"console.embedded_model={model_dir}: no model in it; name a Hugging Face model directory")
        return model_dir

    async def start(self) -> None:
        """Start the embedded gateway, if the run has one. Raises `GatewayLostError`, `UsageError`."""
        options = self._options
        if not options.embedded:
            return
        from console.gateway.embedded.launch import start_embedded

        self._api_key = EMBEDDED_KEY
        os.environ["TINKER_API_KEY"] = EMBEDDED_KEY
        self._embedded = await start_embedded(
            self.embedded_model,
            name=self._model,
            checkpoints=Path(options.console.embedded_checkpoints or self._run_dir / "gateway"),
            log_path=self._run_dir / "gateway.log",
        )
        self.base_url = self._embedded.url

    async def meet(self) -> None:
        """Look at the gateway, find out its kind, and make the SDK fit; the SDK must be imported.

        Raises:
            GatewayLostError: it cannot be reached; UsageError: it does not take what the options ask for.
        """
        self._health = HealthWatch(self.base_url, self._api_key, self._options.console.probe_interval, self._emit)
        profile = await self._profile(self._health) if self.base_url else self._hosted()
        self._fit_sdk(profile, self._health)
        self.window = profile.window(self._model)

    def _hosted(self) -> GatewayProfile:
        console = self._options.console
        return msgspec.structs.replace(
            PROFILES["hosted"],
            how="no config.base_url: the SDK's own address",
            context_window=console.context_window,
            max_rank=console.gateway_rank,
        )

    async def _profile(self, health: HealthWatch) -> GatewayProfile:
        from console.training.preflight_gateway import detect_as, profile_findings

        async with gateway_client() as client:
            seen = await health.once(client)
            if not seen.reachable:
                raise GatewayLostError(f"config.base_url={self.base_url}: gateway unreachable: {seen.detail}")
            profile = await detect_as(self._options, self.base_url, self._api_key, client)
        findings = profile_findings(self._options, profile)
        refuse(findings)
        for finding in findings:
            if finding.level == WARNING:
                self._emit(ev.Note(text=finding.line(), level="warning"))
        return profile

    def _fit_sdk(self, profile: GatewayProfile, health: HealthWatch) -> None:
        """Translate, wait for slots, watch: each a wrapper around the SDK of this process, undone by `close`."""
        from console.gateway import slots, translation
        from console.gateway.sdk_watch import SdkWatch

        translated = translation.installed(profile)
        self._undo.append(translated.undo)
        loop = asyncio.get_running_loop()

        def tell(reason: str, until: float) -> None:
            """On the SDK's thread."""
            with contextlib.suppress(RuntimeError):  # the engine's loop is closed: nobody waits any more
                moment = until + self._ahead() if until else 0.0
                loop.call_soon_threadsafe(self._tell, ev.GatewayWaiting(reason=reason, until=moment))

        waits = slots.waiting(
            profile, slot_wait=self._options.console.slot_wait, on_wait=tell, last_alive=self._last_alive
        )
        self._undo.append(waits.undo)
        watch = SdkWatch()
        watch.install()
        self._undo.append(watch.undo)
        health.attach(sdk=watch.figures, lease=profile.lease, on_forgotten=self.forgotten)
        self._emit(profile.event(self._model, translated.phrases))

    def _tell(self, event: ev.Event) -> None:
        with contextlib.suppress(JournalWriteError):  # the board ends the run
            self._emit(event)

    def outage(self, since: float) -> float:
        """Seconds for which the gateway did not answer, from a monotonic time until now."""
        return self._health.outage(since) if self._health is not None else 0.0

    def forgotten(self, said: str) -> None:
        """The gateway does not know the run's sampler any more, as it said. Nothing that is asked of it will work."""
        self.on_death(one_line(forgotten_line(said)))

    def watch(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Probe from now on, and watch over the embedded gateway's process; adds to `tasks`."""
        if self._health is not None:
            spawn(self._health.run(), tasks)
        if self._embedded is not None:
            spawn(self._watch_embedded(self._embedded), tasks)

    async def _watch_embedded(self, gateway: EmbeddedGateway) -> None:
        code = await gateway.process.wait()
        self.on_death(f"the embedded gateway ended with exit code {code}; see gateway.log in the run directory")

    async def close(self) -> None:
        """Give the SDK back as it was, and end the embedded gateway."""
        while self._undo:
            self._undo.pop()()
        if self._embedded is not None:
            await self._embedded.stop()
