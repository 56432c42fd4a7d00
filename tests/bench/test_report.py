"""The report: one page that loads nothing and says what it stands on."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from edgedraft.backends.trace import RecordedText, read_traces
from edgedraft.bench.aggregate import cells_of
from edgedraft.bench.figures import all_pictures, confidence_points
from edgedraft.bench.html_page import shown
from edgedraft.bench.report import REPORT_FILE, origins, read_run, recorded_texts, tables_of, write_report
from edgedraft.bench.results import Row
from edgedraft.bench.runner import RunOptions, run_cells
from edgedraft.bench.scenario import load_cells
from edgedraft.errors import InvalidRequestError, UnsupportedError

from .conftest import SCENARIO, recorded

STRATEGIES = ["cloud-only", "vanilla", "flow", "flow/bubble", "flow/none", "pipesd"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, trace_file: Path) -> Path:
    """A run with several round trips, so that every kind of picture has its data."""
    root = tmp_path_factory.mktemp("bench")
    scenario = SCENARIO.replace('"paper", "tuned"', '"paper"').replace('"code", "maths"', '"code"')
    scenario = scenario.replace("link.rtt_ms = 60.0\n", "max_texts = 2\n") + "link.rtt_ms = [10.0, 60.0, 300.0]\n"
    (root / "a&b.toml").write_text(scenario.replace('"small"', '"a&b"'), encoding="utf-8")
    cells = load_cells([str(root / "a&b.toml")])
    cells += [msgspec.structs.replace(cells[0], name=f"load/{edges}", edges=edges) for edges in (1, 2)]
    run_cells(cells, RunOptions(out=root / "run", strategies=STRATEGIES, traces=trace_file))
    return root / "run"


@pytest.fixture(scope="module")
def page(directory: Path, texts: list[RecordedText]) -> str:
    return write_report(directory, texts).read_text(encoding="utf-8")


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag in ("section", "figure"):
            self.ids += [values["id"]] if "id" in values else []
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loads += [tag] if tag in ("script", "link", "img", "iframe", "object") else []


def outline(page: str) -> _Outline:
    found = _Outline()
    found.feed(page)
    return found


def test_the_page_loads_nothing(page: str) -> None:
    assert outline(page).loads == []
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page)
    assert not re.search(r"(?:src|href)\s*=\s*['\"](?!#)", page)


def test_every_table_and_picture_is_there_and_linked(page: str, directory: Path) -> None:
    found = outline(page)
    pictures = ["bars-a&b", "curves-a&b", "bars-load", "edges-load", "passes-curve", "timeline", "confidence"]
    tables = [table.id for table in tables_of(read_run(directory))]
    assert found.ids == [*pictures, *tables]
    assert found.links == [f"#{id_}" for id_ in found.ids]
    assert {"yardsticks", "passes", "edges", "runs"} <= set(tables)
    assert page.count("<svg") == len(pictures)


def test_pictures_follow_the_look_of_the_page_and_have_the_bound(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "linear bound" in page
    assert "#010203" not in page


def test_ids_of_equal_pictures_do_not_collide(make_row: Callable[..., Row]) -> None:
    rows = [make_row(scenario=f"{name}/code", strategy="flow", numbers={}) for name in "xy"]
    first, second = (
        set(re.findall(r'<clipPath id="([\w-]+)"', each.svg)) for each in all_pictures(cells_of(rows), [], [])
    )
    assert first
    assert not first & second


def test_names_are_escaped(page: str) -> None:
    assert "a&amp;b/code" in page
    assert "a&b/code" not in page


def test_it_says_what_was_replayed_modelled_and_tuned(page: str, directory: Path) -> None:
    for word in ("replayed", "modelled", "doomed tokens", "linear bound is"):
        assert word in page
    run = read_run(directory)
    assert not [sentence for sentence in origins(run) if "Live rows" in sentence]
    row = msgspec.structs.replace(run.rows[0], live=True, tuned=True, ecs_j_per_100=1.0, energy_kind="measured")
    sentences = " ".join(origins(type(run)(manifest={}, rows=[row], timelines=[], searches=[])))
    assert "Live rows" in sentences
    assert "favours the baselines" in sentences
    assert "Energy is measured." in sentences
    assert "Energy is modelled: 175 W" in page


def test_the_same_figures_give_the_same_picture(texts: list[RecordedText]) -> None:
    assert all_pictures([], [], texts) == all_pictures([], [], texts)


def test_searches_are_read_where_they_are(directory: Path) -> None:
    file = directory / "searches.json"
    try:
        file.write_text(json.dumps([{"search": "grid", "ms": 41.5}]), encoding="utf-8")
        assert [table.rows for table in tables_of(read_run(directory)) if table.id == "searches"] == [[["grid", 41.5]]]
        for content in ("{", "{}", "[1]", '[{"ms": [1]}]', "null"):
            file.write_text(content, encoding="utf-8")
            with pytest.raises(InvalidRequestError, match=r"searches\.json cannot be read"):
                read_run(directory)
    finally:
        file.unlink()


def test_the_curve_is_of_the_texts_that_were_replayed(directory: Path, trace_file: Path, tmp_path: Path) -> None:
    run = read_run(directory)
    assert recorded_texts(run, trace_file) == read_traces(trace_file)
    assert recorded_texts(run) == [], "those that come with edgedraft are others"
    (tmp_path / "other.jsonl").write_bytes(trace_file.read_bytes() + b"\n")
    with pytest.raises(InvalidRequestError, match=r"other\.jsonl, which is not the file that the run replayed"):
        recorded_texts(run, tmp_path / "other.jsonl")


def test_no_id_is_twice_on_a_page(page: str) -> None:
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert [each for each in set(ids) if ids.count(each) > 1] == []
    targets = re.findall(r'href="#([^"]*)"', page) + re.findall(r"url\(#([^)]*)\)", page)
    assert set(targets) <= {html.unescape(each) for each in ids} | set(ids)


def test_without_matplotlib_the_extra_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match="matplotlib is not installed") as error:
        write_report(directory)
    assert "edgedraft[bench]" in error.value.remedy
    assert tables_of(read_run(directory)), "the tables need no pictures"


def test_a_page_that_cannot_be_written_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedraft.bench.report.REPORT_FILE", f"none/{REPORT_FILE}")
    monkeypatch.setattr("edgedraft.bench.report.all_pictures", lambda *_: [])
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        write_report(directory)


@pytest.mark.parametrize(
    ("entry", "text"),
    [(None, "-"), ("x", "x"), (3, "3"), (0.12345, "0.123"), (12.345, "12.35"), (123.45, "123.5"), (12345.6, "12,346")],
)
def test_figures_are_shown_with_about_four_digits(entry: str | float | None, text: str) -> None:
    assert shown(entry) == text


def test_confidence_points_leave_out_what_is_too_rare() -> None:
    text = recorded("t", "code", [True] * 30 + [False] * 12 + [True] * 1)
    (low, low_share, low_count), (high, high_share, high_count) = confidence_points([text])
    assert (low, low_share, low_count) == (pytest.approx(0.3), 0.0, 12)
    assert (high, high_share, high_count) == (pytest.approx(0.95), 1.0, 31)
    assert confidence_points([recorded("t", "code", [True] * 9)]) == []
