"""Workers that did not answer are known until they do."""

import asyncio

from dpexec.engine.dask import silence


def test_who_is_well_again_is_not_taken_for_silent_after_its_question_has_ended(monkeypatch):
    monkeypatch.setattr(silence, "_LATER", 0.01)
    monkeypatch.setattr(silence, "_AT_ONCE", 0.1)
    known, asked, woken = silence.Silence(), [], set()

    async def ask(worker):
        asked.append(worker)
        while worker not in woken:
            await asyncio.sleep(60)
        return True

    async def check():
        known.begin("a", ask)
        known.begin("b", ask)
        assert await known.among("ab", ask) == {"a", "b"}
        await asyncio.sleep(0.05)  # both questions have ended
        woken.add("a")
        assert await known.among("ab", ask) == {"b"}
        assert await known.among("a", ask) == frozenset()  # the other one has left
        assert asked == [*"abab"]

    asyncio.run(check())
