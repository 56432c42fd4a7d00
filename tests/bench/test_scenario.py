"""Scenarios: how they expand, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.bench.baselines import entry_named
from edgedraft.bench.scenario import Settings, built_in_names, load_cells, parse_cells
from edgedraft.errors import InvalidRequestError

SMALL = """
name = "small"
title = "A small one"
dataset = "code"
regime = "ids"
strategies = ["vanilla"]
edge.draft_ms = 20.0
cloud.step_ms = 30.0
[link]
rtt_ms = 60.0
"""


def test_every_built_in_scenario_names_strategies_that_there_are() -> None:
    cells = load_cells(built_in_names())
    assert len({cell.name for cell in cells}) == len(cells)
    for label in {label for cell in cells for label in cell.strategies}:
        assert entry_named(label)


@pytest.mark.parametrize("name", ["s1", "s2", "s3", "s4"])
def test_the_papers_scenarios_have_both_regimes_and_both_kinds_of_text(name: str) -> None:
    cells = load_cells([name])
    assert [cell.name for cell in cells] == [
        f"{name}/{regime}/{dataset}" for regime in ("paper", "ids") for dataset in ("code", "maths")
    ]
    assert all(cell.settings == (Settings.PAPER, Settings.TUNED) and cell.max_tokens == 128 for cell in cells)


def test_the_papers_numbers_reach_the_link_in_bytes_and_seconds() -> None:
    first, fourth = load_cells(["s1"])[0], load_cells(["s4"])[0]
    assert first.edge.draft_s == pytest.approx(0.036)
    assert (first.link.bytes_per_s("up"), first.link.bytes_per_s("down")) == (2.5e6, 25e6)
    assert fourth.link.range_bytes_per_s("up") == (1.25e6, 10e6)
    assert fourth.link.bytes_per_s("up") == 10e6
    assert [load_cells([name])[0].edge.draft_s for name in ("s2", "s3")] == [pytest.approx(0.07), pytest.approx(0.145)]


def test_the_grid_is_the_product_of_its_lists_and_names_its_cells() -> None:
    cells = load_cells(["grid"])
    assert len(cells) == 3 * 3 * 5
    assert cells[0].name == "grid/code/draft_ms=5/rtt_ms=10"
    assert (cells[-1].name, cells[-1].link.rtt_ms, cells[-1].edge.draft_s) == (
        "grid/chat/draft_ms=36/rtt_ms=300",
        300,
        0.036,
    )


def test_only_keeps_the_cells_with_that_value() -> None:
    cells = load_cells(["grid"], {"dataset": "chat", "link.rtt_ms": "300"})
    assert [cell.edge.draft_ms for cell in cells] == [5, 20, 36]
    with pytest.raises(InvalidRequestError, match=r"no cell with dataset=verse"):
        load_cells(["grid"], {"dataset": "verse"})
    with pytest.raises(InvalidRequestError, match=r"unknown field link\.rtt\.") as error:
        load_cells(["grid"], {"link.rtt": "300"})
    assert error.value.remedy == "Did you mean rtt_ms?"


def test_the_digest_tells_any_other_cell() -> None:
    cell = parse_cells(SMALL, "x")[0]
    assert parse_cells(SMALL, "y")[0].digest == cell.digest
    assert parse_cells(SMALL.replace("60.0", "61.0"), "x")[0].digest != cell.digest


@pytest.mark.parametrize(
    ("added", "field", "said"),
    [
        ("jiter_ms = 1.0", "link.jiter_ms", "Did you mean jitter_ms?"),
        ("[cloud_]\nstep_ms = 1.0", "cloud_.step_ms", "There are: name,"),
        ("[edge.device]\nname = 1", "edge.device.name", "unknown field edge.device.name"),
        ("[grid]\nlink.rtt = [1.0]", "link.rtt", "Did you mean rtt_ms?"),
        ("[grid]\nlink.rtt_ms = [1.0]", "grid.link.rtt_ms", "contradict"),
        ("[grid]\ndataset = 'code'", "grid.dataset", "legal: a list of values"),
        ("[grid]\nedges = []", "grid.edges", "legal: a list of values"),
        ("up_mbit_per_s = 20.0\nup_range_mbit_per_s = [1.0, 2.0]", "link.up_mbit_per_s", "contradict"),
        ("up_range_mbit_per_s = [1.0, 2.0]", "link.change_every_s", "one is missing"),
        ("change_every_s = 20.0", "link.change_every_s", "one is missing"),
        ("up_range_mbit_per_s = [2.0, 1.0]\nchange_every_s = 20.0", "link.up_range_mbit_per_s", "[lowest, highest]"),
        ("down_mbit_per_s = 0.0", "link.down_mbit_per_s", "0.001 or more"),
        ("startup_ms = -1.0", "link.startup_ms", "0 to 600000 milliseconds"),
        ("startup_ms = nan", "link.startup_ms", "0 to 600000 milliseconds"),
        ("up_mbit_per_s = 1e-300", "link.up_mbit_per_s", "0.001 or more"),
        ("up_range_mbit_per_s = [1.0, 2.0]\nchange_every_s = 1e-9", "link.change_every_s", "0.01 seconds or more"),
        ("jitter_ms = '5'", "link.jitter_ms", "Expected `float`, got `str`"),
    ],
)
def test_what_is_wrong_is_named(added: str, field: str, said: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        parse_cells(SMALL + added, "my.toml")
    assert error.value.field == field
    assert said in str(error.value)
    assert "my.toml" in str(error.value)


@pytest.mark.parametrize(
    ("line", "other", "field", "said"),
    [
        ("edge.draft_ms = 20.0", "edge.draft_ms = 20.0\nedge.device = 'iot'", "edge.draft_ms", "contradict"),
        ("edge.draft_ms = 20.0", "edge.jitter = 0.1", "edge.draft_ms", "neither device nor draft_ms"),
        ("edge.draft_ms = 20.0", "edge.device = 'toaster'", "edge.device", "toaster"),
        ("edge.draft_ms = 20.0", "edge.draft_ms = 20.0\nedge.jitter = 1.0", "edge.jitter", "0 to below 1"),
        ("cloud.step_ms = 30.0", "cloud.per_draft_ms = 1.0", "cloud", "missing required field `step_ms`"),
        (
            "cloud.step_ms = 30.0",
            "cloud.step_ms = 1.0\ncloud.max_batch_sessions = 0",
            "cloud.max_batch_sessions",
            "1 to 256",
        ),
        ("dataset = 'code'", "", "scenario", "missing required field `dataset`"),
        ("dataset = 'code'", "dataset = 'chat'\nsettings = ['paper']", "settings", "no numbers for dataset 'chat'"),
        ("strategies = ['vanilla']", "strategies = []", "strategies", "at least one"),
        ("strategies = ['vanilla']", "strategies = ['a', 'a']", "strategies", "each name once"),
        ("regime = 'ids'", "regime = 'ids'\nedges = 0", "edges", "1 to 64"),
        ("regime = 'ids'", "regime = 'ids'\nmax_tokens = 0", "max_tokens", "1 to 1000000"),
        ("regime = 'ids'", f"regime = 'ids'\nmax_tokens = {10**30}", "max_tokens", "1 to 1000000"),
        ("regime = 'ids'", "regime = 'ids'\nmax_texts = 0", "max_texts", "1 to 1000000"),
        ("regime = 'ids'", "regime = 'ids'\nseeds = 0", "seeds", "1 to 1000"),
        ("regime = 'ids'", "regime = [", "scenario", "no TOML"),
        ("regime = 'ids'", "regime = " + 2_000 * "[", "scenario", "no TOML"),
        ("regime = 'ids'", "regime = 'all'", "regime", "There are: paper, ids."),
        ("regime = 'ids'", "regime = 'ids'\nsettings = ['tuned', 'tuned']", "settings", "settings is tuned, tuned;"),
        ("name = 'small'", "", "name", "name is empty"),
        ("name = 'small'", "name = ['small']", "name", "name is ['small']"),
        ("name = 'small'", "grid.name = ['a', 'b']", "grid.name", "is the scenario's"),
        ("edge.draft_ms = 20.0", "edge = 5\ngrid.edge.draft_ms = [1.0]", "grid.edge.draft_ms", "contradict"),
        ("edge.draft_ms = 20.0", "edge.draft_ms = 600_001.0", "edge.draft_ms", "0 to 600000 milliseconds"),
        ("cloud.step_ms = 30.0", "cloud.step_ms = 0.0", "cloud.step_ms", "above 0"),
    ],
)
def test_a_value_that_contradicts_is_named(line: str, other: str, field: str, said: str) -> None:
    text = SMALL.replace('"', "'")
    assert line in text
    with pytest.raises(InvalidRequestError) as error:
        parse_cells(text.replace(line, other), "my.toml")
    assert error.value.field == field
    assert said in str(error.value)


def test_values_that_differ_little_are_two_cells() -> None:
    empty_table = SMALL.replace("rtt_ms = 60.0\n", "")
    cells = parse_cells(empty_table + "[grid]\nlink.rtt_ms = [100.0, 100.0001]", "x")
    assert [cell.name for cell in cells] == ["small/rtt_ms=100", "small/rtt_ms=100.0001"]


def test_a_grid_without_end_is_refused() -> None:
    grid = f"[grid]\nedges = {list(range(1, 65))}\nseeds = {list(range(1, 101))}"
    with pytest.raises(InvalidRequestError, match="grid is 6400 cells"):
        parse_cells(SMALL + grid, "x")


def test_a_scenario_is_found_by_name_or_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL, encoding="utf-8")
    assert load_cells([str(path)])[0].name == "small"
    with pytest.raises(InvalidRequestError) as error:
        load_cells(["gird"])
    assert error.value.remedy == "There are: grid."
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        load_cells([str(tmp_path / "none.toml")])
    with pytest.raises(InvalidRequestError, match="comes twice"):
        load_cells([str(path), str(path)])
