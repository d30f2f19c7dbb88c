"""The way into the screens of `bench look`."""

from __future__ import annotations

from typing import Any

from console.tui.bench.reading import Reader
from console.tui.empty import EmptySource
from console.tui.main import PLAIN_LOOK, Look, run_console


class BenchSource(EmptySource):
    """No run; closing it ends a reading that is under way."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        names = [path.name or str(path) for path in reader.wanted.paths]
        self.view.state.name = names[0] if names else ""

    async def close(self) -> None:
        """Nobody waits for the reading any more."""
        self._reader.stop()


def look_at(reader: Reader, look: Look = PLAIN_LOOK, *, print_only: bool = False) -> tuple[int, tuple[str, ...]]:
    """Open the screens until they are left.

    Args:
        print_only: the command of a mop-up is only printed, so that it needs no question.

    Returns:
        The exit code as of `run_console`, and the command that was asked for: arguments of `quarterdeck bench`, empty
        for none.

    Raises:
        UsageError: no terminal to paint on, no such theme, or a file of keys that does not fit.
    """
    from console.tui.bench.desk import BenchDesk

    made: list[BenchDesk] = []

    def desk(*args: Any, **options: Any) -> BenchDesk:
        made.append(BenchDesk(*args, reader=reader, print_only=print_only, **options))
        return made[-1]

    code = run_console(BenchSource(reader), look, goodbye=False, desk=desk)
    return code, made[-1].command if made and code == 0 else ()
