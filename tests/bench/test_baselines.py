"""The bench's strategies, and the search for their numbers."""

from __future__ import annotations

import pytest

from edgedraft.bench.baselines import ENTRIES, Entry, Knob, Numbers, entry_named, tuned
from edgedraft.bench.scenario import Dataset, load_cells
from edgedraft.bench.simulated import strategy_of
from edgedraft.core.triggers import FixedLength
from edgedraft.errors import InvalidRequestError

X = Knob(name="x", values=(0.1, 0.3, 0.5, 0.9))
Y = Knob(name="y", values=(1, 4, 8), whole=True)


@pytest.mark.parametrize("label", ENTRIES)
def test_every_entry_makes_a_strategy_with_paper_and_tuned_numbers(label: str) -> None:
    cell, entry = load_cells(["s1"])[0], entry_named(label)
    corners: list[Numbers] = [{knob.name: knob.values[place] for knob in entry.knobs} for place in (0, -1)]
    for each in [*entry.paper.values(), *corners]:
        assert strategy_of(cell, entry, each).uses_cloud
    assert bool(entry.knobs) == bool(entry.paper), "what can be tuned has the paper's numbers too"
    assert all(set(paper) == {knob.name for knob in entry.knobs} for paper in entry.paper.values())


def test_a_whole_number_stays_whole_after_json() -> None:
    trigger = strategy_of(load_cells(["s1"])[0], ENTRIES["vanilla"], {"draft_length": 6.0}).trigger
    assert trigger == FixedLength(6)
    assert isinstance(trigger, FixedLength)
    assert isinstance(trigger.num_draft_tokens, int)


def test_tuning_looks_everywhere_and_then_around_the_best() -> None:
    tried: list[tuple[float, float]] = []

    def tpt_s(numbers: Numbers) -> float:
        tried.append((numbers["x"], numbers["y"]))
        return abs(numbers["x"] - 0.62) + abs(numbers["y"] - 6)

    best = tuned(Entry(strategy="vanilla", knobs=(X, Y)), tpt_s)
    assert best == {"x": pytest.approx(0.7), "y": 6}
    assert tried[:12] == [(x, y) for x in X.values for y in Y.values]
    assert len(tried) == 12 + 3 * 3 - 1, "the best point of the coarse grid is not run again"
    assert isinstance(best["y"], int)


def test_at_the_edge_of_the_grid_there_is_one_neighbour() -> None:
    assert X.around(0.1) == [0.1, pytest.approx(0.2)]
    assert X.around(0.9) == [pytest.approx(0.7), 0.9]
    assert Y.around(1) == [1, 2]
    assert Knob(name="z", values=(2, 3), whole=True).around(2) == [2], "no whole number lies between"


def test_a_strategy_without_numbers_has_nothing_to_tune() -> None:
    assert tuned(ENTRIES["flow"], lambda numbers: 1.0) == {}


def test_an_unknown_label_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="'pipe-sd', which is none") as error:
        entry_named("pipe-sd")
    assert "pipesd/no-pipeline" in error.value.remedy


def test_datasets_with_paper_numbers_are_those_of_the_paper() -> None:
    assert {dataset for entry in ENTRIES.values() for dataset in entry.paper} == {Dataset.CODE, Dataset.MATHS}
