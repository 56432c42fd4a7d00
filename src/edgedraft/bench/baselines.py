"""Strategies as the bench names them: the paper's numbers, and numbers tuned on the very cell they are compared in.

Tuning searches each strategy's numbers on *all* texts of the cell and its first seed, which favours the baselines: no
user could tune so well. First a coarse grid over all numbers at once, then once more between the best point and its
neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from edgedraft.bench.scenario import Dataset
from edgedraft.errors import InvalidRequestError

Numbers = dict[str, float]
_THRESHOLDS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.99)
_PAIR_THRESHOLDS = (0.1, 0.35, 0.6, 0.8, 0.92, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A number of a strategy and the values of the coarse grid, ascending."""

    name: str
    values: Sequence[float]
    whole: bool = False

    def around(self, value: float) -> list[float]:
        """`value` and the middles between it and its neighbours on the coarse grid."""
        place = list(self.values).index(value)
        neighbours = [self.values[index] for index in (place - 1, place + 1) if 0 <= index < len(self.values)]
        middles = [(value + neighbour) / 2 for neighbour in neighbours]
        return sorted({value, *(map(round, middles) if self.whole else middles)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the bench: a strategy of the catalogue, numbers that are fixed, the paper's, and those to be tuned.

    `told`: what of the link and the edge it is told besides: `cost`, `draft_s`. `objective`: steered while it runs, as
    live requests are; None: its numbers stay.
    """

    strategy: str
    objective: str | None = None
    told: Sequence[str] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)
    paper: Mapping[Dataset, Numbers] = field(default_factory=dict)
    knobs: Sequence[Knob] = ()


_PLAN = ("cost", "draft_s")
_TOKEN = Knob(name="token_threshold", values=_PAIR_THRESHOLDS)
_SEQUENCE = Knob(name="sequence_threshold", values=_PAIR_THRESHOLDS)
_PAIR: Sequence[Knob] = (_TOKEN, _SEQUENCE)
# The paper gives none for PipeSD, whose tuner finds its own; these are the authors' (HumanEval, GSM8K).
_PIPESD_PAPER: Mapping[Dataset, Numbers] = {
    Dataset.CODE: {"token_threshold": 0.90, "sequence_threshold": 0.95},
    Dataset.MATHS: {"token_threshold": 0.80, "sequence_threshold": 0.50},
}


def _both(**numbers: float) -> Mapping[Dataset, Numbers]:
    return {Dataset.CODE: dict(numbers), Dataset.MATHS: dict(numbers)}


def _paired(code: Numbers, maths: Numbers) -> Mapping[Dataset, Numbers]:
    return {Dataset.CODE: code, Dataset.MATHS: maths}


ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        "cloud-only": Entry(strategy="cloud-only"),
        "vanilla": Entry(
            strategy="vanilla",
            paper=_paired({"draft_length": 6}, {"draft_length": 4}),
            knobs=(Knob(name="draft_length", values=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48), whole=True),),
        ),
        "hsl": Entry(
            strategy="hsl",
            paper=_paired({"token_threshold": 0.99}, {"token_threshold": 0.7}),
            knobs=(Knob(name="token_threshold", values=_THRESHOLDS),),
        ),
        "edgellm": Entry(
            strategy="edgellm",
            # Factors of the authors' own runs, which are kinder to it than the 0.5 of the text.
            paper=_paired({"sequence_threshold": 0.92, "factor": 0.95}, {"sequence_threshold": 0.5, "factor": 0.7}),
            knobs=(
                Knob(name="sequence_threshold", values=(0.2, 0.5, 0.8, 0.95)),
                Knob(name="factor", values=(0.3, 0.5, 0.7, 0.85, 0.95)),
            ),
        ),
        "pipesd": Entry(strategy="pipesd", told=_PLAN, paper=_PIPESD_PAPER, knobs=_PAIR),
        "auto": Entry(strategy="auto", objective="latency"),
        "auto/cost": Entry(strategy="auto", objective="cost"),
        "pipesd/steered": Entry(strategy="pipesd", objective="latency"),
        "flow": Entry(strategy="flow", told=("cost",), fixed={"assist": "always"}),
        "flow/bubble": Entry(strategy="flow", told=("cost",), fixed={"assist": "bubble"}),
        "flow/none": Entry(strategy="flow", told=("cost",), fixed={"assist": "none"}),
        "pipesd/no-pipeline": Entry(strategy="pipesd/no-pipeline", paper=_PIPESD_PAPER, knobs=_PAIR),
        "pipesd/fixed": Entry(
            strategy="pipesd/fixed",
            told=_PLAN,
            # The text says 6 for code; the authors' own runs drafted 8.
            paper=_paired({"draft_length": 8}, {"draft_length": 4}),
            knobs=(Knob(name="draft_length", values=(1, 2, 3, 4, 6, 8, 12, 16, 24), whole=True),),
        ),
        "pipesd/token": Entry(
            strategy="pipesd/token",
            told=_PLAN,
            paper=_both(token_threshold=0.99),
            knobs=(Knob(name="token_threshold", values=_THRESHOLDS),),
        ),
        "pipesd/sequence": Entry(
            strategy="pipesd/sequence",
            told=_PLAN,
            paper=_both(sequence_threshold=0.95, factor=0.97),
            knobs=(
                Knob(name="sequence_threshold", values=(0.2, 0.5, 0.8, 0.95)),
                Knob(name="factor", values=(0.3, 0.5, 0.7, 0.85, 0.97)),
            ),
        ),
        "pipesd/immediate": Entry(strategy="pipesd/immediate", told=_PLAN, paper=_PIPESD_PAPER, knobs=_PAIR),
        "pipesd/greedy": Entry(strategy="pipesd/greedy", told=_PLAN, paper=_PIPESD_PAPER, knobs=_PAIR),
        "pipesd/whole": Entry(strategy="pipesd/whole", told=_PLAN, paper=_PIPESD_PAPER, knobs=_PAIR),
    }
)


def entry_named(label: str) -> Entry:
    """What the bench runs under that label. Raises `InvalidRequestError` with the labels there are."""
    if label in ENTRIES:
        return ENTRIES[label]
    raise InvalidRequestError(
        f"strategies has '{label}', which is none of the bench's.",
        field="strategies",
        remedy=f"There are: {', '.join(ENTRIES)}.",
    )


# -- tuning ----------------------------------------------------------------------------------------------------------


def tuned(entry: Entry, tpt_s: Callable[[Numbers], float]) -> Numbers:
    """The numbers with the least `tpt_s`, which runs the cell with them; on a tie those that were tried first."""
    best, best_s = _least(_points(entry.knobs, [knob.values for knob in entry.knobs]), tpt_s, {})
    tried = {_frozen(best): best_s}
    around = [knob.around(best[knob.name]) for knob in entry.knobs]
    return _least(_points(entry.knobs, around), tpt_s, tried)[0]


def _points(knobs: Sequence[Knob], values: Sequence[Sequence[float]]) -> Iterator[Numbers]:
    for chosen in itertools.product(*values):
        yield {knob.name: value for knob, value in zip(knobs, chosen, strict=True)}


def _least(
    points: Iterator[Numbers], tpt_s: Callable[[Numbers], float], tried: Mapping[tuple[float, ...], float]
) -> tuple[Numbers, float]:
    timed = ((point, tried[_frozen(point)] if _frozen(point) in tried else tpt_s(point)) for point in points)
    return min(timed, key=lambda each: each[1])


def _frozen(numbers: Numbers) -> tuple[float, ...]:
    return tuple(numbers.values())
