"""What the smaller commands share."""

from __future__ import annotations

from console.commands.parsing import table


def test_the_columns_of_a_table_stand_below_one_another() -> None:
    rows = [("RUN", "STATE", "WHAT"), ("a", "there", ""), ("long", "", "and more")]
    assert table(rows).splitlines() == [
        "RUN   STATE  WHAT",
        "a     there",
        "long         and more",
    ]
