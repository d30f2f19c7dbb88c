"""Places for running trials: in order, within a limit that changes, and none lost."""

from __future__ import annotations

import asyncio
import random

from console.training.slots import Dispatch, Slots


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def asked(slots: Slots, number: int) -> list[asyncio.Task[bool]]:
    return [asyncio.ensure_future(slots.acquire()) for _ in range(number)]


async def test_places_are_given_in_order_and_each_group_has_its_own():
    dispatch = Dispatch(2)
    first, second = dispatch.slots(), dispatch.slots()
    ours, theirs = asked(first, 3), asked(second, 1)
    await turn()
    assert [t.done() for t in ours] == [True, True, False] and theirs[0].done()
    assert (first.taken, first.waiting, second.taken) == (2, 1, 1)
    first.release()
    await turn()
    assert ours[2].done() and (first.taken, first.waiting) == (2, 0)


async def test_a_pause_holds_all_groups_back():
    dispatch = Dispatch(2)
    dispatch.pause(True)
    groups = [dispatch.slots(), dispatch.slots()]
    waiting = [task for slots in groups for task in asked(slots, 3)]
    dispatch.resize(3)
    await turn()
    assert not any(t.done() for t in waiting)
    dispatch.pause(False)
    await turn()
    assert all(t.done() for t in waiting)


async def test_a_place_that_comes_with_a_cancellation_goes_to_the_next():
    dispatch = Dispatch(1)
    slots = dispatch.slots()
    _, second, third = asked(slots, 3)
    await turn()
    slots.release()
    second.cancel()
    await turn()
    assert second.cancelled() and third.done() and (slots.taken, slots.waiting) == (1, 0)


async def test_no_place_is_lost_or_made_whatever_happens():
    dice = random.Random(5)
    dispatch = Dispatch(3)
    slots = dispatch.slots()
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        await slots.acquire()
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0)
        finally:
            running -= 1
            slots.release()

    tasks = [asyncio.ensure_future(work()) for _ in range(300)]
    for task in tasks:
        await asyncio.sleep(0)
        if dice.random() < 0.3:
            task.cancel()
        if dice.random() < 0.1:
            dispatch.pause(dice.random() < 0.5)
        if dice.random() < 0.2:
            dispatch.resize(dice.randint(1, 3))
        assert running <= slots.taken <= 3
    dispatch.pause(False)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (running, slots.taken, slots.waiting) == (0, 0, 0) and most <= 3
