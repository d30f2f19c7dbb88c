"""The command line of the embedded gateway: check, bind, load, serve.

Stdout carries one JSON line once requests are served; the log goes to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from console.errors import QuarterdeckError, UsageError
from console.gateway.embedded.likeness import LIKENESSES
from console.resources import BUNDLED_MODEL, BUNDLED_NAME, models_dir

if TYPE_CHECKING:
    import uvicorn

    from console.gateway.embedded.context import Gateway

_DESCRIPTION = """\
Serve a small Qwen3 model over the Tinker wire protocol, on the CPU of this machine.

It samples, computes the training losses, takes Adam steps on LoRA weights, and keeps checkpoints: enough for
`quarterdeck demo`, for tests, and for trying a training configuration without a GPU. Point a client at it with
TINKER_BASE_URL=http://HOST:PORT and any TINKER_API_KEY that starts with "tml-"; each key sees only its own models.

DIR is a Hugging Face directory: config.json (model_type qwen3), model.safetensors, and tokenizer.json for stop strings.

With --like it behaves like another service, as far as a client can tell: the requests that service refuses are refused
with the same words, its missing routes are missing, and the defaults of --max-models, --max-rank, --max-queued, --lease
and --poll are its own.

  miles    the Miles gateway: request models of SDK 0.26.2, one model at a time, checkpoints that never expire
  hosted   the hosted service
  skyrl    SkyRL's server: no API keys, no creation of a model by loading a checkpoint
"""
_LAYERS = ("attn", "mlp", "unembed")
_KV_BUDGET = 768 * 2**20
_PREFIX_BUDGET_SHARE = 6  # kept prefixes may hold one sixth of the key-value budget


class _Parser(argparse.ArgumentParser):
    """Complains in one line, as every command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = _Parser(
        prog="quarterdeck gateway serve",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, metavar="DIR", help=f"the model directory (default: the bundled {BUNDLED_MODEL})")
    add(
        "--name",
        help=f"the name that clients ask for as base_model (default: the directory's name, or {BUNDLED_NAME})",
    )
    add("--like", choices=tuple(LIKENESSES), default="embedded", help="whom to behave like (default: itself)")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    add("--port", type=_port, default=0, help="port to listen on; 0 picks a free one (default: %(default)s)")
    add(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="where checkpoints are kept (default: quarterdeck/checkpoints in the user's state directory)",
    )
    add(
        "--threads",
        type=_positive,
        default=1,
        help="compute threads; more than one is only faster when that many cores are idle (default: %(default)s)",
    )
    add("--max-rows", type=_positive, default=64, help="sequences sampled at a time (default: %(default)s)")
    add("--max-queued", type=_positive, metavar="N", help="sequences that may wait; then 429 (default: 512)")
    add(
        "--max-models",
        type=_positive,
        metavar="N",
        help="models in training at a time (default: 8; miles: 1; hosted: 64)",
    )
    add("--max-rank", type=_positive, metavar="N", help="the highest LoRA rank (default: 1024; miles: 16)")
    add(
        "--train",
        type=_layers,
        metavar="LAYERS",
        help="the layers that every model trains, with --like miles: attn, mlp, unembed, with commas (default: all)",
    )
    add(
        "--lease",
        type=_seconds,
        metavar="SECONDS",
        help="a session without a heartbeat for this long ends, and frees its models (default: 300)",
    )
    add(
        "--poll",
        type=_seconds,
        metavar="SECONDS",
        help="how long a client that asks for a result waits before it is told to ask again "
        "(default: 25; miles: 30; skyrl: 300)",
    )
    add(
        "--gap-timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long an operation waits for an earlier one that has not arrived (default: %(default)g)",
    )
    add("--exit-with-stdin", action="store_true", help="end when stdin reaches its end, as it does when a parent dies")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the gateway until it is told to end; returns the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        return _serve(build_parser().parse_args(argv))
    except QuarterdeckError as problem:
        print(f"error: {problem}", file=sys.stderr)  # noqa: T201
        return problem.exit_code


def _serve(arguments: argparse.Namespace) -> int:
    # What can be refused is refused before torch is imported, which takes seconds.
    from console.gateway.embedded.config import load_config

    if arguments.train is not None and not LIKENESSES[arguments.like].fixed_layout:
        raise UsageError(
            f"--train is not for --like {arguments.like}: there each model says what it trains; leave it out"
        )
    if arguments.model is None:
        arguments.model = models_dir() / BUNDLED_MODEL
        arguments.name = arguments.name or BUNDLED_NAME
    config = load_config(arguments.model)
    name = arguments.name or arguments.model.resolve().name
    checkpoints = arguments.checkpoints or _default_checkpoints()
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"--checkpoints {str(checkpoints)!r} cannot be created: {problem.strerror}") from None
    with _bind(arguments.host, arguments.port) as listener:
        # Each compute thread of OpenMP spins while it waits; with a busy second core that costs far more than it gains.
        os.environ.setdefault("OMP_NUM_THREADS", str(arguments.threads))
        server, gateway = _load(arguments, name, checkpoints)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        announcement = {
            "type": "listening",
            "url": f"http://{address}:{port}",
            "pid": os.getpid(),
            "model": name,
            "context_window": config.context_window,
            "like": arguments.like,
        }
        asyncio.run(_run(server, gateway, listener, announcement, arguments.exit_with_stdin))
    return 0


def _load(arguments: argparse.Namespace, name: str, checkpoints: Path) -> tuple[uvicorn.Server, Gateway]:
    gc.disable()  # collecting while torch is imported only costs time: nothing of it is garbage
    try:
        import torch
        import uvicorn
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise UsageError(f"{problem.name} is not installed; install quarterdeck[engine]") from None
    from console.gateway.embedded.checkpoints import Checkpoints
    from console.gateway.embedded.context import Gateway, Settings
    from console.gateway.embedded.engine import Engine
    from console.gateway.embedded.model import Model
    from console.gateway.embedded.server import build_app

    torch.set_num_threads(arguments.threads)
    # The compute thread gives up the interpreter lock in every operation; a long switch interval would make it wait.
    sys.setswitchinterval(0.0005)
    model = Model.load(arguments.model)
    path = arguments.model / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path)) if path.exists() else None
    except Exception as problem:  # the tokenizers library raises bare Exceptions
        raise UsageError(f"{str(path)!r} cannot be read: {problem}") from None
    prefix_budget = _KV_BUDGET // _PREFIX_BUDGET_SHARE
    fitting = (_KV_BUDGET - prefix_budget) // (model.config.context_window * model.config.kv_bytes_per_token)
    like = LIKENESSES[arguments.like]
    settings = Settings(
        name=name,
        like=like,
        max_rank=arguments.max_rank or like.max_rank,
        train=arguments.train or frozenset(_LAYERS),
        max_rows=max(1, min(arguments.max_rows, fitting)),
        max_models=arguments.max_models or like.max_models,
        max_queued=arguments.max_queued or like.max_queued,
        lease=arguments.lease or like.lease,
        poll_seconds=arguments.poll or like.poll_seconds,
        gap_timeout=arguments.gap_timeout,
    )
    if settings.max_rows < arguments.max_rows:
        logging.info("--max-rows is %d: more rows of a full context would not fit in memory", settings.max_rows)
    engine = Engine(model, tokenizer, max_rows=settings.max_rows, prefix_budget=prefix_budget)
    gateway = Gateway(engine, Checkpoints(checkpoints), settings)
    options = uvicorn.Config(
        build_app(gateway),
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
        lifespan="on",
    )
    # What was imported stays: without this, a full collection stops every thread for 0.2 s now and then.
    gc.collect()
    gc.freeze()
    gc.enable()
    return uvicorn.Server(options), gateway


async def _run(
    server: uvicorn.Server,
    gateway: Gateway,
    listener: socket.socket,
    announcement: dict[str, object],
    exit_with_stdin: bool,
) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True
        gateway.futures.close()  # or those who wait for a result would hold the end up

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await uvicorn_startup(sockets=sockets)
        if server.started:
            print(json.dumps(announcement), flush=True)  # noqa: T201

    uvicorn_startup = server.startup
    server.startup = startup  # type: ignore[method-assign]
    # Uvicorn's own handlers raise the signal again when it has ended; an ending on request is exit 0 here.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if exit_with_stdin:
        threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True, name="stdin").start()
    await server.serve(sockets=[listener])


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet, so that clients are refused until the model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise UsageError(f"--host {host!r} is no address of this machine: {problem.strerror}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is in use; choose another --port, or 0 for a free one") from None
        raise UsageError(f"cannot listen on {host} port {port}: {problem.strerror}") from None
    return listener


def _default_checkpoints() -> Path:
    from platformdirs import user_state_path

    return user_state_path("quarterdeck") / "checkpoints"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _layers(text: str) -> frozenset[str]:
    layers = frozenset(part.strip() for part in text.split(","))
    if not layers <= set(_LAYERS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of layers: choose from {','.join(_LAYERS)}")
    return layers


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds above 0")
    return value


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    try:
        while os.read(0, 65536):
            pass
    except OSError:
        pass
    try:
        loop.call_soon_threadsafe(stop)
    except RuntimeError:
        pass  # the loop has ended already
