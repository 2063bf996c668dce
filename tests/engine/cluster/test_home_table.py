"""The table that assigns replicas to workers, when workers are lost or join."""

from dpexec.engine.cluster.home_table import HomeTable


def test_lost_replicas_go_to_the_others():
    homes = HomeTable("abc").among("ac")
    assert homes.address == ["a", "a", "c"]
    assert homes.workers == {"a": (0, 1), "c": (2,)}


def test_replica_goes_back_and_others_stay():
    assert HomeTable("aac").among("acd").address == ["a", "d", "c"]


def test_new_workers_take_the_places_of_lost_ones():
    assert HomeTable("abc").among("bcd").address == ["d", "b", "c"]
    assert HomeTable("aabbcc").among("ade").address == ["a", "a", "d", "d", "e", "e"]


def test_worker_without_replicas_changes_nothing():
    homes = HomeTable("ab")
    assert homes.among("abc").address == ["a", "b"]
    assert not homes.is_crowded("abc")


def test_blocks_stay_together_among_any_workers():
    homes = HomeTable("aabbcc")
    for living in ("b", "bc", "xyz", "cxa", "abcdefg"):
        found = homes.among(living)
        blocks = [w for i, w in enumerate(found.address) if i == 0 or w != found.address[i - 1]]
        assert len(blocks) == len(set(blocks)) and set(blocks) <= set(living)
        sizes = [len(devices) for devices in found.workers.values()]
        assert max(sizes) - min(sizes) <= 1


def test_more_workers_than_homes_are_wanted_when_they_have_several():
    assert HomeTable("aabb").is_crowded("abc") is False  # one would still have two
    assert HomeTable("aabb").is_crowded("abcd")
    assert HomeTable("aaa").is_crowded("ab")


def test_buddy_is_the_next_worker():
    homes = HomeTable("aabb")
    assert [homes.buddy(device) for device in range(4)] == ["b", "b", "a", "a"]
    assert HomeTable("aa").buddy(0) is None
