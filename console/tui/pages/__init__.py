"""Pages of the console, by id."""

from __future__ import annotations

from console.tui.pages.metrics import MetricsPage
from console.tui.pages.page import Page
from console.tui.pages.run import RunPage

PAGES: dict[str, type[Page]] = {page.id: page for page in (RunPage, MetricsPage)}
