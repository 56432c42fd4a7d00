"""A caption bench from recordings to results, by the shipped pair on a few tones in noise."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.backends.captioner_pair import write_dataset

from edgedraft.backends.base import ScoreRequest
from edgedraft.bench.caption_arm_runs import SHARE_TOLERANCE, ArmRuns
from edgedraft.bench.caption_arms import ARMS, ENDS, control
from edgedraft.bench.caption_clips import Clips, hear
from edgedraft.bench.caption_losses import losses
from edgedraft.bench.caption_models import CaptionPair, ClipMemory, ClipModels
from edgedraft.bench.caption_results import (
    FORMAT_VERSION,
    Arm,
    CaptionResults,
    ClipRecord,
    Setting,
    TimeRatio,
    read_clips,
    read_results,
    write_results,
)
from edgedraft.bench.caption_runs import (
    DEFAULT_EDGE_STEP_S,
    DEFAULT_RTT_S,
    CaptionBench,
    CaptionPlan,
    run_caption_bench,
)
from edgedraft.bench.caption_scores import ScoreBook, costs, verified_shares
from edgedraft.bench.caption_sweeps import BANDWIDTHS_BYTES_PER_S, SHARES, Sweeper
from edgedraft.bench.caption_tuning import GOAL, Tuner, threshold_doubting
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.caption.dataset import Dataset, load_dataset
from edgedraft.caption.synthetic import write_wav
from edgedraft.core.events import REQUESTED, RunPass
from edgedraft.core.gate import Measure
from edgedraft.core.verify import verify
from edgedraft.errors import InvalidRequestError, SessionLostError, UnsupportedError
from edgedraft.speech_features import FeatureDtype
from edgedraft.types import Float32Array, Rule, SamplingParams

MAX_TOKENS = 40
SETTING = Setting(
    edge="given",
    rtt_s=0.03,
    bytes_per_s_up=None,
    bytes_per_s_down=None,
    draft_step_s=0.025,
    listen_s_per_s=0.01,
    target_step_s=0.002,
    target_per_id_s=0.001,
    target_listen_s_per_s=0.005,
)
EDGE, CLOUD, EXACT = ENDS
SPARSE = Arm(
    name="sparse", gate="max-probability", threshold=0.6, unit="tokens", least_tokens=5, base_tokens=5, most_tokens=5
)


@pytest.fixture(scope="module")
def specs() -> tuple[str, str]:
    """The shipped pair: random weights stammer, and say nothing that could be scored."""
    return "captioner:edge", "captioner:cloud"


@pytest.fixture(scope="module")
def pair(specs: tuple[str, str]) -> Iterator[CaptionPair]:
    opened = CaptionPair.open(*specs)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(write_dataset(tmp_path_factory.mktemp("clips") / "test", 2))


@pytest.fixture(scope="module")
def heard(pair: CaptionPair, dataset: Dataset) -> Clips:
    return hear(dataset, pair.draft, pair.tokenizer.languages, FeatureDtype.INT8, lambda text: None)


@pytest.fixture(scope="module")
def captions(pair: CaptionPair, heard: Clips) -> VirtualCaptions:
    return VirtualCaptions(ClipMemory(pair, MAX_TOKENS), heard.clips, max_tokens=MAX_TOKENS, seed=0)


@pytest.fixture(scope="module")
def truthful(tmp_path_factory: pytest.TempPathFactory, captions: VirtualCaptions, dataset: Dataset) -> Dataset:
    """The same recordings, but what the target says of them is the truth: so it is far above the draft."""
    path = dataset.source.with_name("truth.jsonl")
    lines = [
        {"file": item.name, "language": item.language, "captions": [record.text]}
        for item, record in zip(dataset.items, captions.records(CLOUD, SETTING), strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return load_dataset(path)


# -- models ----------------------------------------------------------------------------------------------------------


def test_rows_are_computed_once(pair: CaptionPair, heard: Clips, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ScoreRequest] = []
    score = pair.target.score

    def counted(requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        asked.extend(requests)
        return score(requests)

    monkeypatch.setattr(pair.target, "score", counted)
    captions = VirtualCaptions(ClipMemory(pair, MAX_TOKENS), heard.clips, max_tokens=MAX_TOKENS, seed=0)
    record = captions.record(EXACT, heard.clips[0], SETTING)
    num_asked = len(asked)
    assert num_asked > 0
    assert captions.record(EXACT, heard.clips[0], SETTING).token_ids == record.token_ids
    captions.record(msgspec.structs.replace(EXACT, name="again", draft_ahead=False), heard.clips[0], SETTING)
    assert len(asked) == num_asked


@pytest.mark.parametrize(
    ("num_draft", "terms"),
    [
        (5, {"rule": Rule.RANK, "rank": 2, "judged": [1, 3]}),
        (5, {"rule": Rule.RANK, "rank": 900, "bonus": True}),
        (5, {"rule": Rule.RANK, "rank": 1}),
        (5, {"rule": Rule.MATCH}),
        (0, {"rule": Rule.MATCH}),
    ],
)
def test_verdicts_are_those_of_a_session_of_its_own(
    pair: CaptionPair, heard: Clips, captions: VirtualCaptions, num_draft: int, terms: dict[str, Any]
) -> None:
    clip = heard.clips[0]
    ids = captions.record(EDGE, clip, SETTING).token_ids
    models = ClipModels(pair, clip, MAX_TOKENS)
    draft_ids, own = ids[4 : 4 + num_draft], b"another session."
    log = [*models.prompt_ids, *ids[:4]]
    pair.target.open(own, models.prompt_ids, ids[:3])
    pair.target.listen(own, clip.sent)
    while pair.target.prefill(own):
        pass
    rows = np.array(pair.target.score([ScoreRequest(own, len(log) - 1, ids[3:4], draft_ids)])[0])
    pair.target.close(own)
    num_ids, position = pair.tokenizer.num_ids, len(log)
    wanted = verify(rows, draft_ids, SamplingParams(), position=position, num_ids=num_ids, **terms)
    command = RunPass(0, REQUESTED, 0, (), position, draft_ids, sampling=SamplingParams(), **{"rank": 1, **terms})
    assert models.verdict(log, command) == wanted


def test_forgotten_clips_are_worked_out_anew(pair: CaptionPair, heard: Clips) -> None:
    roomy, tight = (
        VirtualCaptions(ClipMemory(pair, MAX_TOKENS, max_bytes=size), heard.clips, max_tokens=MAX_TOKENS, seed=0)
        for size in (2**30, 1)
    )
    for arm in (EXACT, CLOUD, SPARSE):
        assert [r.token_ids for r in tight.records(arm, SETTING)] == [r.token_ids for r in roomy.records(arm, SETTING)]
    assert tight.memory.models(heard.clips[0]).num_bytes == 0
    assert roomy.memory.models(heard.clips[0]).num_bytes > 0


def test_clips_of_one_name_in_two_datasets_are_kept_apart(pair: CaptionPair, heard: Clips) -> None:
    memory = ClipMemory(pair, MAX_TOKENS)
    namesake = dataclasses.replace(heard.clips[1], id=heard.clips[0].id)
    models, other = memory.models(heard.clips[0]), memory.models(namesake)
    assert models.clip is heard.clips[0]
    assert other.clip is namesake


def test_prompt_counts_against_the_context(pair: CaptionPair, heard: Clips) -> None:
    assert ClipModels(pair, heard.clips[0], 10_000).max_tokens == pair.draft.info.context_length - 1


def test_models_of_text_or_without_a_common_vocabulary_are_refused(specs: tuple[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="a model of text"):
        CaptionPair.open("toy:seed=1", "toy:seed=2")
    with pytest.raises(UnsupportedError, match="vocabulary is not that of"):
        CaptionPair.open(specs[0], "toy:seed=2")


# -- clips -----------------------------------------------------------------------------------------------------------


def test_all_recordings_that_cannot_be_used_are_named_at_once(pair: CaptionPair, tmp_path: Path) -> None:
    write_wav(tmp_path / "long.wav", np.full(16_000 * 25, 0.1, np.float32))
    (tmp_path / "text.wav").write_text("no sound")
    lines = [{"file": f"{name}.wav", "language": "en", "captions": ["Words."]} for name in ("long", "text")]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InvalidRequestError) as caught:
        hear(load_dataset(tmp_path), pair.draft, ("zh",), FeatureDtype.INT8, lambda text: None)
    assert "the draft captions in zh, not in en" in str(caught.value)
    assert "long.wav: " in str(caught.value)
    assert "text.wav: " in str(caught.value)


# -- captions --------------------------------------------------------------------------------------------------------


def test_ends_are_what_they_should_be(captions: VirtualCaptions, pair: CaptionPair) -> None:
    edge, cloud, exact = (captions.records(arm, SETTING) for arm in ENDS)
    assert [record.token_ids for record in exact] == [record.token_ids for record in cloud]
    assert [record.token_ids for record in edge] != [record.token_ids for record in cloud]
    for record in edge:
        assert (record.bytes_up, record.feature_bytes, record.num_calls, set(record.kinds)) == (0, 0, 0, {"local"})
        listening_s = SETTING.listen_s_per_s * captions.clips[0].sent.seconds
        assert record.total_s >= SETTING.draft_step_s * len(record.token_ids) + 0.5 * listening_s
    for record in exact:
        assert record.num_judged == record.num_gated
        assert record.feature_bytes > 0
    whole = costs(exact)[0]
    assert (whole.verified_share, whole.silent_share) == (1.0, 0.0)
    assert costs(edge)[0].silent_share == 1.0


def test_share_lies_between_and_texts_do_not_depend_on_the_link(captions: VirtualCaptions) -> None:
    near = captions.records(SPARSE, SETTING)
    far = captions.records(SPARSE, msgspec.structs.replace(SETTING, rtt_s=0.3, draft_step_s=0.001))
    assert [record.text for record in near] == [record.text for record in far]
    assert 0.0 < costs(near)[0].verified_share < 1.0
    thin = captions.records(SPARSE, msgspec.structs.replace(SETTING, bytes_per_s_up=500.0))
    assert [record.text for record in near] == [record.text for record in thin]


# -- tuning ----------------------------------------------------------------------------------------------------------


def tuner(captions: VirtualCaptions, dataset: Dataset, pair: CaptionPair) -> tuple[Tuner, VirtualCaptions]:
    heard = hear(dataset, pair.draft, pair.tokenizer.languages, FeatureDtype.INT8, lambda text: None)
    own = VirtualCaptions(captions.memory, heard.clips, max_tokens=MAX_TOKENS, seed=0)
    edge, cloud = own.records(EDGE, SETTING), own.records(CLOUD, SETTING)
    return Tuner(own, ScoreBook(heard.clips), edge, cloud, SETTING, lambda text: None), own


def test_tuned_threshold_reaches_the_goal_and_a_smaller_share_does_not(
    captions: VirtualCaptions, truthful: Dataset, pair: CaptionPair
) -> None:
    arm = next(arm for arm in ARMS if arm.name == "ugsd-sparse")
    found = tuner(captions, truthful, pair)[0].tune(arm)
    assert found.threshold is not None
    assert found.dev_share is not None
    assert min(found.dev_gap_closed.values()) >= GOAL
    assert 0.0 < found.dev_share < 1.0


def test_without_a_gap_no_threshold_is_chosen(captions: VirtualCaptions, dataset: Dataset, pair: CaptionPair) -> None:
    """None of the captions is anything like what the dataset says."""
    found = tuner(captions, dataset, pair)[0].tune(next(arm for arm in ARMS if arm.name == "ugsd-sparse"))
    assert found.threshold is None
    assert "a share needs 4" in found.reason


def test_threshold_doubts_the_share_that_was_asked_for() -> None:
    values = np.linspace(0.0, 1.0, 1001)
    assert threshold_doubting(values, Measure.ENTROPY, 0.1) == pytest.approx(0.9)
    assert threshold_doubting(values, Measure.MAX_PROBABILITY, 0.1) == pytest.approx(0.1)
    with pytest.raises(InvalidRequestError, match="no draft tokens"):
        threshold_doubting(np.array([]), Measure.ENTROPY, 0.1)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(pair: CaptionPair, truthful: Dataset, specs: tuple[str, str]) -> tuple[CaptionResults, list[ClipRecord]]:
    plan = CaptionPlan(
        draft=specs[0],
        target=specs[1],
        arms=["never", "ugsd", "ugsd, bonus", "ugsd-sparse"],
        sweeps=["rank", "rtt"],
        max_tokens=MAX_TOKENS,
        num_chances=1,
    )
    return CaptionBench(pair, plan).run(truthful, truthful)


def test_run_holds_what_was_asked_for(run: tuple[CaptionResults, list[ClipRecord]], truthful: Dataset) -> None:
    results, clips = run
    names = [result.arm.name for result in results.arms]
    assert names[:3] == ["edge-only", "cloud-only", "exact"]
    assert {"never", "ugsd", "ugsd-sparse", "ugsd-sparse, chance 0", "ugsd, chance 0"} < set(names)
    assert len(clips) == len(names) * len(truthful.items)
    assert results.setting.target_step_s > 0.0 < results.setting.listen_s_per_s
    assert results.exact.holds
    assert results.exact.num_clips == 4
    assert results.manifest.num_clips == {"en": 2, "zh": 2}
    assert results.arm("ugsd").arm.tuned
    assert results.arm("ugsd, bonus").arm.threshold == results.arm("ugsd").arm.threshold
    assert [sweep.name for sweep in results.sweeps] == ["rank", "rtt", "rtt"]
    assert [sweep.setting.edge for sweep in results.sweeps[1:]] == ["given", "measured"]
    with pytest.raises(InvalidRequestError, match="arm is 'x'"):
        results.arm("x")


def test_scores_of_a_run_are_those_of_its_captions(run: tuple[CaptionResults, list[ClipRecord]]) -> None:
    results, clips = run
    for language in results.arm("cloud-only").languages:
        assert language.texts[0].scores["bleu_1"].value == pytest.approx(100.0)
        assert language.texts[0].gap_closed is not None
        assert language.texts[0].gap_closed.share is not None
        assert language.texts[0].gap_closed.share.value == pytest.approx(1.0)
        assert language.attribute_accuracy is None
    texts = {arm: [clip.text for clip in clips if clip.arm == arm] for arm in ("edge-only", "never", "exact")}
    assert texts["never"] == texts["edge-only"] != texts["exact"]


def test_chance_has_the_share_of_the_gate_it_replaces(run: tuple[CaptionResults, list[ClipRecord]]) -> None:
    results, _ = run
    assert results.arm("ugsd-sparse, chance 0").arm.controls == "ugsd-sparse"
    for name in ("ugsd", "ugsd-sparse"):
        arm, chance = results.arm(name), results.arm(f"{name}, chance 0")
        assert set(chance.arm.shares) == {"en", "zh"}
        for wanted, found in zip(arm.costs, chance.costs, strict=True):
            # Two captions have few tokens, so that shares move in steps.
            assert found.verified_share == pytest.approx(wanted.verified_share, abs=0.05 + SHARE_TOLERANCE)


def test_chance_has_the_share_of_each_language(captions: VirtualCaptions) -> None:
    """A gate that doubts English far more than Chinese: a share over both would be wrong in either."""
    runs = ArmRuns(captions, ScoreBook(captions.clips), SETTING, lambda text: None, seed=0)
    wanted = {"en": 0.3, "zh": 0.05}
    _, records = runs._at_shares(control(SPARSE, 0), wanted)
    found = verified_shares(records)
    assert found == pytest.approx(wanted, abs=0.03)
    assert [record.clip for record in records] == [clip.id for clip in captions.clips]


def test_points_of_a_sweep_have_the_share_of_each_language(captions: VirtualCaptions) -> None:
    edge, cloud = captions.records(EDGE, SETTING), captions.records(CLOUD, SETTING)
    sweeper = Sweeper(captions, ScoreBook(captions.clips), edge, cloud, lambda text: None)
    (curve,) = sweeper.ranks([SPARSE], SETTING).curves
    point = curve.points[0]
    assert point.verified_shares == verified_shares(captions.records(SPARSE, SETTING))
    low, high = sorted(point.verified_shares.values())
    assert low < point.verified_share < high


def test_the_sweep_of_chance_asks_for_one_share_in_all_languages(captions: VirtualCaptions) -> None:
    edge, cloud = captions.records(EDGE, SETTING), captions.records(CLOUD, SETTING)
    sweeper = Sweeper(captions, ScoreBook(captions.clips), edge, cloud, lambda text: None)
    _, chance = sweeper.thresholds([SPARSE], SETTING).curves
    shares = [point.verified_shares for point in chance.points]
    assert [point.x for point in chance.points] == list(SHARES)
    assert all(share["en"] > 0 < share["zh"] for share in shares[5:])
    assert shares[0]["en"] < shares[-1]["en"]
    assert shares[0]["zh"] < shares[-1]["zh"]


def test_drafting_ahead_gains_time_over_waiting_and_nothing_else(run: tuple[CaptionResults, list[ClipRecord]]) -> None:
    curves = {curve.label: curve.points for curve in run[0].sweeps[1].curves}
    for ahead, waiting in zip(curves["ugsd-sparse"], curves["ugsd-sparse, waiting"], strict=True):
        assert ahead.bleu_1 == waiting.bleu_1
        if ahead.x > DEFAULT_EDGE_STEP_S:  # nearer, a correction waits for the step that is under way
            assert ahead.total_s < waiting.total_s
    edge_s = [point.total_s for point in curves["edge-only"]]
    assert edge_s == [edge_s[0]] * len(edge_s)
    cloud_s = [point.total_s for point in curves["cloud-only"]]
    assert cloud_s == sorted(cloud_s)


def test_times_over_links_are_of_all_clips(run: tuple[CaptionResults, list[ClipRecord]]) -> None:
    results, _ = run
    num_clips = results.arm("ugsd").costs[0].num_clips
    assert {each.num_clips for each in (*results.sweeps, *_ratios(results, "all"))} == {num_clips} == {4}
    for curve in results.sweeps[1].curves:
        if not curve.label.endswith(", waiting"):
            (point,) = [point for point in curve.points if point.x == DEFAULT_RTT_S]
            assert point.total_s == results.arm(curve.label).costs[0].total_s


def _ratios(results: CaptionResults, language: str) -> list[TimeRatio]:
    return [each for each in results.ratios if each.language == language]


@pytest.mark.parametrize(("language", "num_clips"), [("all", 4), ("en", 2), ("zh", 2)])
def test_ratios_are_of_the_clips_of_their_language(
    language: str, num_clips: int, run: tuple[CaptionResults, list[ClipRecord]]
) -> None:
    results, clips = run
    ratio = next(each for each in _ratios(results, language) if (each.arm, each.setting) == ("ugsd", results.setting))
    own = [clip for clip in clips if language in ("all", clip.language)]
    took_s = {arm: sum(clip.total_s for clip in own if clip.arm == arm) for arm in ("ugsd", "edge-only")}
    assert ratio.ratio.value == pytest.approx(took_s["ugsd"] / took_s["edge-only"])
    assert ratio.num_clips == num_clips
    timed = {each.arm for each in _ratios(results, language) if each.setting == results.setting}
    assert timed == {each.arm.name for each in results.arms if not each.arm.controls} - {"edge-only"}
    assert ratio.ratio.low <= ratio.ratio.value <= ratio.ratio.high


def test_notes_say_where_collaborating_loses(run: tuple[CaptionResults, list[ClipRecord]]) -> None:
    results, _ = run
    assert losses(results)
    assert results.notes[: len(losses(results))] == losses(results)


def test_a_point_that_a_link_is_too_thin_for_is_left_out_and_told(
    captions: VirtualCaptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, cloud = captions.records(EDGE, SETTING), captions.records(CLOUD, SETTING)
    records = captions.records

    def thin(arm: Arm, setting: Setting) -> list[ClipRecord]:
        if setting.bytes_per_s_up == BANDWIDTHS_BYTES_PER_S[0]:
            raise SessionLostError("silent for too long.")
        return records(arm, setting)

    monkeypatch.setattr(captions, "records", thin)
    sweeper = Sweeper(captions, ScoreBook(captions.clips), edge, cloud, lambda text: None)
    (curve,) = sweeper.bandwidths([EXACT], SETTING).curves
    assert [point.x for point in curve.points] == list(BANDWIDTHS_BYTES_PER_S[1:])
    assert curve.failures == ["bandwidth 2000, exact: silent for too long."]


def test_results_come_back_from_their_files(run: tuple[CaptionResults, list[ClipRecord]], tmp_path: Path) -> None:
    results, clips = run
    write_results(tmp_path / "out", results, clips)
    assert read_results(tmp_path / "out") == results
    assert list(read_clips(tmp_path / "out")) == clips
    older = msgspec.to_builtins(results)
    older["manifest"]["format"] = FORMAT_VERSION - 1
    del older["exact"]  # an older format may lack anything
    (tmp_path / "results.json").write_bytes(msgspec.json.encode(older))
    with pytest.raises(InvalidRequestError, match=f"format {FORMAT_VERSION - 1}; legal: {FORMAT_VERSION}"):
        read_results(tmp_path)
    (tmp_path / "results.json").unlink()
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        read_results(tmp_path)
    (tmp_path / "out" / "clips.jsonl").write_text('{"arm": 1}\n')
    with pytest.raises(InvalidRequestError, match="line 1 is no ClipRecord"):
        list(read_clips(tmp_path / "out"))


def test_run_without_dev_says_where_its_thresholds_are_from(specs: tuple[str, str], dataset: Dataset) -> None:
    plan = CaptionPlan(
        draft=specs[0],
        target=specs[1],
        arms=["ugsd", "ugsd-sparse"],
        sweeps=[],
        thresholds={"ugsd": 2.0},
        share=0.2,
        max_tokens=MAX_TOKENS,
        num_chances=0,
    )
    results, _ = run_caption_bench(dataset, None, plan)
    assert not results.arm("ugsd-sparse").arm.tuned
    assert results.arm("ugsd").arm.threshold == 2.0
    assert results.notes[-1] == "Thresholds that doubt 20 % of the edge's own tokens, untuned: ugsd-sparse."
    assert results.tuned == []


def test_captions_that_differ_from_the_targets_are_named(captions: VirtualCaptions) -> None:
    runs = ArmRuns(captions, ScoreBook(captions.clips), SETTING, lambda text: None, seed=0)
    runs.run(ENDS)
    assert runs.exact_check().holds
    changed = msgspec.structs.replace(runs.records["exact"][1], token_ids=[5])
    runs.records["exact"][1] = changed
    assert runs.exact_check().differing == [changed.clip]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("max_tokens", {"max_tokens": 0}),
        ("share", {"share": 1.0}),
        ("num_live", {"num_live": 1}),
        ("num_live", {"num_live": -1}),
        ("sweeps", {"sweeps": ["moon"]}),
        ("thresholds", {"thresholds": {"edge-only": 1.0}}),
        ("arms", {"arms": ["none such"]}),
    ],
)
def test_plan_names_its_bad_field(field: str, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        CaptionPlan(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == field


# -- figures ---------------------------------------------------------------------------------------------------------


def test_costs_count_what_was_sent_over_what_was_heard(captions: VirtualCaptions) -> None:
    records = captions.records(EXACT, SETTING)
    records[0] = msgspec.structs.replace(records[0], feature_bytes=0, bytes_up=0)
    everything, english, chinese = costs(records)
    assert (everything.language, english.language, chinese.language) == ("all", "en", "zh")
    sent = sum(record.feature_bytes for record in records)
    assert everything.feature_bytes_per_s == pytest.approx(sent / sum(record.seconds for record in records))
    assert everything.sent_feature_bytes_per_s == pytest.approx(sent / sum(r.seconds for r in records[1:]))
    assert english.silent_share == pytest.approx(1 / 2)
    assert math.isclose(everything.ids_per_token, sum(r.tokens_up for r in records) / everything.num_tokens)
