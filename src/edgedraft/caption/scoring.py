"""Scores of captions against reference captions, all times 100, from one row of numbers per caption."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgedraft.caption import bleu
from edgedraft.caption.meteor import system_meteor
from edgedraft.caption.rouge import RECALL_WEIGHT, rouge_l
from edgedraft.caption.tokens import Tokenisation, tokenise
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float64Array

_METEOR, _ROUGE_L = bleu.NUM_COLUMNS, bleu.NUM_COLUMNS + 1
NUM_COLUMNS = bleu.NUM_COLUMNS + 2


class Metric(enum.StrEnum):
    """`bleu_1`, `bleu_4`: of the whole set, with brevity penalty (sacrebleu). `bleu_1_precision`: BLEU-1 without it.

    `bleu_1_precision` is what UGSD's precursor calls BLEU-1. `meteor`, `rouge_l`: means over the captions.
    """

    BLEU_1 = "bleu_1"
    BLEU_1_PRECISION = "bleu_1_precision"
    BLEU_4 = "bleu_4"
    METEOR = "meteor"
    ROUGE_L = "rouge_l"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaptionScores:
    """What the captions of one system are worth, by one tokenisation.

    `statistics`: float64, shape (num_captions, NUM_COLUMNS): the ten numbers of BLEU, then METEOR and ROUGE-L, 0 to 1.
    `meteor_matching`: which words METEOR took for equal.
    """

    tokenisation: Tokenisation
    meteor_matching: str
    statistics: Float64Array

    @property
    def num_captions(self) -> int:
        return len(self.statistics)

    def score(self, metric: Metric) -> float:
        """The score of all captions, 0 to 100."""
        return float(self.resampled(metric, np.ones((1, self.num_captions)))[0])

    def per_caption(self, metric: Metric) -> Float64Array:
        """Each caption scored by itself, shape (num_captions,). The mean of BLEU values is not the BLEU of the set."""
        return _scores(metric, self.statistics, np.ones(self.num_captions))

    def resampled(self, metric: Metric, weights: Float64Array) -> Float64Array:
        """The score of m sets, shape (m,), where caption i occurs `weights[j, i]` times in set j."""
        return _scores(metric, weights @ self.statistics, weights.sum(axis=1))

    def to_dict(self) -> dict[str, str | int | float]:
        """Every metric by its name, and what must be known to compare it."""
        return {
            "tokenisation": self.tokenisation.value,
            "num_captions": self.num_captions,
            **{metric.value: self.score(metric) for metric in Metric},
            **self.definitions(),
        }

    def definitions(self) -> dict[str, str]:
        """A line about each metric, for reports; keys are `<metric>_is`."""
        return {
            "bleu_1_is": "corpus BLEU of single tokens with brevity penalty (sacrebleu)",
            "bleu_1_precision_is": "corpus precision of single tokens, no brevity penalty",
            "bleu_4_is": "corpus BLEU of 1 to 4 tokens with brevity penalty, smoothing 'exp' (sacrebleu)",
            "meteor_is": f"METEOR 2007 as in nltk, mean over captions; matches {self.meteor_matching}",
            "rouge_l_is": f"F measure of the longest common subsequence, recall weight {RECALL_WEIGHT} (COCO), mean",
        }


def score_captions(
    captions: Sequence[str], references: Sequence[Sequence[str]], tokenisation: Tokenisation
) -> CaptionScores:
    """Scores of `captions`, each against one or more `references`. An empty caption is legal and scores 0.

    Raises `InvalidRequestError` that lists every caption without a usable reference, and where there are no captions;
    `UnsupportedError` where a library is missing.
    """
    if len(captions) != len(references) or not captions:
        raise InvalidRequestError(
            f"{len(captions)} captions with references for {len(references)}; legal: equally many, 1 or more.",
            field="captions",
        )
    wanted = [[tokenise(text, tokenisation) for text in texts] for texts in references]
    if problems := list(_without_reference(wanted)):
        raise InvalidRequestError("; ".join(problems) + ".", field="references", remedy="Drop it or write it.")
    meteor = system_meteor(tokenisation.language)
    rows = np.empty((len(captions), NUM_COLUMNS))
    for row, caption, texts in zip(rows, captions, wanted, strict=True):
        tokens = tokenise(caption, tokenisation)
        row[: bleu.NUM_COLUMNS] = bleu.statistics(tokens, texts)
        row[_METEOR] = meteor(tokens, texts)
        row[_ROUGE_L] = rouge_l(tokens, texts)
    rows.flags.writeable = False
    return CaptionScores(tokenisation=tokenisation, meteor_matching=meteor.matching, statistics=rows)


def _without_reference(wanted: Sequence[Sequence[Sequence[str]]]) -> Iterator[str]:
    for number, texts in enumerate(wanted):
        if not texts:
            yield f"caption {number} has no reference"
        elif not all(texts):
            yield f"caption {number} has an empty reference"


def _scores(metric: Metric, sums: Float64Array, counts: Float64Array) -> Float64Array:
    """Of m sets, shape (m,), from their sums over captions, shape (m, NUM_COLUMNS), and their sizes, shape (m,)."""
    if metric is Metric.BLEU_1:
        return bleu.bleu(sums, 1)
    if metric is Metric.BLEU_4:
        return bleu.bleu(sums, bleu.MAX_ORDER)
    if metric is Metric.BLEU_1_PRECISION:
        return bleu.unigram_precision(sums)
    mean: Float64Array = 100 * sums[:, _METEOR if metric is Metric.METEOR else _ROUGE_L] / counts
    return mean
