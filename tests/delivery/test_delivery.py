"""What the machines of the room share: snapshot, cuts, and turns."""

from stratamq_delivery.delivery import Delivery

from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord


class Machine:
    """One that always has something to append, and goes back in steps of `grain`."""

    def __init__(self, name: str, grain: int = 1) -> None:
        self.name, self.version, self.grain = name, "1", grain
        self.restored: list[dict] = []
        self.cuts: list[int] = []
        self.mine: list[str] = []
        self.first_needed: int | None = None

    def apply(self, piece) -> None: ...

    def snapshot(self):
        return {"of": self.name}

    def restore(self, document) -> None:
        self.restored.append(document)

    def cut(self, offset: int) -> int:
        self.cuts.append(offset)
        return offset - offset % self.grain

    def forget_below(self, minimum: int) -> None: ...

    def needed(self) -> int | None:
        return self.first_needed

    def begin(self) -> None: ...

    def take(self, now_ms: int, most: int):
        return [OwnRecord(self.name)] * most

    def due_ms(self) -> int | None:
        return None if self.name == "a" else 7

    def acknowledged(self, records, *, is_flushed) -> None:
        self.mine += [record.topic for record in records]

    def refused(self, record, error) -> None:
        self.mine.append(f"refused {record.topic}")


def test_each_machine_is_the_first_in_turn_and_hears_of_its_own_records():
    a, b = Machine("a"), Machine("b")
    room = Delivery([a, b], FoldPlace())
    assert [{one.topic for one in room.take(0, 5)} for _ in range(4)] == [{"a"}, {"b"}] * 2
    (of_a,), (of_b,) = room.take(0, 1), room.take(0, 1)
    room.acknowledged([of_b, of_a, of_b], is_flushed=True)
    room.refused(of_b, ValueError())
    assert (a.mine, b.mine) == (["a"], ["b", "b", "refused b"])
    assert room.due_ms() == 7


def test_a_cut_goes_back_to_where_every_machine_can():
    a, b, c = Machine("a"), Machine("b", grain=10), Machine("c", grain=4)
    assert Delivery([a, b, c], FoldPlace()).cut(37) == 20
    assert (a.cuts[-1], b.cuts[-1], c.cuts[-1]) == (20, 20, 20)


def test_a_snapshot_without_one_of_the_machines_is_folded_again():
    document = Delivery([Machine("a")], FoldPlace()).snapshot()()
    for machines, known in (([Machine("a")], True), ([Machine("a"), Machine("b")], False)):
        place = FoldPlace(generation=3, applied=100, durable=100)
        Delivery(machines, place).restore(document)
        assert machines[0].restored == [{"of": "a"} if known else {}]
        assert (place.applied, place.durable) == ((100, 100) if known else (0, 0))
        assert place.generation == (3 if known else 0)


def test_the_machine_that_is_furthest_back_says_what_the_log_must_keep():
    a, b, c = Machine("a"), Machine("b"), Machine("c")
    room = Delivery([a, b, c], FoldPlace(applied=900))
    assert room.needed_offset == 900, "nothing waits: what comes is not known"
    b.first_needed, c.first_needed = 300, 200
    assert room.needed_offset == 200
