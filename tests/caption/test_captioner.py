"""The embedded pair over a real WebSocket: what is written, what leaves, and what happens when the link goes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_target, open_tokenizer
from edgedraft.bench.caption_live import MeasuredCaptioner
from edgedraft.caption import captioner as captioner_module
from edgedraft.caption.audio import load
from edgedraft.caption.blocking import Captioner
from edgedraft.caption.calibrating import draft_chain, listening_model
from edgedraft.caption.calibration import CalibrationKey
from edgedraft.caption.calibration_file import SHIPPED, CalibrationFile, find_calibration
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import DEFAULT_DRAFT, AsyncCaptioner
from edgedraft.caption.excerpts import spoken_part
from edgedraft.caption.features import extract
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import CaptionRequest
from edgedraft.config import EdgeConfig
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.strategy import Strategy
from edgedraft.edge.blocking import EdgeClient
from edgedraft.errors import (
    CloudUnreachableError,
    EdgedraftError,
    InvalidRequestError,
    UnsupportedError,
    VocabularyMismatchError,
)
from edgedraft.schedule.caption_catalogue import cloud_only, edge_only, exact, ugsd, ugsd_sparse
from edgedraft.sim.network import LinkDirection
from edgedraft.speech_features import LOGMEL_128, PROSODY_12, FeatureDtype
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.link import LinkProfile, RunningLink, running_link
from edgedraft.types import Exactness, OnLinkLoss, SamplingParams, TokenKind

CLIPS = Path(__file__).resolve().parents[2] / "src" / "edgedraft" / "caption" / "clips"
LANGUAGES = ("en", "zh")
NOBODY = "ws://127.0.0.1:9/v1/edgedraft"


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    target = open_target("captioner:cloud", BackendOptions())
    try:
        with running_cloud(target, open_tokenizer("captioner:cloud")) as running:
            yield running
    finally:
        target.shutdown()


@pytest.fixture
def link(cloud: RunningCloud) -> Iterator[RunningLink]:
    """A tap in the link, which can be cut."""
    with running_link("127.0.0.1", port_of(cloud), LinkProfile()) as running:
        yield running


def port_of(cloud: RunningCloud) -> int:
    return int(cloud.url.split(":")[2].split("/")[0])


def url_of(link: RunningLink) -> str:
    return f"ws://{link.host}:{link.port}/v1/edgedraft"


def clip(language: str) -> Recording:
    return load(CLIPS / f"{language}.wav")


def ask(language: str, strategy: Strategy, on_link_loss: OnLinkLoss | None = None) -> CaptionRequest:
    return CaptionRequest(language=language, strategy=strategy, on_link_loss=on_link_loss)


def captioned(url: str, language: str, *strategies: Strategy) -> list[Caption]:
    with Captioner(url) as captioner:
        return [captioner.caption(clip(language), ask(language, strategy)) for strategy in strategies]


@pytest.mark.parametrize("language", LANGUAGES)
def test_exact_is_cloud_only_token_for_token(cloud: RunningCloud, language: str) -> None:
    alone, together, held = captioned(cloud.url, language, cloud_only(), exact(), exact(draft_ahead=False))
    assert alone.answer.token_ids == together.answer.token_ids == held.answer.token_ids
    assert {alone.answer.exact, together.answer.exact} == {Exactness.BITWISE}
    assert together.account.verified_share == 1.0
    assert together.account.bytes_down < alone.account.bytes_down


@pytest.mark.parametrize("language", LANGUAGES)
def test_draft_ahead_changes_no_token_of_a_gated_caption(cloud: RunningCloud, language: str) -> None:
    for make in (ugsd, ugsd_sparse):
        threshold = 0.6
        ahead, held = captioned(
            cloud.url, language, make(threshold=threshold, rank=1), make(threshold=threshold, rank=1, draft_ahead=False)
        )
        assert ahead.answer.token_ids == held.answer.token_ids
        assert ahead.account.verified_share == held.account.verified_share
        assert ahead.answer.exact is Exactness.LOSSY


def test_without_a_word_the_gate_is_the_calibrated_one(cloud: RunningCloud) -> None:
    with Captioner(cloud.url) as captioner:
        plain, request = captioner.caption(clip("en")), captioner.settled(CaptionRequest())[0]
        known = find_calibration(
            CalibrationKey.of(captioner.draft_info.identity, GateChoice()), [CalibrationFile(SHIPPED)]
        )
    assert known is not None
    assert request.strategy == ugsd_sparse(threshold=known.threshold)
    assert request.calibrated_with == known.target == "captioner:cloud"
    (given,) = captioned(cloud.url, "en", ugsd_sparse(threshold=known.threshold))
    assert plain.answer.token_ids == given.answer.token_ids
    assert plain.answer.notices == ()


def test_a_cloud_with_another_target_than_the_calibrations_is_said(cloud: RunningCloud) -> None:
    strategy = ugsd_sparse(threshold=0.9)
    with Captioner(cloud.url) as captioner:
        same, other = (
            captioner.caption(clip("en"), CaptionRequest(strategy=strategy, calibrated_with=name))
            for name in ("captioner:cloud", "captioner:stronger")
        )
    assert same.answer.notices == ()
    assert "calibrated with captioner:stronger, and the cloud serves" in other.answer.notices[0]


def test_files_and_long_recordings_do_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: dict[str, bool] = {}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            on_loop[name] = asyncio._get_running_loop() is not None
            return function(*arguments)

        return call

    for name in ("known_calibrations", "check", "excerpts_of", "extract"):
        monkeypatch.setattr(captioner_module, name, watched(name, getattr(captioner_module, name)))
    with Captioner(NOBODY) as captioner:
        assert captioner.caption_all(clip("en")).captions
    assert on_loop == dict.fromkeys(("known_calibrations", "check", "excerpts_of", "extract"), False)


def test_what_is_not_calibrated_is_said_with_the_caption(cloud: RunningCloud) -> None:
    choice = GateChoice(lengths=BlockLengths.fixed(4))
    with Captioner(cloud.url) as captioner:
        caption = captioner.caption(clip("en"), CaptionRequest(strategy=choice))
        with pytest.raises(InvalidRequestError, match="margin was not calibrated"):
            captioner.caption(clip("en"), CaptionRequest(strategy=GateChoice(strategy="ugsd", measure="margin")))
        with pytest.raises(InvalidRequestError, match="language is 'fr'"):
            captioner.caption(clip("en"), CaptionRequest(language="fr"))
    assert "was not calibrated for captioner:edge" in caption.answer.notices[0]


def test_an_account_says_what_the_draft_alone_would_have_taken(cloud: RunningCloud) -> None:
    """So that whoever loses by asking the cloud can see it."""
    alone, together, cloud_alone = captioned(cloud.url, "en", edge_only(), exact(draft_ahead=False), cloud_only())
    assert alone.account.draft_alone_s == pytest.approx(alone.account.total_s, rel=0.8)
    assert together.account.total_s > together.account.draft_alone_s > 0.0
    assert cloud_alone.account.draft_alone_s is None


def test_an_account_adds_up(cloud: RunningCloud, link: RunningLink) -> None:
    (caption,) = captioned(url_of(link), "en", ugsd_sparse(threshold=0.9))
    account = caption.account
    kinds = [token.kind for token in caption.answer.tokens]
    assert account.num_local == kinds.count(TokenKind.LOCAL)
    assert account.num_accepted == kinds.count(TokenKind.ACCEPTED)
    assert account.num_corrections == kinds.count(TokenKind.RECOVERED)
    assert account.num_tokens == len(kinds)
    assert 0 < account.verified_share < 0.5
    assert account.share_of_pcm < 0.05
    assert account.features
    assert account.feature_bytes < account.bytes_up <= link.bytes_up
    assert account.bytes_down <= link.bytes_down
    assert all(token.entropy is not None for token in caption.answer.tokens)
    plain = caption.to_dict()
    assert plain["text"] == caption.text
    assert plain["account"]["feature_bytes"] == account.feature_bytes


def test_nothing_leaves_where_nothing_is_doubted(link: RunningLink) -> None:
    """Not a byte and not a connection, under the gate that never fires and under one that happens not to."""
    never, sure = captioned(url_of(link), "en", edge_only(), ugsd_sparse(threshold=1e-9))
    assert link.num_connections == link.bytes_up == link.bytes_down == 0
    for caption in (never, sure):
        account = caption.account
        assert account.bytes_up == account.bytes_down == account.feature_bytes == 0
        assert account.features == ""
        assert account.num_cloud_calls == 0
    assert never.text == sure.text


def test_features_go_once_for_a_caption(link: RunningLink) -> None:
    (caption,) = captioned(url_of(link), "en", exact())
    again, _ = captioned(url_of(link), "en", exact(), edge_only())
    features = extract(clip("en"), PROSODY_12, FeatureDtype.INT8)
    assert caption.account.feature_bytes == again.account.feature_bytes == features.num_bytes
    assert caption.account.num_cloud_calls > 5


# -- recordings of any length ----------------------------------------------------------------------------------------


def spliced(*parts: float | Recording) -> Recording:
    """Recordings and seconds of silence, one after another."""
    first = clip("en")
    rate_hz = round(len(first.waveform) / first.seconds)
    waveforms = [
        np.zeros(round(part * rate_hz), np.float32) if isinstance(part, float) else part.waveform for part in parts
    ]
    return dataclasses.replace(first, waveform=np.concatenate(waveforms))


def test_silence_around_speech_is_not_heard() -> None:
    """The embedded pair learnt from clips with at most 0.3 s of it; with more it would hear another pace."""
    around = spliced(2.0, clip("en"), 3.0)
    with Captioner(NOBODY) as captioner:
        found = captioner.caption_all(around, ask("en", edge_only()))
        spoken = captioner.caption(spoken_part(around), ask("en", edge_only()))
    (only,) = found.excerpts
    assert only.caption is not None
    assert only.caption.text == spoken.text
    assert found.seconds_used == pytest.approx(clip("en").seconds, abs=0.6)
    with listening_model(DEFAULT_DRAFT) as (draft, tokenizer):
        of_all, of_speech = (draft_chain(draft, tokenizer, each, "en", 128) for each in (around, spoken_part(around)))
    assert of_all == of_speech


def test_a_long_recording_is_captioned_piece_by_piece() -> None:
    long = spliced(clip("en"), 1.0, clip("zh"))
    with Captioner(NOBODY) as captioner:
        found = captioner.caption_all(long, ask("en", edge_only()), window_s=max(clip("en").seconds, 4.0) + 0.9)
    assert len(found.captions) == len(found.excerpts) >= 2
    assert found.excerpts[0].start_s < found.excerpts[0].end_s <= found.excerpts[1].start_s
    assert 0 < found.seconds_used <= long.seconds


def test_of_a_silent_recording_nothing_is_said_and_nothing_leaves(link: RunningLink) -> None:
    with Captioner(url_of(link)) as captioner:
        found = captioner.caption_all(spliced(3.0), ask("en", exact()))
    assert found.captions == []
    assert found.check.notices
    assert link.num_connections == 0


# -- the link --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [ugsd_sparse(), ugsd(threshold=0.5)], ids=lambda strategy: strategy.name)
def test_without_a_cloud_the_edge_goes_on_alone_and_says_so(strategy: Strategy) -> None:
    alone, (local,) = captioned(NOBODY, "en", strategy), captioned(NOBODY, "en", edge_only())
    assert alone[0].text == local.text
    assert alone[0].account.num_unverified > 0
    assert any("out of reach" in notice for notice in alone[0].answer.notices)


def test_exact_captions_need_their_cloud(cloud: RunningCloud) -> None:
    with Captioner(NOBODY) as captioner:
        with pytest.raises(CloudUnreachableError, match=r"^no cloud at"):
            captioner.caption(clip("en"), ask("en", exact()))
        alone = captioner.caption(clip("en"), ask("en", exact(), OnLinkLoss.LOCAL))
        assert alone.answer.exact is Exactness.LOSSY
        with pytest.raises(CloudUnreachableError):
            captioner.caption(clip("en"), ask("en", cloud_only()))


async def cut_after(
    link: RunningLink, num_pieces: int, request: CaptionRequest, *, draft_step_s: float = 0.0
) -> Caption:
    opening = MeasuredCaptioner(url_of(link), draft=DEFAULT_DRAFT, draft_step_s=draft_step_s)
    async with opening as captioner, captioner.stream(clip("en"), request) as stream:
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == num_pieces:
                await asyncio.to_thread(link.cut)
        return stream.caption


@pytest.mark.parametrize("num_pieces", [1, 2, 4])
def test_a_caption_that_waits_for_its_link_is_the_same_caption(
    cloud: RunningCloud, link: RunningLink, num_pieces: int
) -> None:
    (wanted,) = captioned(cloud.url, "en", exact())
    caption = asyncio.run(cut_after(link, num_pieces, ask("en", exact())))
    assert caption.answer.token_ids == wanted.answer.token_ids
    assert caption.answer.exact is Exactness.BITWISE
    assert caption.account.feature_bytes == wanted.account.feature_bytes, "resumed, not opened again"


def test_a_caption_that_goes_on_alone_comes_back(cloud: RunningCloud) -> None:
    """Everything is doubted, so every token between the cut and the return is one that should have been verified."""
    # A long way there, so that a question is out when the link is cut; a slow edge, so that it is not done too soon.
    with running_link("127.0.0.1", port_of(cloud), LinkProfile.symmetric(rtt_s=0.06)) as link:
        caption = asyncio.run(cut_after(link, 1, ask("en", exact(), OnLinkLoss.LOCAL), draft_step_s=0.02))
    kinds = [token.kind for token in caption.answer.tokens]
    assert caption.account.num_unverified == kinds.count(TokenKind.LOCAL) > 0
    assert kinds[-1] is not TokenKind.LOCAL
    assert caption.answer.exact is Exactness.LOSSY
    assert caption.answer.notices


def test_a_cloud_that_was_replaced_is_given_the_features_again() -> None:
    target = open_target("captioner:cloud", BackendOptions())

    async def work(own: RunningCloud, url: str) -> Caption:
        async with AsyncCaptioner(url) as captioner, captioner.stream(clip("en"), ask("en", exact())) as stream:
            await anext(stream)
            assert own.call(lambda: len(own.sessions)) == 1
            await asyncio.to_thread(own.restart)
            async for _ in stream:
                pass
            return stream.caption

    with running_cloud(target, open_tokenizer("captioner:cloud")) as own:
        (wanted,) = captioned(own.url, "en", cloud_only())
        # A long way there, so that the caption is not finished before its cloud is.
        with running_link("127.0.0.1", port_of(own), LinkProfile.symmetric(rtt_s=0.04)) as link:
            caption = asyncio.run(work(own, url_of(link)))
        own.until(lambda sessions: len(sessions) == 0)
    target.shutdown()
    assert caption.answer.token_ids == wanted.answer.token_ids
    assert caption.account.feature_bytes == 2 * wanted.account.feature_bytes


def test_a_cloud_that_was_being_called_was_called() -> None:
    """Also where the caption is left before anybody has answered."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the caller leaves
        writer.close()

    async def work() -> Caption:
        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with AsyncCaptioner(f"ws://127.0.0.1:{port}/v1/edgedraft") as captioner:
            stream = captioner.stream(clip("en"), ask("en", ugsd_sparse(threshold=0.99)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0), stream:
                    async for _ in stream:
                        pass
            while await stream._running.next_piece() is not None:
                pass
        silent.close()
        return stream.caption

    caption = asyncio.run(work())
    assert caption.account.bytes_up == 0
    assert caption.account.called_cloud


def test_leaving_a_stream_frees_the_session(cloud: RunningCloud) -> None:
    async def work() -> None:
        async with AsyncCaptioner(cloud.url) as captioner:
            async with captioner.stream(clip("en"), ask("en", exact())) as stream:
                await anext(stream)
            again = await captioner.caption(clip("en"), ask("en", edge_only()))
            assert again.account.num_tokens > 10

    asyncio.run(work())
    cloud.until(lambda sessions: len(sessions) == 0)


def test_many_captions_at_once(cloud: RunningCloud) -> None:
    async def work() -> None:
        async with AsyncCaptioner(cloud.url) as captioner:
            requests = [ask(language, strategy) for language in LANGUAGES for strategy in (exact(), cloud_only()) * 2]
            found = await asyncio.gather(*(captioner.caption(clip(each.language or "en"), each) for each in requests))
        for language in LANGUAGES:
            assert len({caption.text for caption in found if caption.language == language}) == 1

    asyncio.run(work())


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_cloud_with_another_encoder_is_refused_before_anything_is_sent(
    cloud: RunningCloud, link: RunningLink
) -> None:
    with Captioner(url_of(link)) as captioner:
        request = CaptionRequest(language="en", strategy=exact(), features=LOGMEL_128)
        with pytest.raises(UnsupportedError, match=r"whisper-logmel-128.*listens to"):
            captioner.caption(clip("en"), request)
        assert link.bytes_up < 1500, "a handshake, and nothing of 40 kB of log-mel"
        assert captioner.caption(clip("en"), ask("en", exact())).text, "the next caption is not disturbed"


def test_what_the_model_cannot_take_at_once_is_refused(cloud: RunningCloud) -> None:
    recording = clip("en")
    long = Recording(waveform=np.tile(recording.waveform, 6), source=recording.source)
    with Captioner(cloud.url) as captioner:
        with pytest.raises(InvalidRequestError, match=r"recording is .* s long; legal: up to 12 s") as caught:
            captioner.caption(long, ask("en", edge_only()))
        assert "caption_all" in caught.value.remedy
        assert len(captioner.caption_all(long, ask("en", edge_only())).captions) > 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_tokens": 2.5}, "max_tokens is 2.5; legal: int"),
        ({"max_tokens": True}, "max_tokens is True; legal: int"),
        ({"on_link_loss": "x"}, "on_link_loss is 'x'; legal: OnLinkLoss or None"),
        ({"strategy": "ugsd"}, "strategy is 'ugsd'; legal: Strategy or GateChoice"),
        ({"dtype": "int8"}, "dtype is 'int8'; legal: FeatureDtype"),
        ({"features": "logmel"}, "features is 'logmel'; legal: FeatureSpec or None"),
        ({"language": 5}, "language is 5; legal: str or None"),
        ({"sampling": 3}, "sampling is 3; legal: SamplingParams"),
        ({"calibrated_with": None}, "calibrated_with is None; legal: str"),
    ],
)
def test_fields_of_another_type_are_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        CaptionRequest(**fields)


@pytest.mark.parametrize("recording", ["hello.wav", np.zeros(16_000, np.float32), None])
def test_what_is_no_recording_is_refused(recording: Any) -> None:
    with Captioner() as captioner:
        for caption in (captioner.caption, captioner.caption_all):
            with pytest.raises(InvalidRequestError, match=r"recording is .*; legal: Recording"):
                caption(recording)
        with pytest.raises(InvalidRequestError, match="request is dict; legal: CaptionRequest"):
            captioner.caption(clip("en"), {})  # type: ignore[arg-type]


def test_a_client_of_text_is_told_that_this_cloud_listens(cloud: RunningCloud) -> None:
    with (
        EdgeClient(cloud.url, draft=None, tokenizer="captioner:cloud") as client,
        pytest.raises(UnsupportedError, match="listens to speech"),
    ):
        client.generate(prompt_ids=[5, 6], strategy="cloud-only", max_tokens=4)


def test_a_cloud_of_text_is_refused() -> None:
    spec = "toy:vocab=300,seed=3"
    target = open_target(spec, BackendOptions())
    request = ask("en", ugsd_sparse(threshold=0.99), OnLinkLoss.LOCAL)
    with (
        running_cloud(target, open_tokenizer(spec)) as own,
        Captioner(own.url) as captioner,
        pytest.raises(VocabularyMismatchError),
    ):
        captioner.caption(clip("en"), request)
    target.shutdown()


def test_requests_that_cannot_be_obeyed() -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens is 0"):
        CaptionRequest(max_tokens=0)
    with pytest.raises(UnsupportedError, match="temperature"):
        CaptionRequest(strategy=exact(), sampling=SamplingParams(temperature=0.7))
    with Captioner(NOBODY) as captioner, pytest.raises(InvalidRequestError, match="fr"):
        captioner.caption(clip("en"), ask("fr", edge_only()))


def test_a_draft_of_text_is_refused_when_it_is_opened() -> None:
    with pytest.raises(UnsupportedError, match="model of text"), Captioner(NOBODY, draft="toy:vocab=300,seed=3"):
        pass


def test_a_captioner_that_is_not_open_says_how() -> None:
    with pytest.raises(EdgedraftError, match="with Captioner"):
        Captioner(NOBODY).caption(clip("en"))
    captioner = AsyncCaptioner(config=EdgeConfig(url=NOBODY))
    with pytest.raises(EdgedraftError, match="not open"):
        asyncio.run(captioner.caption(clip("en")))


def test_two_recordings_give_two_captions(cloud: RunningCloud) -> None:
    """The audio is heard: noise in place of the speech changes what is said of it."""
    recording = clip("en")
    noise = np.random.default_rng(0).normal(scale=0.1, size=len(recording.waveform)).astype(np.float32)
    other = Recording(waveform=noise, source=recording.source)
    with Captioner(cloud.url) as captioner:
        for strategy in (edge_only(), cloud_only()):
            one = captioner.caption(recording, ask("en", strategy))
            two = captioner.caption(other, ask("en", strategy))
            assert one.text != two.text


def test_features_may_take_longer_than_the_cloud_may_be_silent(cloud: RunningCloud) -> None:
    """On a link of 1,500 bytes a second: nothing is given up, or asked for again, while the question is on its way."""
    slow = LinkProfile(up=LinkDirection(bytes_per_s=1500.0))
    (wanted,) = captioned(cloud.url, "en", exact())
    with running_link("127.0.0.1", port_of(cloud), slow) as link:
        config = EdgeConfig(url=url_of(link), silence_s=0.12)
        with Captioner(config=config) as captioner:
            caption = captioner.caption(clip("en"), ask("en", exact()))
    assert caption.answer.token_ids == wanted.answer.token_ids
    counters = caption.answer.record.counters
    assert counters.num_reopens == counters.num_resumes == counters.num_unverified == 0
