"""The reader of topics: an iterator of messages."""

import logging
from collections.abc import AsyncIterator, Collection, Generator, Iterator

from stratamq.client import forks
from stratamq.client._async.calls import run_plan
from stratamq.client._async.lanes import AsyncLane, AsyncLanes
from stratamq.client.checking import checked
from stratamq.client.client_settings import ClientSettings
from stratamq.client.consuming import Range, plan_seek, refuse_paused
from stratamq.client.primitives import AsyncOnce
from stratamq.client.reading import Start
from stratamq.client.received import ReceivedMessage
from stratamq.errors import InvalidRequestError, StrataError

log = logging.getLogger(__name__)


@checked
class AsyncConsumer:
    """A reader, made by `AsyncClient.consume`: iterate, then close it, preferably by `async with`.
    One task may use it at a time.

    After a lost connection the reader continues where it was. With a group it commits the messages
    taken every `commit_interval_s`, whether messages come or not, and in `close`. A message counts
    as taken when the next one is requested, so that after a crash in between it comes again.
    Leaving `async with` without an error commits all messages given. A reader made with
    `acknowledged` commits only what was acknowledged.
    """

    def __init__(self, lanes: AsyncLanes, settings: ClientSettings) -> None:
        forks.watch(self)
        self._lanes = lanes
        self._lane: AsyncLane | None = None
        """Whose messages are given."""
        self._given: Iterator[ReceivedMessage] = iter(())
        self._broker = ""
        self._clock = settings.clock
        self._hooks = settings.hooks
        self._receives = settings.hooks.see_received
        """Something is done with each message."""
        self._moving = False
        """A lane is moving, perhaps."""
        self._closed = lanes.closed
        self._asking = False
        self._begun = AsyncOnce(lanes.begin)

    def __await__(self) -> Generator[object, None, "AsyncConsumer"]:  # async only
        """Wait until the reader knows where its queues begin and end, and return it."""
        yield from self._begun.done().__await__()
        return self

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message. A waiting task may be cancelled, by `asyncio.wait_for` for
        example: reading goes on, and the next task gets the message; no message is lost or doubled.

        InvalidRequestError when every queue that is left to read is paused."""  # async only
        self._enter()
        try:
            message = self._at_hand()
            if message is None:
                message = await self._next(None)
        finally:
            self._asking = False
        if message is None:
            raise StopAsyncIteration
        return message

    async def poll(self, timeout_s: float = 0.0) -> ReceivedMessage | None:
        """Return the next message, or None when none comes within `timeout_s`, or none is left.

        The first call also looks up the queues, however long that takes."""
        self._enter()
        try:
            return await self._next(timeout_s)
        except TimeoutError:
            return None
        finally:
            self._asking = False

    async def getmany(
        self, max_messages: int = 500, timeout_s: float = 1.0
    ) -> list[ReceivedMessage]:
        """Return at most `max_messages` messages of one queue that have arrived; wait up to
        `timeout_s` for the first. They count as taken at the next request. Empty when none came, or
        none is left."""
        if max_messages < 1:
            raise InvalidRequestError(f"max_messages is {max_messages}: ask for at least one")
        self._enter()
        try:
            message = await self._next(timeout_s)
            messages = []
            if self._lane is not None:
                self._lane.queues.hold()
            while message is not None:
                messages.append(message)
                more = len(messages) < max_messages
                message = next(self._given, None) if more else None
                if message is not None and self._receives:
                    try:
                        self._receive(message)
                    except Exception:  # noqa: BLE001 - the next caller gets it
                        self._give_back(message)
                        break
            return messages
        except TimeoutError:
            return []
        finally:
            self._asking = False

    def _give_back(self, message: ReceivedMessage) -> None:
        """It comes again, and what an interceptor raised for it: first the caller gets those before
        it."""
        assert self._lane is not None
        self._lane.queues.give_back(message)
        self._moving = self._lane.moving = True
        self._lane.end_stream()

    def _receive(self, message: ReceivedMessage) -> None:
        if self._broker:
            message.broker = self._broker
        if self._hooks.see_received:
            self._hooks.received(message)

    def _enter(self) -> None:
        if self._asking:
            raise RuntimeError("another task waits for this reader's next message")
        self._asking = True

    def _at_hand(self) -> ReceivedMessage | None:
        """The next message, if it has come. Nothing waits from here until it is given: no
        cancellation comes in between."""
        if self._moving or self._lane is None:
            return None
        self._lane.queues.release()
        if self._closed.is_set():
            return None
        message = next(self._given, None)
        if message is not None and self._receives:
            self._receive(message)
        return message

    async def _next(self, timeout_s: float | None) -> ReceivedMessage | None:
        """The next message; None behind the last. TimeoutError."""
        if self._moving:
            for lane in self._lanes.all:
                if lane.moving:
                    await self._interrupt(lane)
            self._moving = False
        end_ns = None
        while (message := self._at_hand()) is None and not self._closed.is_set():
            await self._begun.done()
            if timeout_s is None and self._lanes.paused:
                refuse_paused()
            if timeout_s is not None:
                now_ns = self._clock.monotonic_ns()
                end_ns = now_ns + int(timeout_s * 1e9) if end_ns is None else end_ns
                timeout_s = max(0.0, (end_ns - now_ns) / 1e9)
            answer = await self._lanes.response(timeout_s)
            if answer is None:
                break
            self._lane, response = answer
            self._broker = self._lane.broker
            self._receives = self._hooks.see_received or bool(self._broker)
            self._given = self._lane.queues.receive(response)
        if message is None:
            await self._commit(given=False)
        return message

    # --- where it reads ---

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The offsets behind the last message given, by (topic, queue id). InvalidRequestError when
        the reader reads several brokers: each has its own queues."""
        if len(self._lanes.all) > 1:
            raise InvalidRequestError(
                "this reader reads the queues of several brokers: choose one, "
                "connect(..., broker=NAME)"
            )
        return self._lanes.all[0].queues.positions if self._lanes.all else {}

    async def seek(
        self, to: Start, *, queues: Collection[int] | None = None, topic: str | None = None
    ) -> None:
        """Continue at `to` in all queues or in these: EARLIEST, LATEST, an offset or a time.

        The next commit stores this place for the group. An offset that a queue does not hold
        becomes the nearest one that it does. After a promotion it may be another message's: see
        `AsyncClient.pull`. InvalidRequestError for a queue that this reader does
        not read."""
        self._enter()
        try:
            await self._begun.done()
            chosen = self._chosen(queues, topic)
            offsets = [await run_plan(lane.run, plan_seek(some, to)) for lane, some in chosen]
            for (lane, ranges), places in zip(chosen, offsets, strict=True):
                await self._interrupt(lane)
                lane.queues.seek(ranges, places)
        finally:
            self._asking = False

    async def pause(
        self, queues: Collection[int] | None = None, *, topic: str | None = None
    ) -> None:
        """Stop reading these queues, or all, until `resume`; they keep their place.
        InvalidRequestError for a queue that this reader does not read."""
        await self._set_paused(queues, topic, True)

    async def resume(
        self, queues: Collection[int] | None = None, *, topic: str | None = None
    ) -> None:
        """Read these queues again, or all."""
        await self._set_paused(queues, topic, False)

    async def _set_paused(
        self, queues: Collection[int] | None, topic: str | None, paused: bool
    ) -> None:
        self._enter()
        try:
            await self._begun.done()
            for lane, ranges in self._chosen(queues, topic):
                await self._interrupt(lane)
                for one in ranges:
                    one.paused = paused
        finally:
            self._asking = False

    def _chosen(
        self, queues: Collection[int] | None, topic: str | None
    ) -> list[tuple[AsyncLane, list[Range]]]:
        """Return the lanes that read such queues, with their ranges."""
        found: list[tuple[AsyncLane, list[Range]]] = []
        refusal: InvalidRequestError | None = None
        for lane in self._lanes.all:
            try:
                found.append((lane, lane.queues.chosen(queues, topic)))
            except InvalidRequestError as error:
                refusal = error
        if not found and refusal is not None:
            raise refusal
        return found

    async def _interrupt(self, lane: AsyncLane) -> None:
        """End the stream, and forget what came and was not given: it is asked for again."""
        self._moving = lane.moving = True
        lane.end_stream()
        await lane.answers.ended()
        if lane is self._lane:
            self._given = iter(())
        lane.queues.drop_given()
        lane.moving = False

    # --- what was taken, and the end ---

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Acknowledge the message and all before it in its queue, for a reader made with
        `acknowledged`. The next regular commit, or `close`, commits them. InvalidRequestError for a
        message that this reader did not read."""
        for lane in self._lanes.all:
            if lane.broker == message.broker:
                return lane.queues.acknowledge(message)
        raise InvalidRequestError(f"this reader does not read broker {message.broker}")

    async def commit(self) -> None:
        """Commit all messages given so far for the group, including the last one."""
        await self._commit(given=True)

    async def _commit(self, *, given: bool) -> None:
        """Commit at every broker, then raise the first error."""
        failure: StrataError | None = None
        for lane in self._lanes.all:
            try:
                await lane.commit(given=given)
            except StrataError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Stop reading, from any task, and commit the messages taken. A task that waits for a
        message gets StopAsyncIteration."""
        await self._stop()
        await self._commit(given=False)

    async def __aenter__(self) -> "AsyncConsumer":
        await self._begun.done()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self._stop()
        try:
            await self._commit(given=error_type is None)
        except StrataError as error:
            if error_type is None:
                raise
            # The caller gets the first error; the messages come again.
            log.warning("offsets not committed", extra={"error": str(error)})

    async def _stop(self) -> None:
        self._closed.set()
        for lane in self._lanes.all:
            lane.end_stream()
        for lane in self._lanes.all:
            await lane.answers.ended()
