"""Pages of the console, by id. A page is imported when it is opened first: the first paint waits for the run's only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.tui.pages.page import Page


class _Pages(Mapping[str, "type[Page]"]):
    """Page `x` is the class `XPage` of the module `x` in this package."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def __getitem__(self, page_id: str) -> type[Page]:
        if page_id not in self._ids:
            raise KeyError(page_id)
        found: type[Page] = getattr(import_module(f"{__name__}.{page_id}"), f"{page_id.capitalize()}Page")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


PAGES: Mapping[str, type[Page]] = _Pages(
    "run", "trial", "events", "alarms", "metrics", "config", "runs", "help", "scrub"
)
