"""What somebody would write who has Textual and an afternoon: programs to set beside the console."""

from __future__ import annotations

MINIMAL = """
from textual.app import App
from textual.widgets import Static
class Minimal(App):
    def compose(self):
        yield Static("PAINTED")
Minimal().run(mouse=False)
"""

_STOCK = """
import random
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import DataTable, Sparkline, Static
rnd = random.Random(7)
class Stock(App):
    CSS = "#top { height: 6; } Sparkline { width: 1fr; height: 4; margin: 0 1; } DataTable { height: 1fr; }"
    def compose(self):
        yield Static("PAINTED")
        with Horizontal(id="top"):
            for i in range(4):
                yield Sparkline([rnd.random() for _ in range(60)], id=f"s{i}")
        yield DataTable(cursor_type="row")
    def on_mount(self):
        table = self.query_one(DataTable)
        names = ("id", "group", "task", "state", "turn", "tokens", "elapsed", "reward")
        self.columns = table.add_columns(*names)
        self.cells = [[f"t{i}", f"g{i // 8}", "a-task", "agent", 0, 0, 0.0, "--"] for i in range(TRIALS)]
        for i, row in enumerate(self.cells):
            table.add_row(*map(str, row), key=str(i))
        self.set_interval(1 / HERTZ, self.tick)
    def tick(self):
        table = self.query_one(DataTable)
        for i in rnd.sample(range(TRIALS), DIRTY):
            row = self.cells[i]
            row[4] += 1; row[5] += rnd.randint(50, 900); row[6] += 0.25
            for column in (4, 5, 6):
                table.update_cell(str(i), self.columns[column], str(row[column]))
        for i in range(4):
            spark = self.query_one(f"#s{i}", Sparkline)
            spark.data = [*spark.data[1:], rnd.random()]
Stock().run(mouse=False)
"""


def stock(trials: int, dirty: int, hertz: int) -> str:
    """A table of all trials with Textual's own `DataTable`, four of its `Sparkline`s above: a program's text."""
    return f"TRIALS, DIRTY, HERTZ = {trials}, {dirty}, {hertz}\n{_STOCK}"
