"""Aggregated figures and the tables that they fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from edgedraft.bench import published
from edgedraft.bench.aggregate import cells_of
from edgedraft.bench.results import Row, TextFigure
from edgedraft.bench.tables import Table, all_tables

MakeRow = Callable[..., Row]


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    return {table.id: table for table in all_tables(cells_of(rows))}


def test_seeds_are_put_together_by_their_tokens(make_row: MakeRow) -> None:
    longer = [TextFigure(id="t0", total_ms=9_000.0, num_tokens=90)]
    rows = [make_row(10.0), make_row(100.0, seed=1, num_tokens=90, texts=longer)]
    (result,) = cells_of(rows)[0].results
    assert result.tpt_ms == pytest.approx((60 * 10 + 90 * 100) / 150)
    assert result.mean("target_passes_per_token") == pytest.approx(0.2)
    assert result.mean("ecs_j_per_100") is None
    assert result.interval_ms[0] < result.tpt_ms < result.interval_ms[1]


def test_results_are_ordered_and_found_by_strategy_and_settings(make_row: MakeRow) -> None:
    rows = [
        make_row(strategy="pipesd", tuned=True),
        make_row(strategy="pipesd"),
        make_row(strategy="cloud-only", numbers={}),
        make_row(strategy="pipesd", tuned=True, live=True),
    ]
    (cell,) = cells_of(rows)
    assert [each.label for each in cell.simulated] == ["cloud-only", "pipesd (paper)", "pipesd (tuned)"]
    tuned, paper, alone, live = (
        cell.get("pipesd"),
        cell.get("pipesd", tuned=False),
        cell.get("cloud-only", tuned=True),
        cell.get("pipesd", live=True),
    )
    found = [(each.strategy, each.first.tuned, each.first.live) for each in (tuned, paper, alone, live) if each]
    assert found == [
        ("pipesd", True, False),
        ("pipesd", False, False),
        ("cloud-only", False, False),
        ("pipesd", True, True),
    ]
    assert cell.get("flow") is None


def test_cells_are_ordered_by_the_numbers_in_their_names(make_row: MakeRow) -> None:
    names = ["grid/a/rtt_ms=5", "grid/a/rtt_ms=20", "grid/a/rtt_ms=100", "grid/b/rtt_ms=2.5"]
    assert [cell.name for cell in cells_of([make_row(scenario=name) for name in reversed(names)])] == names


def test_a_speed_up_is_paired_and_needs_the_same_texts(make_row: MakeRow) -> None:
    ours, baseline = cells_of([make_row(50.0), make_row(75.0, strategy="vanilla")])[0].results[::-1]
    assert ours.strategy == "pipesd"
    ratio = ours.speed_up_over(baseline)
    assert ratio == (pytest.approx(1.5), (pytest.approx(1.5), pytest.approx(1.5)))
    other = make_row(75.0, strategy="vanilla", texts=[TextFigure(id="x", total_ms=1.0, num_tokens=1)])
    ours, baseline = cells_of([make_row(50.0), other])[0].results[::-1]
    assert ours.speed_up_over(baseline) is None


def paper_rows(make_row: MakeRow, **fields: object) -> list[Row]:
    times = {"vanilla": 90.0, "hsl": 60.0, "edgellm": 52.0, "pipesd": 50.0}
    return [make_row(tpt_ms, strategy=name, **fields) for name, tpt_ms in times.items()]


def test_the_papers_table_has_the_published_figures_beside_ours(make_row: MakeRow) -> None:
    found = tables(paper_rows(make_row))
    assert found["paper"].rows == [["S1", "code", 90.0, 194, 60.0, 155, 52.0, 153, 50.0, 129]]
    assert len(found["paper"].columns) == len(found["paper"].rows[0])
    rows = found["speed-up"].rows
    assert [(row[2], row[-1]) for row in rows] == [("vanilla", "yes"), ("hsl", "yes"), ("edgellm", "no")]
    assert rows[0][3] == pytest.approx(1.8)
    assert rows[0][6] == pytest.approx(194 / 129)
    assert found["speed-up"].note.startswith("2 of 3 within")


@pytest.mark.parametrize("fields", [{"regime": "ids"}, {"tuned": True}, {"scenario": "mine/code"}, {"dataset": "chat"}])
def test_only_the_papers_own_cells_stand_beside_it(make_row: MakeRow, fields: dict[str, object]) -> None:
    assert not {"paper", "speed-up"} & tables(paper_rows(make_row, **fields)).keys()


def test_the_ablation_needs_all_its_strategies(make_row: MakeRow) -> None:
    rows = [make_row(tpt_ms / 2, strategy=name) for name, tpt_ms in published.ABLATION_TPT_MS.items()]
    table = tables(rows)["ablation"]
    assert [row[1] for row in table.rows] == [f"{name} (paper)" for name in published.ABLATION_TPT_MS]
    assert all(row[5] == pytest.approx(row[7]) for row in table.rows), "half the published times, the same ratios"
    assert "ablation" not in tables(rows[1:])
    both = tables([*rows, *(make_row(1.0, strategy=name, tuned=True) for name in published.ABLATION_TPT_MS)])[
        "ablation"
    ]
    assert [row[1] for row in both.rows if "tuned" in str(row[1])] == ["pipesd/no-pipeline (tuned)", "pipesd (tuned)"]


def test_upload_policies_are_compared_under_the_same_settings(make_row: MakeRow) -> None:
    times = {"pipesd": 50.0, "pipesd/immediate": 60.0, "pipesd/greedy": 55.0, "pipesd/whole": 75.0}
    rows = [make_row(tpt_ms, strategy=name) for name, tpt_ms in times.items()]
    (row,) = tables(rows)["uploads"].rows
    assert row == ["s1/paper/code", "paper", 50.0, 60.0, 55.0, 75.0, 1.2, 1.1, 1.5]
    assert "uploads" not in tables([*rows[1:], make_row(40.0, strategy="pipesd", tuned=True)])


def test_the_yardsticks_say_where_flow_stands(make_row: MakeRow) -> None:
    def cell(name: str, flow_ms: float, bound_ms: float) -> list[Row]:
        fields = {"scenario": name, "regime": "ids", "bound_ms": bound_ms}
        return [
            make_row(30.0, strategy="cloud-only", numbers={}, **fields),
            make_row(40.0, strategy="pipesd", tuned=True, **fields),
            make_row(flow_ms, strategy="flow", numbers={}, **fields),
        ]

    rows = [*cell("grid/a", 20.0, 25.0), *cell("grid/b", 33.0, 50.0), *cell("grid/c", 32.0, 50.0)]
    table = tables(rows)["yardsticks"]
    assert [row[0] for row in table.rows] == ["grid/a", "grid/b", "grid/c"]
    assert [row[5] for row in table.rows] == [pytest.approx(0.8), pytest.approx(1.1), pytest.approx(32 / 30)]
    assert "at most 1.10" in table.note
    assert "less than both in 1 of 3 cells (33 %)" in table.note
    assert "1.45 times as fast as PipeSD" in table.note
    assert "1.21 at worst" in table.note


def test_live_stands_beside_its_simulated_twin(make_row: MakeRow) -> None:
    rows = [
        make_row(50.0),
        make_row(52.0, live=True),
        make_row(40.0, tuned=True),
        make_row(41.0, strategy="hsl", live=True),
    ]
    table = tables(rows)["live"]
    assert table.rows == [["s1/paper/code", "pipesd (paper)", 50.0, 52.0, pytest.approx(4.0)]]
    assert "At most 4.0 %" in table.note


def test_edges_energy_passes_and_searches_come_when_there_are_rows(make_row: MakeRow) -> None:
    rows = [make_row(50.0 + edges, scenario=f"edges/code/edges={edges}", edges=edges) for edges in (2, 1)]
    assert [row[3:5] for row in tables(rows)["edges"].rows] == [[1, 51.0], [2, 52.0]]
    assert "edges" not in tables(rows[1:])
    assert tables([make_row(ecs_j_per_100=42.0, energy_kind="modelled")])["energy"].rows == [
        ["s1/paper/code", "pipesd (paper)", 42.0, "modelled", 56]
    ]
    flows = [make_row(strategy=name, numbers={}) for name in ("flow", "flow/bubble", "flow/none")]
    assert [row[1] for row in tables(flows)["passes"].rows] == ["flow", "flow/bubble", "flow/none"]
    assert not {"edges", "energy", "passes", "searches", "live"} & tables([make_row()]).keys()
    found = all_tables(cells_of([make_row()]), [{"search": "grid", "ms": 40.0}])
    assert [table.rows for table in found if table.id == "searches"] == [[["grid", 40.0]]]


def test_every_table_fits_its_columns_and_json(make_row: MakeRow) -> None:
    for table in tables(paper_rows(make_row)).values():
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert len(table.to_dict()["rows"]) == len(table.rows)  # type: ignore[arg-type]
