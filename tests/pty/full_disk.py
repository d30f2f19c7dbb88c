"""An engine's board whose disk takes so many bytes and no more: `python full_disk.py RUN_DIR SOCKET --bytes N`."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
from pathlib import Path

from console.control.commands import Command
from console.engine.board import Board
from console.journal import events as ev


class _Nothing:
    def describe(self, command: Command) -> tuple[bool, str]:
        return False, "nothing can be done"

    async def execute(self, command: Command) -> tuple[bool, str]:
        return False, "nothing can be done"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--bytes", type=int, default=20_000)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_FSIZE, (args.bytes, args.bytes))
    board = Board(args.run_dir, "run-1", args.socket, _Nothing())
    failed: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
    board.on_failure = lambda error: None if failed.done() else failed.set_result(error)
    await board.start()
    board.emit(ev.RunStarted(run_id="run-1", name="first", run_dir=str(args.run_dir), pid=os.getpid(), steps=9))
    os.write(1, b"ready\n")
    while not failed.done():
        try:
            board.emit(ev.Note(text="the disk fills " * 8))
        except OSError:
            break
        await asyncio.sleep(0.03)
    await board.close(ev.RunFinished(status="failed", exit_code=7, reason=str(await failed)))
    os._exit(7)


if __name__ == "__main__":
    asyncio.run(main())
