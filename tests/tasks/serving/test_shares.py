"""What clients share."""

from __future__ import annotations

from tasks.serving.shares import Shares


def test_large_requests_of_a_client_leave_room_for_small_ones() -> None:
    shares = Shares(1000)
    taken = 0
    while shares.has_room("one", 100):
        shares.take("one", 100)
        taken += 100
    assert taken == 900 and shares.has_room("one", 50)
    assert shares.has_room("two", 250) and not shares.has_room("two", 251)  # half of its share


def test_a_client_that_has_more_than_its_share_waits_for_the_others() -> None:
    shares = Shares(1000)
    shares.take("one", 500)
    assert shares.has_room("one", 250)
    with shares.held("two", 1):
        assert not shares.has_room("one", 1)
    assert shares.has_room("one", 250) and shares.taken == shares.of("one") == 500
    shares.take("one", -500)
    assert shares.taken == 0 and shares.others("two") == 0


def test_nobody_is_refused_while_less_than_half_is_taken() -> None:
    shares = Shares(1000)
    for number in range(30):
        shares.take(f"client {number}", 1)
    assert shares.has_room("new", 470) and not shares.has_room("new", 471)
