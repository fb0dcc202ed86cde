"""`cut_to`, by the table of the architecture: what a follower that connects has to drop."""

import pytest
from stratamq_commitlog.log_state import LogOffsets, RoleAndHistory, StateCell
from stratamq_commitlog.recovery.own_state import extend, make_generation, next_generation
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.roles import RoleState

from stratamq.files.simulated import keep_nothing
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import Role
from tests.support.logs import Store, message, swallow

# The log: [100, 1000) of three generations; confirmed up to 950.
GENERATIONS = [Generation(11, 0), Generation(22, 300), Generation(33, 600)]


def cut_to(generation: int, position: int, *, replicable: bool = False, minimum: int = 100) -> int:
    offsets = LogOffsets(minimum, appended=1000, flushed=980, confirmed=950, replicable=980)
    states = StateCell(RoleAndHistory(RoleState(Role.ASYNC_MASTER), tuple(GENERATIONS)))
    hub = FollowHub(4096, offsets, states)
    opened, _ = hub.open(
        "f",
        replicable=replicable,
        generation=generation,
        position=position,
        wake=lambda: swallow(None),
    )
    assert (opened.generation, opened.generation_start) == (33, 600)
    assert (opened.minimum, opened.confirmed, opened.flushed) == (minimum, 950, 980)
    return opened.cut_to


@pytest.mark.parametrize(
    ("generation", "position", "expected"),
    [
        (33, 700, 700),  # The newest: what it has is the log's.
        (33, 600, 600),
        (33, 500, 500),
        (22, 500, 500),  # An earlier one, below its end.
        (22, 600, 600),
        (22, 601, 600),  # Beyond its end: that history went no further.
        (22, 999, 600),
        (11, 250, 250),
        (11, 300, 300),
        (11, 700, 300),
        (33, 960, 950),  # Beyond what is confirmed.
        (33, 5_000, 950),  # Beyond the log.
        (44, 700, 100),  # Unknown: nothing that it has can be trusted.
        (0, 0, 100),
        (0, 700, 100),
        (33, 50, 100),  # Below the minimum: it starts empty there.
        (11, 0, 100),
        (33, -1, 100),
    ],
)
def test_a_follower_drops_what_is_not_of_this_history(generation, position, expected):
    assert cut_to(generation, position) == expected


def test_replication_goes_up_to_what_is_replicable():
    assert cut_to(33, 960, replicable=True) == 960
    assert cut_to(33, 990, replicable=True) == 980


def test_a_generation_that_begins_below_the_minimum_cuts_to_the_minimum():
    assert cut_to(22, 550, minimum=800) == 800
    assert cut_to(11, 200, minimum=800) == 800


# --- numbers ---


class Dice:
    def __init__(self, value: int) -> None:
        self.value = value

    def getrandbits(self, k: int) -> int:
        assert k == 27
        return self.value


def test_a_number_is_twelve_bits_of_term_24_of_starts_and_27_random_ones():
    generation = make_generation(5, 9, 1234, Dice((1 << 27) - 1))
    assert generation.number == (5 << 51) | (9 << 27) | ((1 << 27) - 1)
    assert generation.term == 5
    assert make_generation(4095, (1 << 24) - 1, 0, Dice(0)).number < 1 << 63


def test_the_next_start_has_a_greater_number_for_all_random_parts():
    generation = next_generation(None, 0, Dice((1 << 27) - 1))
    for _ in range(5):
        following = next_generation(generation, 0, Dice(0))
        assert following.number > generation.number
        assert following.term == generation.term
        generation = following


def test_a_new_generation_lowers_the_starts_of_those_that_were_cut():
    extended = extend(GENERATIONS, Generation(44, 400))
    assert extended == [
        Generation(11, 0),
        Generation(22, 300),
        Generation(33, 400),
        Generation(44, 400),
    ]


def test_the_list_is_bounded_and_forgets_the_oldest():
    generations = [Generation(number, number) for number in range(1_000)]
    for number in range(1_000, 1_003):
        generations = extend(generations, Generation(number, number))
    assert len(generations) == 1_000
    assert [g.number for g in generations] == list(range(3, 1_003))


# --- across real ends of life ---


def test_a_follower_keeps_what_it_has_across_clean_stops_and_kills():
    store = Store(4096)
    store.start()
    positions = []
    for end_of_life in (store.stop, store.kill, store.stop):
        store.put_all(*[message() for _ in range(5)])
        positions.append((store.log.generation, store.end()))
        end_of_life()
        store.start()
        for generation, position in positions:
            opened, _ = store.log.hub.open(
                "f", replicable=False, generation=generation, position=position, wake=lambda: None
            )
            assert opened.cut_to == position


def test_a_follower_of_what_a_power_loss_took_drops_it_even_when_the_log_has_grown_past_it():
    """The disk kept nothing of the second half, and what came then is longer: the offsets match."""
    store = Store(4096, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=1_000)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(b"kept") for _ in range(5)])
    store.pass_time(1_000)
    kept = store.end()
    store.put_all(*[message(b"lost") for _ in range(5)])
    followed = (store.log.generation, store.end())
    store.power_loss(keep_nothing)
    store.start()
    assert store.end() == kept
    store.put_all(*[message(b"new!") for _ in range(20)])
    opened, _ = store.log.hub.open(
        "f", replicable=False, generation=followed[0], position=followed[1], wake=lambda: None
    )
    assert opened.cut_to == kept


def test_a_follower_of_a_first_start_that_never_became_durable_starts_at_the_minimum():
    store = Store(4096)
    store.start()
    store.put(b"x")
    opened, _ = store.log.hub.open(
        "f", replicable=False, generation=987654321, position=98, wake=lambda: None
    )
    assert opened.cut_to == 0
