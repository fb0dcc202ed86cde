"""The result of a walk ahead of recovery equals that of recovery itself, or is discarded."""

import io
import os
import pickle
import random
import signal
import threading
from dataclasses import replace

import pytest
from stratamq_commitlog.recovery import walker_process
from stratamq_commitlog.recovery.inspection import Evidence, inspect
from stratamq_commitlog.recovery.log_walk import SURVEYED, SegmentWalk, Strictness, Walked
from stratamq_commitlog.recovery.recovery import recover
from stratamq_commitlog.recovery.recovery_cases import DAMAGE, WalkCase
from stratamq_commitlog.recovery.walk_ahead import (
    Task,
    WalkedSegment,
    carry_out,
    join,
    plan,
    write_again,
)
from stratamq_commitlog.recovery.walker_pool import MAX_PROCESSES, WalkerPool, processes_for
from stratamq_commitlog.running import RecoveryProgress

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock, SimulatedDisk
from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.frame import encode_blank
from tests.support.disks import write_file
from tests.support.logs import Store, body_for, raw_frame, segment_path
from tests.support.walkers import WalkersHere

SEGMENT = 2048
SEGMENTS = 7


def full_segment(base: int, offsets: dict[tuple[str, int], int], seed: int) -> bytes:
    """Frames of several queues that continue at `offsets`, and a blank."""
    chance, content = random.Random(seed), b""
    while True:
        key = (chance.choice(["orders", "other"]), chance.randrange(2))
        frame = raw_frame(
            chance.randbytes(chance.randrange(60)),
            key[0],
            queue_id=key[1],
            queue_offset=offsets.get(key, 0),
            physical_offset=base + len(content),
            store_timestamp_ms=1_000 + base + len(content),
        )
        if len(content) + len(frame) + 8 > SEGMENT:
            return (content + encode_blank(SEGMENT - len(content))).ljust(SEGMENT, b"\0")
        content += frame
        offsets[key] = offsets.get(key, 0) + 1


def a_log(seed: int = 0) -> list[bytes]:
    """Segments that follow each other; the last is used in its beginning only."""
    offsets: dict[tuple[str, int], int] = {}
    segments = [full_segment(n * SEGMENT, offsets, seed + n) for n in range(SEGMENTS)]
    segments[-1] = segments[-1][: int.from_bytes(segments[-1][:4], "big")].ljust(SEGMENT, b"\0")
    return segments


def on(files, segments: list[bytes]):
    for number, content in enumerate(segments):
        write_file(files, segment_path(number * SEGMENT), content)
    return files


EVIDENCE = Evidence(None, False, Checkpoint(0, 0, 0), 0)
UNCLEAN = replace(EVIDENCE, unclean=True)


def recovered(files, evidence: Evidence, walkers=None, progress=None):
    inspected = inspect(files, SEGMENT, None)
    return recover(files, inspected, evidence, walkers=walkers, progress=progress)


def on_disk(files) -> dict[str, bytes]:
    return {
        f"{directory}/{entry.name}": files.open(f"{directory}/{entry.name}").read(0, entry.size)
        for directory in ("commitlog", "stratamq/aside")
        for entry in files.list(directory)
    }


def both(segments: list[bytes], evidence: Evidence) -> WalkersHere:
    """Recover the same log alone and with others: the same must be found, and be on the disk."""
    alone, ahead = on(SimulatedDisk().files(), segments), on(SimulatedDisk().files(), segments)
    walkers = WalkersHere(ahead)
    assert recovered(alone, evidence) == recovered(ahead, evidence, walkers)
    assert on_disk(alone) == on_disk(ahead)
    return walkers


# --- the same is found ---


@pytest.mark.parametrize("evidence", [EVIDENCE, UNCLEAN], ids=["clean", "unclean"])
def test_of_a_whole_log_everything_but_the_first_segment_is_taken_from_others(evidence):
    walkers = both(a_log(), evidence)
    assert walkers.taken == [number * SEGMENT for number in range(1, SEGMENTS)]


@pytest.mark.parametrize("evidence", [EVIDENCE, UNCLEAN], ids=["clean", "unclean"])
def test_damage_anywhere_ends_the_log_where_it_would(evidence):
    chance = random.Random(7)
    segments = a_log()
    for _ in range(150):
        damaged = [bytearray(segment) for segment in segments]
        for _ in range(chance.randrange(1, 3)):
            segment, at = chance.choice(damaged), chance.randrange(SEGMENT - 8)
            stretch = chance.choice([1, 8, 600])
            damage = chance.choice(
                [bytes(stretch), chance.randbytes(stretch), encode_blank(SEGMENT - at)]
            )
            segment[at : at + len(damage)] = damage
            del segment[SEGMENT:]
        both([bytes(segment) for segment in damaged], evidence)


@pytest.mark.parametrize("number", range(1, SEGMENTS))
def test_a_queue_that_begins_anew_is_counted_and_continues(number):
    offsets: dict[tuple[str, int], int] = {}
    segments = []
    for at in range(SEGMENTS):
        if at == number:
            offsets["orders", 1] = 0
        segments.append(full_segment(at * SEGMENT, offsets, at))
    both(segments, EVIDENCE)
    strict = Strictness()
    alone, ahead = Walked(0, {}), Walked(0, {})
    files = on(SimulatedDisk().files(), segments)
    for at in range(SEGMENTS):
        task = Task(segment_path(at * SEGMENT), at * SEGMENT, strict, True, False)
        walk = SegmentWalk(files.open(task.path), task.base, alone, strict, True)
        while walk.step() is None:
            pass
        assert join(ahead, carry_out(files, task), strict)
        assert ahead == alone
    assert alone.queue_jumps == 1


def test_a_segment_of_a_lost_history_is_left_to_recovery():
    """Above the durable position a known queue's offset ends the log, at a frame inside."""
    offsets: dict[tuple[str, int], int] = {}
    full_segment(0, offsets, 0)
    strict = Strictness(durable=0, known=frozenset(offsets))
    walked = Walked(SEGMENT, dict(offsets))
    offsets["orders", 1] += 5
    files = on(SimulatedDisk().files(), [bytes(SEGMENT), full_segment(SEGMENT, offsets, 1)])
    before = replace(walked, queues=dict(walked.queues))
    task = Task(segment_path(SEGMENT), SEGMENT, replace(strict, known=frozenset()), True, False)
    found = carry_out(files, task)
    assert found.case is WalkCase.NEXT_SEGMENT
    assert not join(walked, found, strict)
    assert walked == before
    assert join(walked, found, replace(strict, known=frozenset({("orders", 0)})))


def test_a_segment_that_does_not_follow_is_not_joined():
    files = on(SimulatedDisk().files(), a_log())
    found = carry_out(files, Task(segment_path(SEGMENT), SEGMENT, SURVEYED, True, False))
    assert not join(Walked(2 * SEGMENT, {}), found, SURVEYED)


# --- what may be written again ---


def test_what_does_not_read_as_it_was_walked_is_walked_again():
    """After a failed flush the kernel may drop what it showed a moment ago."""
    segments = a_log()
    at = 3 * SEGMENT + 200

    class Dropped(WalkersHere):
        def begin(self, tasks) -> None:
            super().begin(tasks)
            file = self._files.open(segment_path(3 * SEGMENT), writable=True)
            file.write(200, bytes(8))

    files, reference = on(SimulatedDisk().files(), segments), [bytearray(one) for one in segments]
    reference[3][200:208] = bytes(8)
    found = recovered(files, UNCLEAN, Dropped(files))
    expected = recovered(on(SimulatedDisk().files(), [bytes(one) for one in reference]), UNCLEAN)
    assert found == expected
    assert found.end <= at
    assert found.end_case in DAMAGE


def test_exactly_what_was_accepted_is_written_again():
    files = on(SimulatedDisk().files(), a_log())
    path = segment_path(SEGMENT)
    found = carry_out(files, Task(path, SEGMENT, Strictness(), True, True))
    written: list[tuple[int, bytes]] = []

    class Noted:
        read = staticmethod(files.open(path).read)
        write = staticmethod(lambda position, data: written.append((position, data)))

    assert write_again(Noted(), found)
    content = files.open(path).read(0, SEGMENT)
    ends = content.index(encode_blank(8)[4:8]) + 4
    assert b"".join(data for _, data in written) == content[:ends]


# --- when others are asked ---


def planned(
    used: int, *, offset: int = 0, least_bytes: int = 0, spare: int = 2, others: int = 99
) -> list[Task]:
    files = on(SimulatedDisk().files(), a_log()[:used] + [bytes(SEGMENT)] * spare)
    paths = {n * SEGMENT: segment_path(n * SEGMENT) for n in range(used + spare)}
    walk = offset, Strictness(known=frozenset({("orders", 0)}))
    return plan(files, paths, SEGMENT, walk, pieces=True, least_bytes=least_bytes, others=others)


def test_recovery_walks_its_share_itself():
    for others, shares in [(0, []), (1, [1, 3, 5]), (2, [1, 2, 4, 5]), (9, [1, 2, 3, 4, 5, 6])]:
        assert [task.base // SEGMENT for task in planned(7, others=others)] == shares


def test_segments_that_nothing_was_written_to_are_no_work_for_others():
    assert [task.base // SEGMENT for task in planned(4)] == [1, 2, 3]
    assert planned(1) == planned(0) == []


def test_others_are_asked_only_if_there_is_enough_in_front_of_the_last_segment():
    assert len(planned(4, least_bytes=3 * SEGMENT)) == 3
    assert planned(4, least_bytes=3 * SEGMENT + 1) == []
    assert planned(2, offset=SEGMENT - 10, least_bytes=11) == []
    assert len(planned(2, offset=SEGMENT - 11, least_bytes=11)) == 1


def test_segments_in_front_of_the_walk_are_surveyed_and_no_task_knows_a_queue():
    tasks = planned(5, offset=3 * SEGMENT)
    assert [(task.strictness, task.pieces) for task in tasks[:2]] == [(SURVEYED, False)] * 2
    assert [(task.strictness, task.pieces) for task in tasks[2:]] == [(Strictness(), True)] * 2
    assert [task.next_exists for task in tasks] == [True] * 4
    assert [task.next_exists for task in planned(3, spare=0)] == [True, False]


def test_zero_means_one_process_for_each_processor_and_never_more_than_the_most():
    assert processes_for(0) == min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    assert [processes_for(number) for number in (1, 2, 4)] == [1, 2, 4]


# --- processes ---


class Eager(WalkerPool):
    least_bytes = 0


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("evidence", [EVIDENCE, UNCLEAN], ids=["clean", "unclean"])
def test_processes_find_what_one_finds_and_are_gone_afterwards(tmp_path, evidence):
    segments = a_log()
    end = end_within(segments, 5)
    at = end % SEGMENT
    segments[5] = segments[5][:at] + b"damaged!" + segments[5][at + 8 :]
    alone = on(RealFiles(tmp_path / "alone"), segments)
    ahead = on(RealFiles(tmp_path / "ahead"), segments)
    pids: list[int] = []
    walkers = Eager(tmp_path / "ahead", 3)
    done: list[tuple[int, int]] = []

    def progress(now: int, total: int) -> None:
        pids.extend(walkers.pids)
        done.append((now, total))

    expected = recovered(alone, evidence)
    assert recovered(ahead, evidence, walkers, progress) == expected
    assert on_disk(ahead) == on_disk(alone)
    assert expected.end == end
    assert len(set(pids)) == 2
    assert all(gone(pid) for pid in pids)
    assert done == sorted(done)
    assert {total for _, total in done} == {SEGMENTS * SEGMENT}
    assert {now for now, _ in done} >= {number * SEGMENT for number in range(1, 6)}
    progress = RecoveryProgress(SimulatedClock())
    for now, total in done:
        progress.update(now, total)
    assert progress.text.startswith("recovered")


def end_within(segments: list[bytes], number: int) -> int:
    """Where the frame begins that holds byte 700 of this segment."""
    at = 0
    while at + (size := int.from_bytes(segments[number][at : at + 4], "big")) <= 700:
        at += size
    return number * SEGMENT + at


@pytest.mark.parametrize("victims", [1, 2])
@pytest.mark.parametrize("evidence", [EVIDENCE, UNCLEAN], ids=["clean", "unclean"])
def test_killed_walkers_cost_nothing_but_time(tmp_path, evidence, victims):
    segments = a_log()
    alone = on(RealFiles(tmp_path / "alone"), segments)
    ahead = on(RealFiles(tmp_path / "ahead"), segments)

    class Killed(Eager):
        def begin(self, tasks) -> None:
            super().begin(tasks)
            for pid in self.pids[:victims]:
                os.kill(pid, signal.SIGKILL)

    assert recovered(ahead, evidence, Killed(tmp_path / "ahead", 3)) == recovered(alone, evidence)
    assert on_disk(ahead) == on_disk(alone)


def test_one_process_means_no_other(tmp_path):
    files = on(RealFiles(tmp_path), a_log())
    walkers = Eager(tmp_path, 1)
    walkers.begin([Task(segment_path(SEGMENT), SEGMENT, SURVEYED, True, False)])
    assert walkers.pids == []
    assert walkers.take(SEGMENT) is None
    recovered(files, EVIDENCE, walkers)


def test_a_walker_that_cannot_read_reports_it_and_continues():
    files = on(SimulatedDisk().files(), a_log())
    tasks = [
        Task(segment_path(number * SEGMENT), number * SEGMENT, SURVEYED, True, False)
        for number in (1, 40, 2)
    ]
    asked, written = io.BytesIO(b"".join(map(pickle.dumps, tasks))), io.BytesIO()
    walker_process.serve(files, asked, written)
    written.seek(0)
    answers: list[WalkedSegment | None] = [pickle.load(written) for _ in tasks]
    assert answers == [carry_out(files, tasks[0]), None, carry_out(files, tasks[2])]
    assert not written.read()


def test_answers_that_are_not_asked_for_are_passed_over(tmp_path):
    files = on(RealFiles(tmp_path), a_log())
    tasks = [
        Task(segment_path(number * SEGMENT), number * SEGMENT, SURVEYED, True, False)
        for number in range(1, SEGMENTS)
    ]
    walkers = WalkerPool(tmp_path, 3)
    try:
        walkers.begin(tasks)
        assert walkers.take(5 * SEGMENT) == carry_out(files, tasks[4])
        assert walkers.take(3 * SEGMENT) is None
        assert walkers.take(6 * SEGMENT) == carry_out(files, tasks[5])
        assert walkers.take(6 * SEGMENT) is None
    finally:
        walkers.close()


def test_a_walker_ends_with_the_pipe_to_recovery(tmp_path):
    """As it does when the log service is killed."""
    walkers = WalkerPool(on(RealFiles(tmp_path), a_log()).root, 2)
    try:
        walkers.begin([Task(segment_path(SEGMENT), SEGMENT, SURVEYED, True, False)])
        (lane,) = walkers._lanes
        assert lane._process.stdin is not None
        lane._process.stdin.close()
        assert lane._process.wait(timeout=60) == 0
    finally:
        walkers.close()


def test_a_wait_for_a_walker_ends_when_recovery_is_interrupted(tmp_path):
    """The walker blocks, as on a stalled disk; what is begun afterwards ends at once."""
    root = on(RealFiles(tmp_path), a_log()).root
    task = Task(segment_path(SEGMENT), SEGMENT, SURVEYED, True, False)
    walkers = WalkerPool(root, 2)
    try:
        walkers.begin([task])
        (pid,) = walkers.pids
        os.kill(pid, signal.SIGSTOP)
        taken: list[WalkedSegment | None] = []
        waiting = threading.Thread(target=lambda: taken.append(walkers.take(SEGMENT)))
        waiting.start()
        walkers.interrupt()
        waiting.join(60)
        # It may have answered before it was stopped.
        assert taken in ([None], [carry_out(RealFiles(root), task)])
        walkers.begin([task])
        assert walkers.take(SEGMENT) in (None, carry_out(RealFiles(root), task))
    finally:
        walkers.close()


def test_a_log_of_this_service_is_opened_by_walkers_as_alone(tmp_path):
    store = Store(4096, root=tmp_path / "store")
    store.start()
    for number in range(60):
        store.put(body_for(500 + number % 3), queue_id=number % 4)
    frames, queues = store.frames(), store.queues()
    store.kill()
    store.new_walkers = lambda files: Eager(files.root, 2)
    store.start()
    assert (store.frames(), store.queues()) == (frames, queues)
    store.stop()
