"""The client without asyncio: same answers, and it lets go when it should."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from edgedraft import EdgeClient
from edgedraft.errors import CloudUnreachableError, EdgedraftError, InvalidRequestError, ModelError
from edgedraft.testing.cloud import RunningCloud

TargetOnly = Callable[..., list[int]]
PROMPT_IDS = list(range(20))


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_generate_and_stream_give_the_same(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    with EdgeClient(shared_cloud.url, draft=draft_spec) as client:
        answer = client.generate(prompt_ids=PROMPT_IDS, max_tokens=40)
        assert list(answer.token_ids) == target_only(PROMPT_IDS, 40)
        stream = client.stream(prompt_ids=PROMPT_IDS, max_tokens=40)
        assert "".join(piece.text for piece in stream) == answer.text == stream.answer.text
        with client.stream(prompt_ids=PROMPT_IDS, max_tokens=40) as stream:
            assert "".join(piece.text for piece in stream) == stream.answer.text == answer.text


def test_ending_the_loop_early_cancels_the_request(own_cloud: RunningCloud, draft_spec: str) -> None:
    with EdgeClient(own_cloud.url, draft=draft_spec) as client:
        for _ in client.stream(prompt_ids=PROMPT_IDS, max_tokens=900_000, ignore_eos=True):
            break
        wait_until(lambda: len(own_cloud.sessions) == 0)
        assert len(client.generate(prompt_ids=PROMPT_IDS, max_tokens=3, ignore_eos=True).token_ids) == 3


def test_an_interrupt_while_waiting_cancels_the_request(
    own_cloud: RunningCloud, draft_spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C lands in the thread that waits for the future."""
    from concurrent.futures import Future

    with EdgeClient(own_cloud.url, draft=draft_spec) as client:
        result = Future.result

        def interrupted(self: Future, timeout: float | None = None) -> object:  # type: ignore[type-arg]
            monkeypatch.setattr(Future, "result", result)
            wait_until(lambda: len(own_cloud.sessions) == 1)
            raise KeyboardInterrupt

        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.generate(prompt_ids=PROMPT_IDS, max_tokens=900_000, ignore_eos=True)
        wait_until(lambda: len(own_cloud.sessions) == 0)
        assert len(client.generate(prompt_ids=PROMPT_IDS, max_tokens=3, ignore_eos=True).token_ids) == 3


def test_several_threads_may_ask_at_once(shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly) -> None:
    with EdgeClient(shared_cloud.url, draft=draft_spec) as client:
        texts: dict[int, list[int]] = {}

        def ask(first: int) -> None:
            texts[first] = list(client.generate(prompt_ids=[first, 1], max_tokens=20).token_ids)

        threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == {first: target_only([first, 1], 20) for first in range(4)}


def test_closing_leaves_no_thread_waiting(shared_cloud: RunningCloud, draft_spec: str) -> None:
    """Whatever moment of a request the end of the loop falls into."""
    for pause_s in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016) * 3:
        client = EdgeClient(shared_cloud.url, draft=draft_spec)
        client.open()
        errors: list[BaseException] = []

        def ask_for_ever(client: EdgeClient = client, errors: list[BaseException] = errors) -> None:
            try:
                while True:
                    client.generate(prompt_ids=[1], max_tokens=1)
            except EdgedraftError as error:
                errors.append(error)

        threads = [threading.Thread(target=ask_for_ever) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(pause_s)
        client.close()
        for thread in threads:
            thread.join()
        assert len(errors) == 4


def test_whatever_still_runs_when_the_loop_ends_is_told(draft_spec: str) -> None:
    client = EdgeClient(draft=draft_spec)
    client.open()
    errors: list[BaseException] = []
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        with pytest.raises(EdgedraftError, match="the EdgeClient was closed") as caught:
            client.run(endless())
        errors.append(caught.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait()
    client.close()
    waiting.join()
    assert errors


def test_leaving_a_stream_after_the_client_was_closed_is_no_error(own_cloud: RunningCloud, draft_spec: str) -> None:
    with EdgeClient(own_cloud.url, draft=draft_spec) as client:
        with client.stream(prompt_ids=PROMPT_IDS, max_tokens=900_000, ignore_eos=True) as stream:
            next(iter(stream))
            client.close()
        stream.cancel()
        wait_until(lambda: len(own_cloud.sessions) == 0)


def test_errors_come_through_and_threads_end(draft_spec: str) -> None:
    before = threading.active_count()
    with EdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec) as client:
        with pytest.raises(CloudUnreachableError):
            client.generate("hi")
        with pytest.raises(InvalidRequestError):
            client.stream("hi", max_tokens=0)
        with pytest.raises(CloudUnreachableError):
            list(client.stream("hi"))
        assert client.generate("hi", max_tokens=2, strategy="edge-only").usage.completion_tokens == 2
    client.close()
    wait_until(lambda: threading.active_count() == before)


def test_a_draft_that_cannot_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises((ModelError, InvalidRequestError)):
        EdgeClient(draft="llamacpp:/nowhere/model.gguf").open()
    wait_until(lambda: threading.active_count() == before)


def test_a_closed_client_says_how_to_open_it(draft_spec: str) -> None:
    client = EdgeClient(draft=draft_spec)
    with pytest.raises(EdgedraftError, match="with EdgeClient"):
        client.generate("hi")
