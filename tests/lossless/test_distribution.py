"""The text's distribution is the target's: chi-square against an exact toy model, with mutants that must fail.

Three tokens over four words are 64 texts. Each request has its own seed, so the figures never change from run to run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from scipy import stats

from edgedraft.core import sampling as sampling_module
from edgedraft.core import verify as verify_module
from edgedraft.core.sampling import choose, draft_token, keyed_uniform, noise_key, process
from edgedraft.core.verify import Verdict, verify
from edgedraft.errors import ProtocolError
from edgedraft.protocol.messages import CommitKind
from edgedraft.types import DraftToken, Float32Array, Rule, SamplingParams

NUM_WORDS = 4
LENGTH = 3
PROMPT = [0]
NUM_REQUESTS = 3000
SIGNIFICANCE = 0.999
PLAIN = SamplingParams(temperature=1.0)

TARGET = np.log(
    np.array([[0.4, 0.3, 0.2, 0.1], [0.15, 0.35, 0.2, 0.3], [0.25, 0.25, 0.1, 0.4], [0.3, 0.2, 0.35, 0.15]])
).astype(np.float32)
DRAFT = np.log(
    np.array([[0.2, 0.25, 0.4, 0.15], [0.4, 0.2, 0.3, 0.1], [0.1, 0.5, 0.15, 0.25], [0.45, 0.1, 0.15, 0.3]])
).astype(np.float32)

Drafter = Callable[[Sequence[int], SamplingParams, Rule], DraftToken]
Judge = Callable[..., Verdict]


def drafted(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
    token = draft_token(DRAFT[tokens[-1]], sampling, len(tokens), num_ids=NUM_WORDS, rule=rule)
    assert token is not None
    return token


def rows_after(tokens: Sequence[int], draft: Sequence[DraftToken]) -> Float32Array:
    return TARGET[[tokens[-1], *[token.token_id for token in draft]]]


@dataclass(frozen=True)
class Decoder:
    """The shortest loop of draft and verify; every part may be replaced by a mutant.

    `ahead`: guess the bonus token while the verdict is out, draft past it, and use that only if the guess was right.
    """

    rule: Rule
    length: int = 2
    ahead: bool = False
    sampling: SamplingParams = PLAIN
    drafter: Drafter = drafted
    judge: Judge = verify

    def text(self, seed: int) -> tuple[int, ...]:
        return self.text_and_accepted(seed)[0]

    def text_and_accepted(self, seed: int) -> tuple[tuple[int, ...], list[bool]]:
        sampling = msgspec.structs.replace(self.sampling, seed=seed)
        tokens, draft, accepted = list(PROMPT), [], []
        while len(tokens) < len(PROMPT) + LENGTH:
            self._extend(tokens, draft, sampling, self.length)
            full = [*tokens, *[token.token_id for token in draft]]
            guess = int(DRAFT[full[-1]].argmax())
            beyond: list[DraftToken] = []
            if self.ahead:
                self._extend([*full, guess], beyond, sampling, self.length)
            verdict = self.judge(
                rows_after(tokens, draft), full[len(tokens) :], sampling, position=len(tokens), num_ids=NUM_WORDS,
                rule=self.rule, distributions=[t.distribution for t in draft if t.distribution is not None],
            )  # fmt: skip
            assert verdict.next_id is not None
            accepted += [True] * verdict.num_accepted + [False] * (verdict.num_accepted < len(draft))
            reusable = verdict.num_accepted == len(draft) and verdict.next_id == guess
            tokens = [*full[: len(tokens) + verdict.num_accepted], verdict.next_id]
            draft = beyond if reusable else []
        return tuple(tokens[len(PROMPT) : len(PROMPT) + LENGTH]), accepted

    def _extend(self, tokens: Sequence[int], draft: list[DraftToken], sampling: SamplingParams, length: int) -> None:
        while len(draft) < length:
            draft.append(self.drafter([*tokens, *[t.token_id for t in draft]], sampling, self.rule))


def exact_probs(sampling: SamplingParams) -> dict[tuple[int, ...], float]:
    """Probability of every text under the target alone."""
    steps = np.zeros((NUM_WORDS, NUM_WORDS))
    for last in range(NUM_WORDS):
        processed = process(TARGET[last], sampling, num_ids=NUM_WORDS)
        steps[last, processed.ids] = processed.probs()
    return {
        text: float(np.prod([steps[last, word] for last, word in itertools.pairwise([*PROMPT, *text])]))
        for text in itertools.product(range(NUM_WORDS), repeat=LENGTH)
    }


def chi_square(counts: Counter, probs: dict) -> float:
    """Statistic over its critical value: above 1 is a rejection. Outcomes that cannot be must not be."""
    total = sum(counts.values())
    possible = {outcome: prob for outcome, prob in probs.items() if prob > 0.0}
    if set(counts) - set(possible):
        return np.inf
    statistic = sum((counts[o] - total * prob) ** 2 / (total * prob) for o, prob in possible.items())
    return float(statistic / stats.chi2.ppf(SIGNIFICANCE, len(possible) - 1))


def misfit(decoder: Decoder) -> float:
    counts = Counter(decoder.text(seed) for seed in range(NUM_REQUESTS))
    return chi_square(counts, exact_probs(decoder.sampling))


# -- exact -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True], ids=["stop-and-wait", "draft-ahead"])
@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
@pytest.mark.parametrize("length", [1, 2])
def test_text_follows_the_target(rule: Rule, length: int, ahead: bool) -> None:
    assert misfit(Decoder(rule, length=length, ahead=ahead)) < 1


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ahead", [False, True], ids=["stop-and-wait", "draft-ahead"])
@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_text_follows_the_target_over_many_requests(rule: Rule, length: int, ahead: bool) -> None:
    decoder = Decoder(rule, length=length, ahead=ahead)
    counts = Counter(decoder.text(seed) for seed in range(1_000_000, 1_000_000 + 20 * NUM_REQUESTS))
    assert chi_square(counts, exact_probs(PLAIN)) < 1


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
def test_text_follows_the_truncated_target(rule: Rule) -> None:
    """Filters alike on both sides."""
    sampling = SamplingParams(temperature=0.7, top_k=3, top_p=0.9)
    assert misfit(Decoder(rule, sampling=sampling)) < 1


def test_a_draft_filtered_unlike_its_distribution_is_noticed() -> None:
    """Drafted without the filter that the distribution was sent with: the ids it rules out give it away."""
    filtered = SamplingParams(temperature=0.7, top_k=2)

    def unlike(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
        unfiltered = msgspec.structs.replace(sampling, top_k=0)
        return replace(drafted(tokens, sampling, rule), token_id=drafted(tokens, unfiltered, rule).token_id)

    with pytest.raises(ProtocolError, match="no probability"):
        misfit(Decoder(Rule.RATIO, sampling=filtered, drafter=unlike))


def test_match_text_does_not_depend_on_the_draft() -> None:
    """Greedy, sampled, independent and absurd drafts of any length: the same text for each seed, token for token."""

    def greedy(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
        return DraftToken(int(DRAFT[tokens[-1]].argmax()), 1.0, 0.0)

    def independent(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
        return drafted(tokens, msgspec.structs.replace(sampling, seed=sampling.seed + 10**9), rule)

    def absurd(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
        return DraftToken(NUM_WORDS - 1, 1.0, 0.0)

    decoders = [
        Decoder(Rule.MATCH, length=length, ahead=ahead, drafter=drafter)
        for length in (1, 2)
        for ahead in (False, True)
        for drafter in (drafted, greedy, independent, absurd)
    ]
    for seed in range(200):
        tokens = list(PROMPT)
        for _ in range(LENGTH):
            request = msgspec.structs.replace(PLAIN, seed=seed)
            tokens.append(choose(TARGET[tokens[-1]], request, len(tokens), num_ids=NUM_WORDS))
        assert {decoder.text(seed) for decoder in decoders} == {tuple(tokens[1:])}


def test_match_accepts_as_theory_says() -> None:
    """Independent draws agree with sum(target * draft); common noise more often, at most 1 - total variation."""
    target, draft = np.exp(TARGET[0]), np.exp(DRAFT[0])
    own = [choose(TARGET[0], SamplingParams(temperature=1, seed=s), 1, num_ids=4) for s in range(NUM_REQUESTS)]
    coupled = [choose(DRAFT[0], SamplingParams(temperature=1, seed=s), 1, num_ids=4) for s in range(NUM_REQUESTS)]
    apart = [choose(DRAFT[0], SamplingParams(temperature=1, seed=s), 2, num_ids=4) for s in range(NUM_REQUESTS)]
    best = 1 - np.abs(target - draft).sum() / 2
    independent = float((target * draft).sum())
    assert np.mean(np.equal(own, apart)) == pytest.approx(independent, abs=0.03)
    rate = np.mean(np.equal(own, coupled))
    assert 2 * independent < rate < best + 0.03
    assert rate > (best - 0.01) / (2 - best)


def test_ratio_accepts_the_common_part() -> None:
    decoder = Decoder(Rule.RATIO, length=1)
    first = [decoder.text_and_accepted(seed)[1][0] for seed in range(NUM_REQUESTS)]
    common = np.minimum(np.exp(TARGET[0]), np.exp(DRAFT[0])).sum()
    assert np.mean(first) == pytest.approx(common, abs=0.03)


# -- mutants: each must be told from the target ----------------------------------------------------------------------


def test_mutant_one_uniform_for_accept_and_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(seed: int, choice: int, position: int, purpose: bytes) -> float:
        return keyed_uniform(seed, choice, position, b"accept" if purpose == b"recover" else purpose)

    monkeypatch.setattr(verify_module, "keyed_uniform", once)
    assert misfit(Decoder(Rule.RATIO)) > 1


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
def test_mutant_constant_reseed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every position of a request draws as its first one does."""
    monkeypatch.setattr(sampling_module, "noise_key", lambda seed, choice, position: noise_key(seed, choice, 0))
    for module in (verify_module, sampling_module):
        monkeypatch.setattr(module, "keyed_uniform", lambda s, c, position, purpose: keyed_uniform(s, c, 0, purpose))
    assert misfit(Decoder(rule)) > 1


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
def test_mutant_arg_max_bonus(rule: Rule) -> None:
    def greedy_bonus(rows: Float32Array, draft_ids: Sequence[int], *args: object, **kwargs: object) -> Verdict:
        verdict = verify(rows, draft_ids, *args, **kwargs)
        return replace(verdict, next_id=int(rows[-1].argmax())) if verdict.kind is CommitKind.BONUS else verdict

    assert misfit(Decoder(rule, judge=greedy_bonus)) > 1


def test_mutant_recovery_from_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "_residual", lambda target_ids, target_probs, *draft: target_probs)
    assert misfit(Decoder(Rule.RATIO)) > 1


def test_mutant_recovery_by_arg_max() -> None:
    def greedy_recovery(rows: Float32Array, draft_ids: Sequence[int], *args: object, **kwargs: object) -> Verdict:
        verdict = verify(rows, draft_ids, *args, **kwargs)
        if verdict.kind is not CommitKind.RECOVERED:
            return verdict
        return replace(verdict, next_id=int(rows[verdict.num_accepted].argmax()))

    for rule in (Rule.MATCH, Rule.RATIO):
        assert misfit(Decoder(rule, judge=greedy_recovery)) > 1


def test_mutant_distribution_that_was_not_sampled_from() -> None:
    """The arg max is drafted, the softmax is sent."""

    def greedy_draft(tokens: Sequence[int], sampling: SamplingParams, rule: Rule) -> DraftToken:
        return replace(drafted(tokens, sampling, rule), token_id=int(DRAFT[tokens[-1]].argmax()))

    assert misfit(Decoder(Rule.RATIO, drafter=greedy_draft)) > 1


# -- whether a position is judged must not depend on what was drafted there --------------------------------------------

UPLOAD_TARGET = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
UPLOAD_DRAFT = np.log(np.array([0.3, 0.6, 0.1])).astype(np.float32)


def first_token(rule: Rule, seed: int, *, confident_waits: bool) -> int:
    """One position. A confident token may wait in its batch; then the cloud has nothing and draws by itself."""
    sampling = SamplingParams(temperature=1.0, seed=seed)
    token = draft_token(UPLOAD_DRAFT, sampling, 1, num_ids=3, rule=rule)
    assert token is not None
    sent = [] if confident_waits and token.confidence > 0.5 else [token]
    verdict = verify(
        np.stack([UPLOAD_TARGET] * (len(sent) + 1)), [t.token_id for t in sent], sampling, position=1, num_ids=3,
        rule=rule, distributions=[t.distribution for t in sent if t.distribution is not None],
    )  # fmt: skip
    assert verdict.next_id is not None
    return sent[0].token_id if verdict.num_accepted else verdict.next_id


def upload_misfit(rule: Rule, probs: Sequence[float], *, confident_waits: bool) -> float:
    counts = Counter(first_token(rule, seed, confident_waits=confident_waits) for seed in range(NUM_REQUESTS))
    return chi_square(counts, dict(enumerate(probs)))


def test_mutant_value_dependent_upload() -> None:
    """Rule ratio gives .60/.18/.22 for .50/.30/.20, which is why assist and eager verification are refused with it."""
    assert upload_misfit(Rule.RATIO, [0.5, 0.3, 0.2], confident_waits=False) < 1
    assert upload_misfit(Rule.RATIO, [0.5, 0.3, 0.2], confident_waits=True) > 1
    assert upload_misfit(Rule.RATIO, [0.6, 0.18, 0.22], confident_waits=True) < 1


def test_match_bears_a_value_dependent_upload() -> None:
    assert upload_misfit(Rule.MATCH, [0.5, 0.3, 0.2], confident_waits=True) < 1
