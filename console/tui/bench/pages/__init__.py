"""Pages of `bench look`, by id. A page is imported when it is opened first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from console.tui.pages.page import Page

_CLASSES = {
    "triage": "TriagePage",
    "trials": "TrialsPage",
    "verdict": "VerdictPage",
    "tally": "TallyPage",
    "versus": "VersusPage",
    "task": "TaskPage",
    "mop": "MopPage",
}


class _Pages(Mapping[str, "type[Page]"]):
    """Page `x` is in the module `x` of this package, the help in that of the console."""

    def __getitem__(self, page_id: str) -> type[Page]:
        if page_id == "help":
            from console.tui.pages.help import HelpPage

            return HelpPage
        if page_id not in _CLASSES:
            raise KeyError(page_id)
        found: type[Page] = getattr(import_module(f"{__name__}.{page_id}"), _CLASSES[page_id])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter((*_CLASSES, "help"))

    def __len__(self) -> int:
        return len(_CLASSES) + 1


PAGES: Mapping[str, type[Page]] = _Pages()
