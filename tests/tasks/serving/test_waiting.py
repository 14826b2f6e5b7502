"""How many inputs may wait, and which are computed together next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from tokenizers import Encoding

from tasks.inference.packaged_backends import padded_length, padded_rows
from tasks.serving.waiting import Input, Request, Shares, Waiting
from tests.tasks.encoder.samples import tokenizer

TOTAL = 65536


@cache
def encoded(length: int) -> Encoding:
    """An input of so many tokens."""
    return tokenizer().encode(" ".join(["good"] * (length - 2)))


def waiting(requests: Sequence[Sequence[int]], batch_tokens: int = 2048) -> tuple[Waiting, list[Request]]:
    """Let requests with inputs of these lengths wait."""
    queue = Waiting(batch_tokens, Shares(TOTAL))
    return queue, [add(queue, lengths) for lengths in requests]


def add(queue: Waiting, lengths: Sequence[int], client: str = "") -> Request:
    request = Request([encoded(length) for length in lengths], 1, client)
    queue.add(request)
    return request


def lengths(batch: Sequence[Input]) -> list[int]:
    return [len(each.encoding) for each in batch]


def test_the_oldest_determines_the_length() -> None:
    queue, _ = waiting([[20], [60], [18, 30], [8]])
    assert lengths(queue.take()) == [20, 18]
    assert lengths(queue.take()) == [60]
    assert lengths(queue.take()) == [8]
    assert lengths(queue.take()) == [30]  # the second one of its request
    assert queue.take() == []


def test_a_batch_stays_within_the_budget_with_its_padding() -> None:
    queue, _ = waiting([[18] * 7], batch_tokens=100)
    assert lengths(queue.take()) == [18] * 5  # padded to 20 each
    assert lengths(queue.take()) == [18, 18]


def test_threads_that_wait_share_what_there_is() -> None:
    queue, _ = waiting([[20] * 7])
    assert lengths(queue.take(threads=2)) == [20] * 4
    assert lengths(queue.take()) == [20] * 3
    queue, _ = waiting([[20]])
    assert lengths(queue.take(threads=2)) == [20]


def test_a_large_request_does_not_keep_a_small_one_waiting() -> None:
    queue, (large,) = waiting([[20] * 100], batch_tokens=200)
    for _ in range(3):
        assert {each.request for each in queue.take()} == {large}
    small = Request([encoded(10)], outputs=1)
    queue.add(small)
    taken = [queue.take() for _ in range(3)]
    assert small in [each.request for batch in taken for each in batch]


def test_two_large_requests_take_turns() -> None:
    queue, requests = waiting([[20] * 40, [20] * 40], batch_tokens=200)
    for _ in range(5):
        queue.take()
    done = [sum(len(each) for each in request.encodings) - request.waiting for request in requests]
    assert abs(done[0] - done[1]) <= 200


def test_clients_take_turns_however_many_requests_they_have() -> None:
    queue = Waiting(200, Shares(TOTAL))
    many = [add(queue, [20] * count, "many") for count in (1, 5, 1, 40, 3)]
    queue.take()
    few = add(queue, [20] * 40, "few")
    for _ in range(4):
        queue.take()
    done = [sum(map(len, request.encodings)) - request.waiting for request in (*many, few)]
    assert abs(sum(done[:5]) - done[5]) <= 40
    assert done[0] == done[2] == 20 and done[4] == 60  # and the requests of the first one take turns too
    while queue.take():
        pass
    assert queue.shares.taken == 0


def test_what_is_ahead_is_what_is_computed_before() -> None:
    queue = Waiting(200, Shares(TOTAL))
    assert queue.ahead("new", 20) == 20
    add(queue, [20] * 100, "large")
    for number in range(10):
        add(queue, [20], f"client {number}")
    assert queue.ahead("new", 20) == 20 + 11 * 20  # as much of each other client, not 2,200
    assert queue.ahead("large", 20) == 20 + 20 + 10 * 20
    small, before = add(queue, [20], "new"), queue.shares.taken
    while small.waiting:
        queue.take()
    assert before - queue.shares.taken <= 20 + 11 * 20 + 200  # and a batch


@pytest.mark.parametrize("longest", [64, 100, 384, 512])
def test_no_batch_is_beyond_the_budget_when_rows_are_added(longest: int) -> None:
    for length in {min(padded_length(tokens), longest) for tokens in range(4, longest + 1)}:
        for rows in range(1, 20):
            queue, _ = waiting([[length]] * rows)
            while batch := queue.take():
                assert len(batch) == 1 or padded_rows(len(batch)) * length <= 2048


def test_an_input_beyond_the_budget_goes_alone() -> None:
    queue, _ = waiting([[90], [90]], batch_tokens=64)
    assert lengths(queue.take()) == lengths(queue.take()) == [90]


def test_large_batches_need_no_empty_rows_and_nobody_is_overtaken() -> None:
    queue, requests = waiting([[10]] * 27)
    batches = [queue.take() for _ in range(3)]
    assert [len(batch) for batch in batches] == [24, 3, 0]
    assert [each.request for batch in batches for each in batch] == requests


def test_the_inputs_of_a_request_that_has_gone_are_not_computed() -> None:
    queue, (first, second) = waiting([[10, 10, 40], [12]])
    queue.remove(first)
    assert queue.shares.taken == 12
    assert [each.request for each in queue.take()] == [second]
    assert queue.take() == [] and queue.shares.taken == 0


def test_every_input_is_taken_once_and_tokens_are_counted() -> None:
    random = np.random.default_rng(0)
    queue, requests = waiting([random.integers(3, 64, random.integers(1, 9)).tolist() for _ in range(60)])
    assert queue.shares.taken == sum(request.waiting for request in requests)
    taken = []
    while batch := queue.take():
        assert len(set(map(padded_length, lengths(batch)))) == 1
        taken += [(each.request, each.place) for each in batch]
    assert len(taken) == len(set(taken)) == sum(len(request.encodings) for request in requests)
    assert queue.shares.taken == 0 and not any(request.waiting for request in requests)


def test_inputs_without_tokens_are_taken_too() -> None:
    queue = Waiting(2048, Shares(TOTAL))
    request = Request([encoded(20), Encoding(), Encoding()], 1)
    queue.add(request)
    assert sorted(lengths(queue.take()) + lengths(queue.take())) == [0, 0, 20]
    assert queue.take() == [] and queue.shares.taken == request.waiting == 0


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
