"""What the trials of one capture gateway share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from console.capture.figures import CaptureFigures
from console.capture.settings import CallSettings
from console.capture.workers import Workers

if TYPE_CHECKING:
    from console.capture.rendering import PolicyRenderer


class CallService:
    """Renderer, render thread, settings and totals.

    Args:
        renderer: the policy's; settings: how calls are served.
        outage: seconds since a monotonic time for which the policy's gateway did not answer its health checks.
        forgotten: told what the policy's gateway said when it did not know the sampler any more.

    Attributes:
        window: context window in tokens; learned from the gateway's errors when it was not known, or not right.
    """

    def __init__(
        self,
        renderer: PolicyRenderer,
        settings: CallSettings,
        *,
        workers: Workers | None = None,
        figures: CaptureFigures | None = None,
        outage: Callable[[float], float] = lambda since: 0.0,
        forgotten: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.renderer, self.settings, self.outage, self.forgotten = renderer, settings, outage, forgotten
        self.workers = workers if workers is not None else Workers()
        self.figures = figures if figures is not None else CaptureFigures()
        self.window = settings.window

    def close(self) -> None:
        """End the render thread."""
        self.workers.close()
