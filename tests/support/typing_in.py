"""Text given to the console's prompt in one piece: a key at a time is slow, and tested where the prompt is."""

from __future__ import annotations

from textual.events import Paste


async def fill(app, pilot, text: str) -> None:
    """Replace what is in the open prompt, and press enter."""
    await pilot.pause()
    await pilot.press("ctrl+u")
    app.screen.post_message(Paste(text))
    await pilot.press("enter")


async def typed(app, pilot, text: str) -> None:
    """A command at the command line."""
    await pilot.press("colon")
    await fill(app, pilot, text)
