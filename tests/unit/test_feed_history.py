"""The feed: the newest Frames in order, as many as fit, and what is new since a reader last looked."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, ScrapeSample, ServerSample

FRAME = Frame(
    0.0,
    0.0,
    0,
    ServerSample("starting", None, "http://h:1", *[None] * 9),
    ScrapeSample("not yet", None, None, None),
    *[None] * 6,
)  # fmt: skip


def filled(count: int, capacity: int = 60) -> Feed:
    feed = Feed(capacity)
    for number in range(count):
        feed.publish(replace(FRAME, epoch=number))
    return feed


def epochs(frames: tuple[Frame, ...]) -> list[int]:
    return [frame.epoch for frame in frames]


def test_an_empty_feed_has_no_latest_frame() -> None:
    feed = Feed()
    assert (feed.latest, len(feed), list(feed), feed.version) == (None, 0, [], 0)
    assert feed.newer_than(0) == ()


@settings(deadline=None)
@given(count=st.integers(0, 30), capacity=st.integers(1, 10), seen=st.integers(0, 40))
def test_a_reader_gets_what_is_new_and_still_kept(count: int, capacity: int, seen: int) -> None:
    feed = filled(count, capacity)
    assert feed.version == count
    assert epochs(tuple(feed)) == list(range(max(0, count - capacity), count))
    assert epochs(feed.newer_than(seen)) == list(range(max(seen, count - capacity, 0), count))


def test_readers_may_look_while_frames_are_published() -> None:
    feed = filled(3)
    seen = []
    for frame in feed:
        feed.publish(FRAME)
        seen.append(frame.epoch)
    assert seen == [0, 1, 2]
    assert len(feed) == 6


def test_a_subscriber_gets_what_is_kept_and_then_every_frame() -> None:
    feed = filled(5, capacity=3)
    taken: list[Frame] = []
    feed.subscribe(taken.append)
    assert epochs(tuple(taken)) == [2, 3, 4]
    for number in range(5, 15):
        feed.publish(replace(FRAME, epoch=number))
    assert epochs(tuple(taken)) == list(range(2, 15))
    assert len(feed) == 3
