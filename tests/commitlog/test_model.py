"""A model of the whole log: the guarantees hold for every sequence of events.

Every message has a number in its body. After each start: what was acknowledged is there, byte for
byte, once, in order; what was not is there whole or not at all; queues are dense; the engine's
queue offsets equal those of a scan of the log. A follower connects and disconnects throughout: what
it stores is always the log's own history, and what was confirmed to it under sync flush is not cut.
"""

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from stratamq_commitlog.messages import BatchResult, PutResult

from stratamq.files.simulated import SimulatedCrash, random_choice
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.frame import Frame
from stratamq.formats.hosts import encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import check_property_crc
from tests.support.listeners import Listener
from tests.support.logs import BORN, Store, batch_of, message, queue_table, raw_frame
from tests.support.walkers import WalkersHere

topics = st.sampled_from(["a", "bb", "topic-c"])
queues = st.integers(0, 3)
sizes = st.integers(0, 330)
seeds = st.integers(0, 2**32)


class CommitLogModel(RuleBasedStateMachine):
    @initialize(
        segment=st.sampled_from([600, 1024, 4096, 5000, 16384]),
        sync=st.booleans(),
        checksum=st.booleans(),
        ahead=st.booleans(),
        seed=seeds,
    )
    def begin(self, segment: int, sync: bool, checksum: bool, ahead: bool, seed: int) -> None:
        self.sync = sync
        self.store = Store(
            segment,
            seed=seed,
            flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH",
            flush_interval_ms=700,
            property_checksum=checksum,
            snapshot_interval_ms=1_500,
        )
        if ahead:
            self.store.new_walkers = WalkersHere
        self.largest = min(330, segment - 300)
        self.shape = FrameShape(encode_host(BORN), property_checksum=checksum)
        self.number = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """By number: physical and queue offset of what is acknowledged now."""
        self.wholes: list[list[int]] = []
        """Batches that a kill must leave whole or absent."""
        self.seen: list[bytes] = []
        """All frames that were ever in the log and not lost, as they were before the last end."""
        self.copied = bytearray()
        """What the follower has applied: the log's bytes from 0."""
        self.followed = (0, 0)
        self.listener: Listener | None = None
        self.store.start()

    # --- requests ---

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%08d" % self.number + bytes(min(size, self.largest)).replace(b"\0", b".")

    def expect(self, numbers: list[int], results: list[PutResult], waits: bool = True) -> None:
        for number, result in zip(numbers, results, strict=True):
            if result.status is SendStatus.PUT_OK and waits:
                self.acknowledged[number] = (result.physical_offset, result.queue_offset)

    def numbers_from(self, first: int) -> list[int]:
        return list(range(first + 1, self.number + 1))

    @rule(
        topic=topics,
        queue=queues,
        all_sizes=st.lists(sizes, min_size=1, max_size=4),
        atomic=st.booleans(),
        extra=st.sampled_from(["", "delay", "half", "no wait", "properties"]),
    )
    def put(self, topic: str, queue: int, all_sizes: list[int], atomic: bool, extra: str) -> None:
        fields: dict[str, Any] = {
            "delay": {"delay_level": 2},
            "half": {"half": True},
            "no wait": {"wait_store_ok": False},
            "properties": {"properties": {"KEYS": "k1 k2", "long": "v" * min(700, self.largest)}},
        }.get(extra, {})
        first = self.number
        messages = [message(self.body(size), topic, queue, **fields) for size in all_sizes]
        numbers = self.numbers_from(first)
        if atomic:
            self.wholes.append(numbers)
        self.store.log.put(
            messages, atomic, lambda results: self.expect(numbers, results, extra != "no wait")
        )

    @rule(
        runs=st.lists(
            st.tuples(topics, queues, st.lists(sizes, min_size=1, max_size=3)),
            min_size=1,
            max_size=3,
        )
    )
    def batch(self, runs: list[tuple[str, int, list[int]]]) -> None:
        first = self.number
        made = batch_of(
            [(topic, queue, [self.body(size) for size in some]) for topic, queue, some in runs],
            shape=self.shape,
        )
        numbers = self.numbers_from(first)
        self.wholes.append(numbers)

        def done(result: BatchResult) -> None:
            if result.status is not SendStatus.PUT_OK:
                return
            at, index = result.physical_offset, 0
            for run, queue_offset in zip(made.runs, result.first_queue_offsets, strict=True):
                for offset in range(run.count):
                    self.acknowledged[numbers[index]] = (at, queue_offset + offset)
                    at += int(made.lengths[index])
                    index += 1

        self.store.log.puts.batch(made, done)

    @rule(topic=topics, size=sizes, kind=st.sampled_from([0, 4, 8, 12]))
    def raw(self, topic: str, size: int, kind: int) -> None:
        first = self.number
        frame = raw_frame(self.body(size), topic, sys_flag=kind)
        numbers = self.numbers_from(first)
        self.store.log.put_raw([frame], lambda results: self.expect(numbers, results))

    # --- progress ---

    @rule()
    def run_pass(self) -> None:
        self.store.step()

    @rule(steps=st.integers(1, 6))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.store.scheduler.run_one()

    @rule()
    def settle(self) -> None:
        self.store.settle()

    @rule(milliseconds=st.sampled_from([1, 100, 800, 3_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.store.clock.advance_ms(milliseconds)
        self.store.log.tick()

    @rule(jump=st.sampled_from([-5_000, -1, 10]))
    def wall_clock_jumps(self, jump: int) -> None:
        self.store.clock.set_wall_ms(self.store.clock.wall_ms() + jump)

    @rule()
    def no_space_for_a_segment(self) -> None:
        self.store.disk.fail("create.allocate", "commitlog/*", error=28)

    # --- a follower ---

    @rule()
    def follow(self) -> None:
        """Listen to everything there is; connect first if the log was restarted since."""
        if self.listener is None:
            generation, position = self.followed
            self.listener = Listener(self.store, generation=generation, position=position)
            kept = self.listener.opened.cut_to
            if self.sync:
                assert kept == position
            del self.copied[kept:]
            assert self.copied == self.log_bytes(kept)
        self.listener.listen()
        self.copied[:] = self.log_bytes(self.listener.position)
        self.followed = (self.store.log.generation, self.listener.position)

    def log_bytes(self, end: int) -> bytes:
        return b"".join(self.store.segments().values())[:end]

    # --- ends of life ---

    def end_of_life(self) -> None:
        """What the log showed before it ended; nothing that waits is answered any more."""
        self.seen = self.store.frame_bytes()
        self.listener = None

    def forget_what_was_not_promised(self) -> None:
        """A power loss may leave any pages of a batch that was not acknowledged."""
        self.wholes.clear()
        if not self.sync:
            self.acknowledged.clear()

    @rule()
    def kill(self) -> None:
        self.end_of_life()
        self.store.kill()
        self.start()
        if self.store.disk.faults == []:
            assert self.store.frame_bytes() == self.seen

    @rule(seed=seeds)
    def power_loss(self, seed: int) -> None:
        self.end_of_life()
        self.store.power_loss(random_choice(random.Random(seed)))
        self.forget_what_was_not_promised()
        self.start()

    @rule()
    def stop(self) -> None:
        self.store.settle()
        self.end_of_life()
        self.store.stop()
        self.start()
        assert self.store.frame_bytes() == self.seen

    @rule(call=st.integers(1, 40), seed=seeds)
    def power_loss_in_recovery(self, call: int, seed: int) -> None:
        self.end_of_life()
        self.store.power_loss(random_choice(random.Random(seed)))
        self.forget_what_was_not_promised()
        self.store.disk.clear_faults()
        self.store.disk.crash_at(self.store.disk.calls + call)
        try:
            self.store.start()
        except SimulatedCrash:
            self.store.power_loss(random_choice(random.Random(seed + 1)))
        self.store.disk.clear_faults()
        if self.store.log is None:
            self.store.start()
        self.check()

    @rule(partial=st.booleans(), evict=st.booleans(), lose=st.booleans(), seed=seeds)
    def flush_fails(self, partial: bool, evict: bool, lose: bool, seed: int) -> None:
        """The store stops writing; a restart finds what the disk, or its cache, still has."""
        self.store.disk.clear_faults()
        self.store.settle()
        self.store.disk.fail("flush", "commitlog/*", partial=partial)
        self.store.put_all(message(self.body(20)))
        self.store.pass_time(800)
        assert self.store.log.commit.failure is not None
        refused = self.store.put_all(message(self.body(20)))
        assert refused[0].status is SendStatus.SERVICE_NOT_AVAILABLE
        self.store.disk.clear_faults()
        self.end_of_life()
        if evict or lose:
            self.forget_what_was_not_promised()
        if evict:
            self.store.disk.evict(random.Random(seed))
        if lose:
            self.store.power_loss(random_choice(random.Random(seed)))
        else:
            self.store.kill()
        self.start()

    def start(self) -> None:
        self.store.disk.clear_faults()
        self.store.start()
        self.check()

    def check(self) -> None:
        frames, raws = self.store.frames(), self.store.frame_bytes()
        assert raws == self.seen[: len(raws)]
        by_number = {int(frame.body[:8]): frame for frame in frames}
        assert list(by_number) == sorted(by_number)
        assert len(by_number) == len(frames)
        for number, (offset, queue_offset) in self.acknowledged.items():
            frame = by_number[number]
            assert (frame.physical_offset, frame.queue_offset) == (offset, queue_offset)
        for whole in self.wholes:
            assert len({number in by_number for number in whole}) == 1
        assert {key: n for key, n in self.store.queues().items() if n} == queue_table(frames)
        end = self.store.end()
        assert all(
            not any(raw[max(0, end - base) :])
            for base, raw in self.store.segments().items()
            if base + len(raw) > end
        )
        # Recovery made all of it durable: a power loss right now takes nothing.
        after = Store(self.store.log.segment_bytes, disk=self.store.disk.image(lambda item: False))
        assert after.frame_bytes() == raws
        self.seen = raws

    # --- at all times ---

    @invariant()
    @precondition(lambda self: hasattr(self, "store") and self.store.log is not None)
    def the_log_is_in_order(self) -> None:
        frames = self.store.frames()
        queue_offsets: dict[tuple[str, int], int] = {}
        newest = 0
        for frame in frames:
            assert isinstance(frame, Frame)
            assert frame.store_timestamp_ms >= newest
            newest = frame.store_timestamp_ms
            if frame.sys_flag & 0xC in (0, 8):
                key = (frame.topic, frame.queue_id)
                assert frame.queue_offset == queue_offsets.get(key, 0)
                queue_offsets[key] = frame.queue_offset + 1
            else:
                assert frame.queue_offset == 0
        offsets = self.store.log.offsets
        assert offsets.minimum <= offsets.flushed <= offsets.appended
        assert offsets.confirmed <= (offsets.flushed if self.sync else offsets.appended)
        if self.store.settings["property_checksum"]:
            assert False not in map(check_property_crc, self.store.frame_bytes())

    def teardown(self) -> None:
        if getattr(self, "store", None) is None or self.store.log is None:
            return
        self.store.disk.clear_faults()
        self.store.settle()
        self.end_of_life()
        self.store.kill()
        self.start()


TestCommitLogModel = CommitLogModel.TestCase
TestCommitLogModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
