"""The named strategies: what each is made of, and what is said of a name or number that there is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgedraft.core.hedging import Hedging
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadState, UploadWhole
from edgedraft.core.triggers import AdaptiveSequenceConfidence, DualThreshold, FixedLength, Never, TokenConfidence
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.catalogue import (
    ABLATIONS,
    STRATEGIES,
    edgellm,
    flow,
    hsl,
    pipesd,
    strategy_named,
    vanilla,
)
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.types import Assist, DraftToken, Rule

SLOW = LinkCost(startup_s=0.025, per_token_s=0.116)


@pytest.mark.parametrize("name", [*STRATEGIES, *ABLATIONS])
def test_every_name_gives_a_strategy_that_says_so(name: str) -> None:
    assert strategy_named(name).name == name


def test_names_of_a_request_and_of_a_bench_are_apart() -> None:
    assert not set(STRATEGIES) & set(ABLATIONS)
    with pytest.raises(InvalidRequestError, match=r"there are: .*vanilla, hsl, edgellm, pipesd, flow") as caught:
        strategy_named("specedge")
    assert caught.value.field == "strategy"


@pytest.mark.parametrize(
    ("name", "number", "remedy"),
    [
        ("vanilla", "token_threshold", "draft_length, rule"),
        ("cloud-only", "draft_length", "no numbers"),
        ("hsl", "sequence_threshold", "token_threshold"),
        ("flow", "factor", "assist"),
    ],
)
def test_a_number_that_a_strategy_does_not_have_is_named(name: str, number: str, remedy: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        strategy_named(name, **{number: 0.5})

    assert caught.value.field == number
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: vanilla(0), "draft_length"),
        (lambda: hsl(token_threshold=1.0), "token_threshold"),
        (lambda: edgellm(sequence_threshold=0.0), "sequence_threshold"),
        (lambda: pipesd(token_threshold=float("nan")), "token_threshold"),
        (lambda: pipesd(sequence_threshold=-0.1), "sequence_threshold"),
        (lambda: strategy_named("pipesd/fixed", draft_length=0), "num_draft_tokens"),
    ],
)
def test_an_illegal_number_is_named(make: Callable[[], Strategy], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make()

    assert caught.value.field == field


class TestBaselines:
    """Stop-and-wait: one verdict out, nothing of the next draft travels before it."""

    @pytest.mark.parametrize("name", ["vanilla", "hsl", "edgellm", "pipesd/no-pipeline"])
    def test_they_send_whole_and_ask_once(self, name: str) -> None:
        strategy = strategy_named(name)

        assert strategy.upload == UploadWhole()
        assert (strategy.max_verdicts_out, strategy.eager, strategy.assist) == (1, False, Assist.NONE)
        assert (strategy.draft_ahead_tokens > 0) is (name == "edgellm")

    def test_their_triggers(self) -> None:
        assert vanilla(7).trigger == FixedLength(7)
        assert hsl(token_threshold=0.8).trigger == TokenConfidence(0.8)
        assert edgellm(sequence_threshold=0.4, factor=0.9).trigger == AdaptiveSequenceConfidence(0.4, factor=0.9)

    def test_a_long_draft_of_vanilla_is_not_cut_by_the_cap(self) -> None:
        assert vanilla(100).max_in_flight_tokens == 100


class TestPipesd:
    def test_it_looks_one_question_ahead_and_uploads_as_planned(self) -> None:
        strategy = pipesd(token_threshold=0.4, sequence_threshold=0.2, cost=SLOW, draft_s=0.036, window_tokens=20)

        assert strategy.trigger == DualThreshold(token_threshold=0.4, sequence_threshold=0.2)
        assert strategy.max_verdicts_out == 2
        assert strategy.draft_ahead_tokens > 0
        assert isinstance(strategy.upload, UploadPlanned)
        assert sum(strategy.upload.sizes) == 20
        assert len(strategy.upload.sizes) > 1

    def test_a_threshold_is_reached_not_only_passed(self) -> None:
        trigger = pipesd(token_threshold=0.5, sequence_threshold=0.25).trigger

        assert trigger.fires([DraftToken(1, 0.5, 0.0)])
        assert trigger.fires([DraftToken(1, 0.5, 0.0), DraftToken(1, 0.51, 0.0)]) is False
        assert trigger.fires([DraftToken(1, 0.4, 0.0), DraftToken(1, 0.6, 0.0)])

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("pipesd/fixed", {"trigger": FixedLength(6)}),
            ("pipesd/token", {"trigger": TokenConfidence(0.99)}),
            ("pipesd/sequence", {"trigger": AdaptiveSequenceConfidence(0.95, factor=0.97)}),
            ("pipesd/immediate", {"upload": UploadImmediately()}),
            ("pipesd/whole", {"upload": UploadWhole()}),
        ],
    )
    def test_an_ablation_differs_in_one_thing(self, name: str, changes: dict[str, object]) -> None:
        ablation, whole = strategy_named(name), pipesd()

        differing = {
            field
            for field in Strategy.__dataclass_fields__
            if field != "name" and getattr(ablation, field) != getattr(whole, field)
        }
        assert differing == set(changes)
        for field, value in changes.items():
            assert getattr(ablation, field) == value

    def test_the_greedy_ablation_waits_for_the_link(self) -> None:
        upload = strategy_named("pipesd/greedy", cost=SLOW).upload

        assert upload == UploadWhenFree(SLOW)
        assert upload.num_to_send(UploadState(3, 1, last_message_tokens=1, since_last_s=0.1)) == 0
        assert upload.num_to_send(UploadState(3, 1, last_message_tokens=1, since_last_s=0.142)) == 3


class TestFlow:
    @pytest.mark.parametrize("assist", list(Assist))
    def test_it_never_asks_and_the_cloud_verifies_what_is_there(self, assist: Assist) -> None:
        strategy = flow(assist=str(assist), cost=SLOW)

        assert (strategy.assist, strategy.eager, strategy.trigger) == (assist, True, Never())
        assert strategy.upload == UploadWhenFree(SLOW)

    def test_it_hedges_unless_told_otherwise(self) -> None:
        assert flow().hedging is not None
        assert flow(hedging=None).hedging is None
        assert flow(hedging=Hedging(patience=2.0)).hedging == Hedging(patience=2.0)

    def test_an_assist_that_there_is_not(self) -> None:
        with pytest.raises(ValueError, match="sometimes"):
            flow(assist="sometimes")


def test_all_named_strategies_are_exact() -> None:
    assert {strategy_named(name).rule for name in (*STRATEGIES, *ABLATIONS)} == {Rule.MATCH}


@pytest.mark.parametrize(
    ("name", "number", "value"),
    [
        ("hsl", "token_threshold", "x"),
        ("hsl", "token_threshold", None),
        ("hsl", "token_threshold", 1.5),
        ("pipesd", "sequence_threshold", [1]),
        ("edgellm", "factor", True),
        ("vanilla", "draft_length", 1.5),
        ("vanilla", "draft_length", True),
        ("vanilla", "draft_length", 10**30),
        ("flow", "assist", "sometimes"),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(name: str, number: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        strategy_named(name, **{number: value})
    assert caught.value.field == number
    assert "legal:" in str(caught.value)
