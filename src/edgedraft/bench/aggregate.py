"""Rows of several seeds put together: one result per cell, strategy, settings and kind of run."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedraft.bench.baselines import ENTRIES
from edgedraft.bench.bootstrap import Interval, ratio_interval, tpt_interval
from edgedraft.bench.results import Row

_SEED = 0
_ORDER = list(ENTRIES)


@dataclass(frozen=True)
class Result:
    """Rows that differ in their seed alone. Figures over all of them; intervals over their texts."""

    rows: Sequence[Row]

    @property
    def first(self) -> Row:
        """For what all rows share."""
        return self.rows[0]

    @property
    def strategy(self) -> str:
        return self.first.strategy

    @property
    def label(self) -> str:
        """The strategy, and which numbers it ran with where it has any."""
        if not self.first.numbers:
            return self.strategy
        return f"{self.strategy} ({'tuned' if self.first.tuned else 'paper'})"

    @property
    def tpt_ms(self) -> float:
        return sum(row.tpt_ms * row.num_tokens for row in self.rows) / sum(row.num_tokens for row in self.rows)

    def mean(self, field: str) -> float | None:
        """A figure of the rows, averaged; None where a row has none."""
        values = [getattr(row, field) for row in self.rows]
        return None if None in values else sum(values) / len(values)

    @functools.cached_property
    def _texts(self) -> dict[str, tuple[float, int]]:
        totals_ms: dict[str, float] = defaultdict(float)
        num_tokens: dict[str, int] = defaultdict(int)
        for row in self.rows:
            for text in row.texts:
                totals_ms[text.id] += text.total_ms
                num_tokens[text.id] += text.num_tokens
        return {text_id: (totals_ms[text_id], num_tokens[text_id]) for text_id in sorted(totals_ms)}

    @property
    def interval_ms(self) -> Interval:
        """95 % interval of the time per token."""
        totals_ms, num_tokens = zip(*self._texts.values(), strict=True)
        return tpt_interval(totals_ms, num_tokens, np.random.default_rng(_SEED))

    def speed_up_over(self, other: Result) -> tuple[float, Interval] | None:
        """The other's time per token over ours, and its interval, paired by text; None where the texts differ."""
        if self._texts.keys() != other._texts.keys():
            return None
        theirs_ms, their_tokens = zip(*other._texts.values(), strict=True)
        ours_ms, our_tokens = zip(*self._texts.values(), strict=True)
        ratio = (sum(theirs_ms) / sum(their_tokens)) / (sum(ours_ms) / sum(our_tokens))
        rng = np.random.default_rng(_SEED)
        return ratio, ratio_interval(theirs_ms, their_tokens, ours_ms, our_tokens, rng)


@dataclass(frozen=True)
class CellResults:
    """All results of one cell, in the order of the bench's strategies; the paper's numbers before tuned ones."""

    name: str
    results: Sequence[Result]

    @property
    def scenario(self) -> str:
        """The scenario that the cell is of."""
        return self.name.partition("/")[0]

    @property
    def first(self) -> Row:
        return self.results[0].first

    def get(self, strategy: str, *, tuned: bool | None = None, live: bool = False) -> Result | None:
        """The result of that strategy; `tuned` None: the tuned one where there are both."""
        found = [each for each in self.results if each.strategy == strategy and each.first.live is live]
        found = [each for each in found if tuned is None or each.first.tuned is tuned or not each.first.numbers]
        return max(found, key=lambda each: each.first.tuned, default=None)

    @property
    def simulated(self) -> list[Result]:
        return [each for each in self.results if not each.first.live]


def cells_of(rows: Sequence[Row]) -> list[CellResults]:
    """Rows by cell, cells by name and the numbers in it, so that it does not matter which were finished first."""
    grouped: dict[str, dict[tuple[str, bool, bool], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=_cell_place):
        grouped[row.scenario][row.strategy, row.tuned, row.live].append(row)
    return [
        CellResults(name, [Result(results[key]) for key in sorted(results, key=_place)])
        for name, results in grouped.items()
    ]


def _cell_place(row: Row) -> tuple[list[tuple[float, str]], int]:
    """Words by the alphabet, numbers by their size, seeds upwards."""
    parts = re.split(r"(\d+(?:\.\d+)?)", row.scenario)
    return [(float(part), "") if part[:1].isdigit() else (-1.0, part) for part in parts], row.seed


def _place(key: tuple[str, bool, bool]) -> tuple[int, bool, bool]:
    strategy, tuned, live = key
    return _ORDER.index(strategy) if strategy in _ORDER else len(_ORDER), tuned, live
