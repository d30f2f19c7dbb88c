"""The two gateways that `capture.py` compares, each before a sampler that answers from a script.

Both get the same renderer, tokenizer and replies; a reply is the SDK's own object, made of arrays as the SDK makes it.
The cookbook's side is its proxy as it is, its SDK instrumentation, and its store in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from capture_talks import Talk

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.update(TINKER_TELEMETRY="0", HF_HUB_OFFLINE="1", TINKER_API_KEY="tml-benchmark")

RUN, DATABASE = "bench", "capture.sqlite"


class Script:
    """The replies of one trial, in order. `begin`: turns that the conversation had before."""

    def __init__(self, talk: Talk, delay: float, begin: int = 0) -> None:
        self._turns, self._delay, self._next = talk.turns, delay, begin

    async def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        """As `tinker.SamplingClient.sample`."""
        import tinker

        turn = self._turns[self._next]
        self._next += 1
        if self._delay:
            await asyncio.sleep(self._delay)
        sequence = tinker.types.SampledSequence(
            stop_reason="stop", sequence_id="scripted", tokens_np=turn.tokens.copy(), logprobs_np=turn.logprobs.copy()
        )
        return tinker.types.SampleResponse(sequences=[sequence])


class Ours:
    """The capture gateway of this repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "capture"
        self.routes: list[Any] = []

    async def start(self) -> int:
        """The port on which it listens."""
        from qwen_tokenizer import qwen_renderer

        from console.capture.journal import CallJournal
        from console.capture.rendering import PolicyRenderer
        from console.capture.server import Capture
        from console.capture.settings import CallSettings

        self.capture = Capture(
            renderer=PolicyRenderer(qwen_renderer("qwen3_5"), name="qwen3_5"),
            journal=CallJournal(self.directory),
            settings=CallSettings(model="policy", max_tokens=2048, window=131072),
        )
        await self.capture.start()
        return int(self.capture.url.rpartition(":")[2])

    async def trial(self, number: int, script: Script) -> dict[str, Any]:
        """Path and key of a new trial's route."""
        route = await self.capture.open_route(f"s0.g0.t{number}.y0", script, lambda report: None, policy_version=1)
        route.start()
        self.routes.append(route)
        return {"path": "/v1/chat/completions", "key": route.api_key}

    async def sealed(self) -> list[Any]:
        """The trials' ends: what each captured, its file on the disk."""
        return [await route.seal() for route in self.routes]

    async def stop(self) -> None:
        """The end."""
        await self.capture.close()

    def rows(self) -> int:
        """Answered calls whose tokens and log-probs the reader of the files finds whole."""
        from console.records.captured_calls import CapturedTrialFile, trial_files

        found = 0
        for path in trial_files(self.directory.parent):
            file = CapturedTrialFile(path)
            file.refresh(1 << 40)
            found += sum(call.answered and 0 < len(call.tokens()) == len(call.logprobs()) for call in file)
        return found

    def bytes(self) -> int:
        """On the disk."""
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())


class Cookbook:
    """`tinker_cookbook.capture`: proxy, instrumentation and store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "store"
        self.scripts: dict[int, Script] = {}

    async def start(self) -> int:
        """The port on which it listens."""
        import tinker
        from aiohttp import web
        from qwen_tokenizer import qwen_renderer
        from tinker_cookbook.capture.exporter import CaptureExporter
        from tinker_cookbook.capture.instrument import instrument_tinker
        from tinker_cookbook.capture.proxy.app import ProxyDeps, make_app
        from tinker_cookbook.capture.scope import current_scope
        from tinker_cookbook.capture.store.client import StoreSink, ensure_daemon

        async def sample_async(client: Any, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
            script = self.scripts[int(str(current_scope()["traj_idx"]))]
            return await script.sample(prompt, num_samples, sampling_params)

        tinker.SamplingClient.sample_async = sample_async  # type: ignore[method-assign,assignment]
        self.store = await asyncio.to_thread(ensure_daemon, self.directory)
        self.exporter = CaptureExporter(StoreSink(self.store))
        instrument_tinker(self.exporter)
        client = object.__new__(tinker.SamplingClient)
        app = make_app(ProxyDeps(renderer=qwen_renderer("qwen3_5"), sampling_client=client, model_label="policy"))
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return int(self.runner.addresses[0][1])

    async def trial(self, number: int, script: Script) -> dict[str, Any]:
        """Path and key of a new trial's address."""
        self.scripts[number] = script
        return {"path": f"/r/run/{RUN}/group/0/traj/{number}/v1/chat/completions", "key": "none"}

    async def stop(self) -> None:
        """The end; what is queued has a minute to come to the store."""
        await asyncio.to_thread(self.exporter.force_flush, 60.0)
        await self.runner.cleanup()
        self.exporter.shutdown()
        self._end_daemon()

    def _end_daemon(self) -> None:
        """The store's process would stay for an hour."""
        os.kill(json.loads((self.directory / "daemon.json").read_text())["pid"], signal.SIGTERM)

    def rows(self) -> int:
        """Rows in the store."""
        with sqlite3.connect(self.directory / DATABASE) as connection:
            return int(connection.execute("SELECT count(*) FROM wire_rows").fetchone()[0])

    def bytes(self) -> int:
        """On the disk, the write-ahead log worked in."""
        with sqlite3.connect(self.directory / DATABASE) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (self.directory / DATABASE).stat().st_size


class Lag:
    """How late a loop is, sampled every 5 ms: pairs of monotonic time and seconds late."""

    EVERY = 0.005

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(self.EVERY)
            now = time.monotonic()
            self.seen.append((now, now - began - self.EVERY))

    def between(self, began: float, ended: float) -> list[float]:
        """Seconds late, of the beats that ended in this time or just after, sorted."""
        return sorted(late for at, late in self.seen if began <= at and at - late <= ended) or [0.0]

    def stop(self) -> None:
        """No more."""
        self._task.cancel()


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
