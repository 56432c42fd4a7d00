"""The report of a caption bench: tables, pictures, and what they stand on."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgedraft.bench import caption_figures, caption_live_figures, caption_report
from edgedraft.bench.caption_figures import caption_pictures, entropies_by_kind
from edgedraft.bench.caption_report import formulas, is_caption_run, origins, write_caption_report
from edgedraft.bench.caption_results import write_results
from edgedraft.bench.caption_tables import WIDE_CHARACTERS, caption_tables, quality_table, tokenisation_table
from edgedraft.bench.drawing import report_style
from edgedraft.bench.tables import Table
from edgedraft.caption.intervals import GapClosed
from edgedraft.caption.scoring import Metric
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.types import TokenKind

from .caption_made import LANGUAGES, around, made_clips, made_results
from .test_report import outline

PICTURES = ["quality-share", "time-rtt", "time-bandwidth", "sweep-rank", "sweep-length", "entropy", "bytes"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("captions")
    write_results(directory, made_results(), made_clips())
    return write_caption_report(directory).read_text(encoding="utf-8")


def _table(id_: str, **kind: bool) -> Table:
    return next(table for table in caption_tables(made_results(**kind)) if table.id == id_)  # type: ignore[arg-type]


def _row(table: Table, name: str) -> dict[str, object]:
    return dict(zip(table.columns, next(row for row in table.rows if row[0] == name), strict=True))


# -- tables ------------------------------------------------------------------------------------------------------------


def test_a_language_has_every_arm_with_scores_share_and_time() -> None:
    row = _row(_table("quality-en"), "ugsd")
    assert row["BLEU-1"] == "78.0 [77.0, 79.0]"
    assert row["gap closed %"] == "80 [70, 90]"
    assert row["attributes %"] == "80.0 [70.0, 90.0]"
    assert row["affect %"] is None  # not known
    assert (row["verified %"], row["ms"]) == (40.0, 1_200.0)
    assert "METEOR as in nltk" in _table("quality-en").note


def test_a_gap_too_small_to_divide_by_says_so() -> None:
    results = made_results()
    texts = results.arm("ugsd-sparse").languages[0].texts
    small = GapClosed(gap=around(1.0), share=None, reason="only 1 point")
    texts[0] = msgspec.structs.replace(texts[0], gap_closed=small)
    assert _row(quality_table(results, "en"), "ugsd-sparse")["gap closed %"] == "none: gap 1.0"


def test_a_brief_table_has_the_interval_of_bleu_1_alone() -> None:
    row = _row(quality_table(made_results(), "en", width=WIDE_CHARACTERS), "ugsd")
    assert row["BLEU-1"] == "78.0 [77.0, 79.0]"
    assert (row["METEOR"], row["attributes %"]) == ("78.0", "80.0")


def test_a_narrow_terminal_gets_a_table_that_fits() -> None:
    """With the longest name of an arm and the widest figures."""
    results = made_results()
    made = quality_table(results, "en", width=80)
    assert _row(made, "ugsd")["BLEU-1"] == "78.0"
    widest = {"arm": "sparse, log-probability", "gap closed %": "100 [100, 100]", "ms": "12,345"}
    assert sum(max(len(name), len(widest.get(name, "99.99"))) + 3 for name in made.columns) + 1 <= 80


def test_the_cloud_alone_verifies_nothing() -> None:
    """Its calls are not verdicts, and 0 would read as if it had not been called."""
    row = _row(_table("quality-en"), "cloud-only")
    assert (row["verified %"], row["calls"]) == (None, None)
    assert _row(_table("quality-en"), "edge-only")["calls"] is not None


def test_costs_are_of_all_languages() -> None:
    row = _row(_table("costs"), "ugsd-sparse")
    assert row["verified %"] == "12.5 [11.5, 13.5]"
    assert (row["feature B/s"], row["total ms"], row["silent %"]) == (500.0, 1_200.0, 25.0)
    assert "given edge, 25.00 ms a token" in _table("costs").note


def test_live_is_beside_virtual_time() -> None:
    table = _table("live")
    row = _row(table, "cloud-only")
    assert row["ITPS"] is None
    assert row["total / virtual"] == 1.25
    assert row["per token"] == pytest.approx(30 / 40)
    assert row["edge CPU %"] == pytest.approx(8)
    assert row["cloud RAM MiB"] == 80
    assert row["over edge-only"] == "1.020 [1.010, 1.030]"
    assert "No GPU." in table.note
    assert "All captions equal" in table.note
    assert not any(table.id == "live" for table in caption_tables(made_results(live=False)))


def test_every_table_says_of_how_many_clips_it_is() -> None:
    titles = {table.id: table.title for table in caption_tables(made_results())}
    assert (titles["quality-en"], titles["costs"]) == ("Captions in en, 2 clips", "What captions cost, 4 clips")
    assert (titles["points-1"], titles["live"]) == ("Sweep: rtt, 4 clips", "Live, 4 clips")
    assert titles["tuned"] == "Thresholds, 6 clips of the dev set"
    assert _row(_table("ratios"), "ugsd")["clips"] == 4
    assert [row[:3] for row in _table("ratios").rows[:3]] == [["ugsd", 4, "all"], ["ugsd", 2, "en"], ["ugsd", 2, "zh"]]
    captions = {picture.id: picture.caption for picture in caption_pictures(made_results(), made_clips())}
    for id_ in ("quality-share", "time-rtt", "time-bandwidth", "sweep-rank", "sweep-length"):
        assert "over 4 clips" in captions[id_], id_


WORDS = {"arm", "name", "language", "tokenisation", "edge", "measure", "reason", "gate", "unit", "forced", "controls"}


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value of a JSON object with the name of the field that holds it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(name if key in (*LANGUAGES, "value", "low", "high") else key, each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(name, each)
    else:
        yield name, value


def test_in_json_every_figure_is_a_number() -> None:
    tables = json.loads(json.dumps([table.to_dict() for table in caption_tables(made_results())]))
    found = [each for table in tables for row in table["rows"] for each in _leaves("", row)]
    assert {name for name, value in found if isinstance(value, str)} <= WORDS
    assert {table["id"] for table in tables} >= {"quality-en", "costs", "live", "ratios", "tuned", "arms", "points-4"}


def test_figures_in_json_have_units_and_are_those_of_the_tables() -> None:
    (row,) = [row for row in _table("quality-en").to_dict()["rows"] if row["arm"] == "ugsd"]  # type: ignore[attr-defined]
    assert row["bleu_1"] == {"value": 78.0, "low": 77.0, "high": 79.0}
    assert row["gap_closed_share"]["value"] == pytest.approx(0.8)
    assert row["total_s"]["value"] == 1.2
    swept = [table.to_dict()["rows"][-1] for table in caption_tables(made_results()) if "points" in table.id]  # type: ignore[index]
    names = ("chance_share", "rtt_s", "bandwidth_bytes_per_s", "rank", "block_tokens")
    assert [row[name] for row, name in zip(swept, names, strict=True)] == [0.6, 0.3, 0.3, 5, 5]
    assert all(len({*names, "threshold"} & row.keys()) == 1 for row in swept)


def test_every_point_of_every_sweep_is_in_a_table() -> None:
    tables = [table for table in caption_tables(made_results()) if table.id.startswith("points-")]
    assert [len(table.rows) for table in tables] == [4, 6, 6, 3, 3]
    row = _row(tables[0], "chance")
    assert row["gap closed % zh"] is None
    assert (row["verified %"], row["verified % en"], row["verified % zh"]) == (30.0, 30.0, 15.0)


def test_arms_of_chance_tell_their_share_in_each_language() -> None:
    row = _row(_table("arms"), "ugsd, chance 0")
    assert (row["share %"], row["tuned"]) == ("en 10.0, zh 5.0", "shares of ugsd")
    assert _row(_table("arms"), "ugsd")["share %"] is None


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_there_is_a_picture_for_everything() -> None:
    pictures = {picture.id: picture for picture in caption_pictures(made_results(), made_clips())}
    assert list(pictures) == PICTURES
    for words in ("chance", "entropy, blocks", "cloud-only", "edge-only"):
        assert words in pictures["quality-share"].svg
    assert "dynamic" in pictures["sweep-length"].svg
    assert "corrected by the cloud" in pictures["entropy"].svg


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The quality-share picture before it is written: its axes, by language."""
    figures: list[Any] = []
    monkeypatch.setattr(caption_figures, "picture_of", lambda figure, *_: figures.append(figure))
    with report_style():
        caption_figures.quality_curve(made_results(), made_results().sweeps[0])
    return {axes.get_title(loc="left"): axes for axes in figures[0].axes}


@pytest.mark.parametrize(("language", "shares"), [("en", [30, 60]), ("zh", [15, 30])])
def test_curves_lie_over_the_share_of_their_own_language(
    language: str, shares: list[float], panels: dict[str, Any]
) -> None:
    (line,) = (line for line in panels[language].lines if line.get_label() == "entropy, blocks")
    assert line.get_xdata().tolist() == pytest.approx(shares)


@pytest.mark.parametrize(("language", "factor"), [("en", 1), ("zh", 0.5)])
def test_controlled_arms_and_the_mean_of_their_controls_have_intervals(
    language: str, factor: float, panels: dict[str, Any]
) -> None:
    found = {each.get_label(): each for each in panels[language].containers}
    for name, share, bleu_1 in (("ugsd, as run", 40, 78), ("ugsd, by chance", 41, 73)):
        marker, _, (bar,) = found.pop(name).lines
        assert marker.get_xydata().tolist() == [pytest.approx([factor * share, bleu_1])]
        assert bar.get_segments()[0][:, 1].tolist() == pytest.approx([bleu_1 - 1, bleu_1 + 1])
    assert found == {}  # ugsd-sparse has no controls here


def test_without_sweeps_and_clips_the_rest_is_drawn() -> None:
    bare = msgspec.structs.replace(made_results(), sweeps=[])
    assert [picture.id for picture in caption_pictures(bare, [])] == ["bytes"]


def test_entropies_are_sorted_by_what_became_of_the_token() -> None:
    found = entropies_by_kind(made_clips(), "ugsd")
    assert {kind: values.tolist() for kind, values in found.items()} == {
        TokenKind.LOCAL: [0.1] * 4,
        TokenKind.ACCEPTED: [0.9] * 4,
        TokenKind.RECOVERED: [1.5] * 4,
    }
    assert entropies_by_kind(made_clips(), "cloud-only") == {}


def test_without_matplotlib_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"edgedraft\[bench\]"):
        caption_pictures(made_results(), made_clips())


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_holds_all_and_loads_nothing(page: str) -> None:
    found = outline(page)
    assert found.loads == []
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page)
    assert found.ids == [*PICTURES, *(table.id for table in caption_tables(made_results()))]
    assert found.links == [f"#{id_}" for id_ in found.ids]
    assert len(set(found.ids)) == len(found.ids)


def test_the_page_has_the_formulas_the_command_and_the_notes(page: str) -> None:
    assert "edgedraft bench caption data --out &lt;here&gt;" in page
    assert "A note of the run." in page
    assert "Manifest" in page
    lines = formulas(made_results())
    for name in (*caption_report.FORMULAS, *(f"Live, {name}" for name in caption_live_figures.FORMULAS)):
        assert any(line.startswith(f"{name}: ") for line in lines), name


def test_a_score_that_differs_by_language_is_told_for_each_and_another_once() -> None:
    lines = formulas(made_results())
    assert [line for line in lines if line.startswith(("METEOR", "BLEU-1"))] == [
        "BLEU-1: corpus BLEU of single tokens.",
        "METEOR (en): METEOR as in nltk; matches synonyms.",
        "METEOR (zh): METEOR as in nltk; matches words.",
    ]


def test_every_score_of_the_tables_has_its_formula() -> None:
    columns = [*_table("quality-en").columns, *tokenisation_table(made_results()).columns]
    assert set(caption_report.SCORES) == set(Metric)
    assert set(caption_report.SCORES.values()) <= set(columns)


def test_every_column_of_costs_and_live_has_its_formula() -> None:
    told = " ".join([*caption_report.FORMULAS, *caption_live_figures.FORMULAS])
    for table in (_table("costs"), _table("live")):
        for column in table.columns[1:]:
            words = column.removesuffix(" ms").removesuffix(" MiB").removesuffix(" %").split(" ")
            assert words[-1] in told or words[0] in told or words[0] == "silent", column


def test_it_says_whether_exact_is_exact() -> None:
    assert any("Exact equals cloud-only" in line for line in origins(made_results()))
    wrong = " ".join(origins(made_results(differing=("en/3.wav",))))
    assert "EXACT DIFFERS FROM CLOUD-ONLY on 1 of 4" in wrong
    assert "en/3.wav" in wrong


def test_it_says_that_nothing_was_tuned_without_a_dev_set() -> None:
    results = made_results()
    bare = msgspec.structs.replace(results, manifest=msgspec.structs.replace(results.manifest, dev=None))
    assert any("no dev set" in line for line in origins(bare))
    assert any("dev set alone" in line for line in origins(results))


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    assert not is_caption_run(tmp_path)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        write_caption_report(tmp_path)
