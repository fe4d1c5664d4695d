"""Streams wait for the work noted on them; events know when it was done. Work here is an object that ends on call."""

import threading
import time
import weakref

import pytest
import torch

from torch_neuronx import _C


class Work:
    """What the dispatcher notes: something that can be waited for."""

    def __init__(self, error=None):
        self.finished = threading.Event()
        self.error = error
        self.waits = 0

    def block_until_ready(self):
        self.waits += 1
        assert self.finished.wait(20)
        if self.error is not None:
            raise self.error

    def end_after(self, seconds):
        threading.Timer(seconds, self.finished.set).start()
        return self


def done():
    work = Work()
    work.finished.set()
    return work


@pytest.fixture(autouse=True)
def nothing_outstanding():
    yield
    torch.neuron.set_stream(torch.neuron.default_stream())
    torch.neuron.synchronize()


def test_synchronize_waits():
    work = Work().end_after(0.05)
    _C.note_work(0, work)
    torch.neuron.synchronize()
    assert work.finished.is_set()


def test_finished_work_is_let_go():
    work = done()
    gone = weakref.ref(work)
    _C.note_work(0, work)
    del work
    torch.neuron.synchronize()
    assert gone() is None


def test_two_threads_both_wait():
    work = Work()
    _C.note_work(0, work)
    ended = []
    threads = [threading.Thread(target=lambda: (torch.neuron.synchronize(), ended.append(1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert ended == []
    work.finished.set()
    for thread in threads:
        thread.join()
    assert ended == [1, 1, 1]


def test_waiting_lets_other_threads_run():
    work = Work()
    _C.note_work(0, work)
    threading.Thread(target=lambda: (time.sleep(0.02), work.finished.set())).start()
    torch.neuron.current_stream().synchronize()


def test_too_much_outstanding_work_is_waited_for():
    works = [done() for _ in range(200)]
    for work in works:
        _C.note_work(0, work)
    waited = sum(work.waits for work in works)
    assert 200 - 64 <= waited < 200


def test_an_error_is_raised_by_the_next_wait_and_once():
    _C.note_work(0, Work(ValueError("the op failed")).end_after(0))
    with pytest.raises(ValueError, match="the op failed"):
        torch.neuron.synchronize()
    torch.neuron.synchronize()


def test_an_error_found_early_waits_for_somebody_to_ask():
    _C.note_work(0, Work(ValueError("early")).end_after(0))
    for _ in range(64):
        _C.note_work(0, done())
    with pytest.raises(ValueError, match="early"):
        torch.neuron.synchronize()


def test_streams_do_not_wait_for_each_other():
    slow = Work()
    stream = torch.neuron.Stream()
    with torch.neuron.stream(stream):
        _C.note_work(0, slow)
    _C.note_work(0, done())
    torch.neuron.current_stream().synchronize()
    assert not slow.finished.is_set()
    slow.finished.set()
    stream.synchronize()


def test_query():
    stream = torch.neuron.current_stream()
    assert stream.query()
    work = Work()
    _C.note_work(0, work)
    assert not stream.query()
    work.finished.set()
    wait_until(stream.query)


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_current_stream():
    default, stream = torch.neuron.default_stream(), torch.neuron.Stream()
    assert torch.neuron.current_stream() == default and default.stream_id == 0
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream()))
        thread.start()
        thread.join()
        assert seen == [default]
    assert torch.neuron.current_stream() == default
    with stream:
        assert torch.accelerator.current_stream() == stream
    with torch.neuron.stream(None):
        assert torch.neuron.current_stream() == default


def test_streams_have_a_priority():
    assert torch.neuron.Stream(priority=-1).priority == -1
    assert torch.neuron.Stream().priority == 0
    assert isinstance(torch.neuron.Stream(), torch.Stream)
    assert torch.Stream(device="neuron").device.type == "neuron"


def test_streams_of_other_devices_are_refused():
    with pytest.raises(ValueError, match="expected a neuron stream"):
        torch.neuron.set_stream(torch.Stream(device="cpu"))


def test_wait_event_makes_a_stream_wait():
    slow, event = Work(), torch.neuron.Event()
    _C.note_work(0, slow)
    event.record()
    stream = torch.neuron.Stream()
    assert stream.query()
    stream.wait_event(event)
    assert not stream.query()
    slow.finished.set()
    stream.synchronize()
    assert event.query()


def test_wait_stream_makes_a_stream_wait():
    slow, stream = Work(), torch.neuron.Stream()
    _C.note_work(0, slow)
    stream.wait_stream(torch.neuron.current_stream())
    assert not stream.query()
    slow.finished.set()
    stream.synchronize()


def test_an_event_knows_only_the_work_before_it():
    event = torch.neuron.Event()
    _C.note_work(0, done())
    event.record()
    later = Work()
    _C.note_work(0, later)
    event.synchronize()
    assert event.query() and not later.finished.is_set()
    later.finished.set()


def test_an_event_that_was_never_recorded():
    event, timed = torch.neuron.Event(), torch.neuron.Event(enable_timing=True)
    assert event.query()
    event.synchronize()
    event.wait()
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.neuron.Event(enable_timing=True))


def test_elapsed_time_needs_timing():
    one, other = torch.neuron.Event(), torch.neuron.Event()
    one.record(), other.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        one.elapsed_time(other)


def test_elapsed_time_is_that_of_the_work_not_of_the_wait():
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start.record()
    _C.note_work(0, Work().end_after(0.05))
    end.record()
    time.sleep(0.3)  # nobody waits while the work ends
    end.synchronize()
    assert 40 < start.elapsed_time(end) < 200


def test_elapsed_time_of_nothing_is_short():
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start.record()
    end.record()
    assert 0 <= start.elapsed_time(end) < 50


def test_elapsed_time_of_unfinished_work_is_refused():
    start, end, slow = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True), Work()
    start.record()
    _C.note_work(0, slow)
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    slow.finished.set()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_an_event_can_be_used_again():
    event, slow = torch.neuron.Event(), Work()
    _C.note_work(0, slow)
    event.record()
    assert not event.query()
    slow.finished.set()
    torch.neuron.synchronize()
    event.record()
    assert event.query()


def test_generic_events_work_too():
    start, end = (torch.Event(device="neuron", enable_timing=True) for _ in range(2))
    start.record()
    _C.note_work(0, Work().end_after(0.02))
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 5


def test_events_are_torch_events():
    assert isinstance(torch.neuron.Event(), torch.neuron.Event)
    assert isinstance(torch.Event(device="neuron"), torch.neuron.Event)
    assert not isinstance(3, torch.neuron.Event)
    assert torch.neuron.Stream().record_event(torch.neuron.Event()).query()


def test_interprocess_events_are_refused():
    with pytest.raises(RuntimeError, match="another process"):
        torch.neuron.Event(interprocess=True)


def test_many_threads():
    def run():
        stream, event = torch.neuron.Stream(), torch.neuron.Event(enable_timing=True)
        with torch.neuron.stream(stream):
            for _ in range(200):
                _C.note_work(0, done())
                event.record()
                event.query()
            stream.synchronize()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_process_ends_with_work_outstanding(python):
    code = """
import torch, torch_neuronx
from torch_neuronx import _C
class Work:
    def block_until_ready(self):
        import time; time.sleep(0.05)
keep = torch.empty(10, device="neuron")
for _ in range(10):
    _C.note_work(0, Work())
event = torch.neuron.Event(enable_timing=True)
event.record()
event.query()
print("last line")
"""
    assert "last line" in python(code)
