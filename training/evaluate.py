"""Edge only, cloud only, and single tokens judged where the edge is unsure: `python -m training.evaluate CACHE ...`.

The rule is that of sparse verification with R = 1: where the edge's highest probability is below `tau`, the token is
the cloud's most likely one, else the edge's. So every caption is a walk through one tree of prefixes for each clip,
in which each node is computed once for all taus. `tau` is chosen on dev, and read on test.
"""

from __future__ import annotations

import argparse
import functools
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgedraft.backends.captioner_file import load_captioner
from edgedraft.backends.captioner_model import Captioner, CaptionerText
from edgedraft.backends.captioner_tokenizer import EOS_ID, CaptionerTokenizer
from edgedraft.caption.attributes import attribute_accuracy
from edgedraft.caption.phrases import LANGUAGES
from edgedraft.core.sequence import common_prefix_length
from edgedraft.speech_features import FeatureDtype, SpeechFeatures
from edgedraft.types import Float32Array, Float64Array
from training.data import SPECS, Example, load

MAX_TOKENS = 160
TAUS = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
WISHED_SHARE_OF_GAP = 0.75
NUM_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Node:
    """What the edge says after a prefix."""

    token_id: int
    confidence: float
    entropy: float


class Follower:
    """One model, one recording: rows after any prefix, computing only what differs from the prefix before."""

    def __init__(self, model: Captioner, features: SpeechFeatures) -> None:
        self._model, self._heard = model, model.hear(features)
        self._text = CaptionerText(model, MAX_TOKENS + 2)

    def row(self, prefix: Sequence[int]) -> Float32Array:
        self._text.rollback(common_prefix_length(self._text.token_ids, prefix))
        for token_id in prefix[len(self._text.token_ids) :]:
            self._text.append(token_id, self._heard)
        return self._text.last_row(self._heard)


@dataclass(slots=True)
class Walk:
    """The tree of one clip."""

    edge: Follower
    cloud: Follower
    prompt: list[int]
    _edge_nodes: dict[tuple[int, ...], Node] = field(default_factory=dict)
    _cloud_ids: dict[tuple[int, ...], int] = field(default_factory=dict)

    def edge_node(self, prefix: list[int]) -> Node:
        key = tuple(prefix)
        if key not in self._edge_nodes:
            row = self.edge.row(prefix).astype(np.float64)
            probs = np.exp(row - row.max())
            probs /= probs.sum()
            entropy = float(-(probs * np.log(probs + 1e-30)).sum())
            self._edge_nodes[key] = Node(int(row.argmax()), float(probs.max()), entropy)
        return self._edge_nodes[key]

    def cloud_id(self, prefix: list[int]) -> int:
        key = tuple(prefix)
        if key not in self._cloud_ids:
            self._cloud_ids[key] = int(self.cloud.row(prefix).argmax())
        return self._cloud_ids[key]

    def caption(self, judge: Callable[[Node], bool], *, edge: bool = True) -> tuple[list[int], int, int]:
        """Ids without prompt and eos, how many tokens were judged, and how many were drafted (eos is one)."""
        ids, judged = list(self.prompt), 0
        while len(ids) < MAX_TOKENS:
            node = self.edge_node(ids) if edge else None
            token_id = node.token_id if node is not None else -1
            if node is None or judge(node):
                judged += 1
                token_id = self.cloud_id(ids)
            ids.append(token_id)
            if token_id == EOS_ID:
                break
        length = len(ids) - len(self.prompt)
        return [token_id for token_id in ids[len(self.prompt) :] if token_id != EOS_ID], judged, length


@functools.cache
def words(text: str, language: str) -> tuple[str, ...]:
    """English by word and mark, Chinese by jieba."""
    if language == "en":
        return tuple(re.findall(r"\w+|[^\w\s]", text))
    import jieba

    jieba.setLogLevel(logging.WARNING)
    return tuple(jieba.cut(text))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one way of captioning, clip by clip. `counts`: words right, words written, words in the reference."""

    counts: Float64Array
    judged: Float64Array
    drafted: Float64Array
    texts: list[str]

    def bleu_1(self, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        """Corpus BLEU-1 with brevity penalty, times 100, of the clips `chosen`."""
        right, written, wanted = self.counts[chosen].sum(axis=0)
        return float(100 * right / written * min(1.0, np.exp(1 - wanted / written)))


def outcome(
    walks: Sequence[Walk],
    examples: Sequence[Example],
    tokenizer: CaptionerTokenizer,
    judge: Callable[[Node], bool],
    *,
    edge: bool = True,
) -> Outcome:
    counts, judged, drafted, texts = [], [], [], []
    for walk, example in zip(walks, examples, strict=True):
        ids, num_judged, length = walk.caption(judge, edge=edge)
        text = b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace")
        written, wanted = (Counter(words(one, example.language)) for one in (text, example.captions[0]))
        counts.append([(written & wanted).total(), written.total(), wanted.total()])
        judged.append(num_judged)
        drafted.append(length)
        texts.append(text)
    return Outcome(np.array(counts, float), np.array(judged, float), np.array(drafted, float), texts)


class Split:
    """All clips of a split with their trees."""

    def __init__(
        self, cache: Path, name: str, edge_path: Path, cloud_path: Path, per_language: int, dtype: str
    ) -> None:
        edge, self.tokenizer = load_captioner(edge_path)
        cloud, _ = load_captioner(cloud_path)
        names = {spec: feature for feature, spec in SPECS.items()}
        edge_name, cloud_name = names[edge.config.spec], names[cloud.config.spec]
        self.examples = load(cache, name, [*{edge_name, cloud_name}], per_language)

        def heard(example: Example, feature: str, kind: FeatureDtype) -> SpeechFeatures:
            return SpeechFeatures.of(SPECS[feature], example.features[feature], kind, example.level_db)

        self.walks = [
            Walk(
                Follower(edge, heard(example, edge_name, FeatureDtype.FLOAT16)),
                Follower(cloud, heard(example, cloud_name, FeatureDtype(dtype))),
                self.tokenizer.caption_prompt(example.language),
            )
            for example in self.examples
        ]
        languages = np.array([example.language for example in self.examples])
        self.rows = {language: np.flatnonzero(languages == language) for language in LANGUAGES}
        self.edge = self.outcome(lambda node: False)
        self.cloud = self.outcome(lambda node: True, edge=False)

    def outcome(self, judge: Callable[[Node], bool], *, edge: bool = True) -> Outcome:
        return outcome(self.walks, self.examples, self.tokenizer, judge, edge=edge)

    def closed(self, found: Outcome, language: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        low, high = self.edge.bleu_1(rows), self.cloud.bleu_1(rows)
        return (found.bleu_1(rows) - low) / max(high - low, 1e-9)

    def show(self, name: str, found: Outcome) -> None:
        """One line a language: BLEU-1 and attributes with 95 % intervals, share judged, share of the gap closed."""
        for language, rows in self.rows.items():
            generator = np.random.default_rng(0)
            drawn = [generator.choice(rows, len(rows)) for _ in range(NUM_RESAMPLES)]
            low, high = np.percentile([found.bleu_1(some) for some in drawn], [2.5, 97.5])
            truths = [self.examples[row].attributes for row in rows]
            shares = attribute_accuracy([found.texts[row] for row in rows], truths, [language] * len(rows))
            closed = np.percentile([self.closed(found, language, some) for some in drawn], [2.5, 97.5])
            share = found.judged[rows].sum() / found.drafted[rows].sum()
            print(
                f"{name} {language}: BLEU-1 {found.bleu_1(rows):.1f} [{low:.1f}, {high:.1f}]; attributes "
                f"{100 * shares['mean']:.1f} %, affect {100 * shares['affect']:.1f} %; judged {100 * share:.1f} %; "
                f"gap closed {100 * self.closed(found, language, rows):.0f} % "
                f"[{100 * closed[0]:.0f}, {100 * closed[1]:.0f}]",
                flush=True,
            )
            if name.startswith(("edge", "cloud")):
                print("   " + ", ".join(f"{key} {100 * value:.0f}" for key, value in shares.items()))


def share_judged(found: Outcome) -> float:
    return float(found.judged.sum() / found.drafted.sum())


def choose(dev: Split) -> float:
    """The tau of the smallest share that closes 75 % of the gap on dev in both languages; prints the curve."""
    chosen = TAUS[-1]
    for tau in reversed(TAUS):
        found = dev.outcome(lambda node, tau=tau: node.confidence < tau)  # type: ignore[misc]
        closed = [dev.closed(found, language, rows) for language, rows in dev.rows.items()]
        print(f"dev tau {tau}: judged {100 * share_judged(found):.1f} %, gap closed "
              + ", ".join(f"{100 * value:.0f} %" for value in closed), flush=True)  # fmt: skip
        if min(closed) < WISHED_SHARE_OF_GAP:
            break
        chosen = tau
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("edge", type=Path)
    parser.add_argument("cloud", type=Path)
    parser.add_argument("--clips", type=int, default=500, help="a language")
    parser.add_argument("--test", action="store_true", help="read the chosen tau on test")
    parser.add_argument("--dtype", default="int8", help="how the cloud's features travel")
    args = parser.parse_args()
    dev = Split(args.cache, "dev", args.edge, args.cloud, args.clips, args.dtype)
    dev.show("edge, dev", dev.edge)
    dev.show("cloud, dev", dev.cloud)
    tau = choose(dev)
    print(f"tau {tau}")
    if args.test:
        test = Split(args.cache, "test", args.edge, args.cloud, args.clips, args.dtype)
        test.show("edge, test", test.edge)
        test.show("cloud, test", test.cloud)
        test.show(f"max-prob < {tau}, test", test.outcome(lambda node: node.confidence < tau))
        random = np.random.default_rng(0)
        share = share_judged(test.outcome(lambda node: node.confidence < tau))
        test.show("random gate, test", test.outcome(lambda node: bool(random.random() < share)))


if __name__ == "__main__":
    main()
