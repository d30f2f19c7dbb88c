"""Pages of the console, by id."""

from __future__ import annotations

from console.tui.pages.alarms import AlarmsPage
from console.tui.pages.config import ConfigPage
from console.tui.pages.events import EventsPage
from console.tui.pages.help import HelpPage
from console.tui.pages.metrics import MetricsPage
from console.tui.pages.page import Page
from console.tui.pages.run import RunPage
from console.tui.pages.runs import RunsPage
from console.tui.pages.scrub import ScrubPage
from console.tui.pages.trial import TrialPage

PAGES: dict[str, type[Page]] = {
    page.id: page
    for page in (RunPage, TrialPage, EventsPage, AlarmsPage, MetricsPage, ConfigPage, RunsPage, HelpPage, ScrubPage)
}
