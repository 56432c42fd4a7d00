"""A caption bench that was cut: what it kept, what may go on with it, and that the figures are the same."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.backends.captioner_pair import write_dataset, write_pair

from edgedraft.bench.caption_clips import content_of
from edgedraft.bench.caption_models import CaptionPair
from edgedraft.bench.caption_results import Arm, CaptionResults, ClipRecord, Setting
from edgedraft.bench.caption_runs import CaptionBench, CaptionPlan
from edgedraft.bench.caption_steps import STEPS_FILE, KeptSteps
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.bench.run_folder import MANIFEST_FILE
from edgedraft.caption.dataset import Dataset, load_dataset
from edgedraft.errors import InvalidRequestError

PLAN = CaptionPlan(arms=["ugsd", "ugsd-sparse"], sweeps=["rank", "rtt"], max_tokens=24, num_chances=1)
Found = tuple[CaptionResults, list[ClipRecord]]
Run = Callable[[Path], Found]


@pytest.fixture(scope="module")
def pair() -> Iterator[CaptionPair]:
    opened = CaptionPair.open("captioner:edge", "captioner:cloud")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, pair: CaptionPair) -> Dataset:
    """What the target says of the recordings is the truth, so that there is a gap to tune by."""
    dataset = load_dataset(write_dataset(tmp_path_factory.mktemp("clips") / "test"))
    plan = CaptionPlan(arms=[], sweeps=[], max_tokens=24, num_chances=0)
    _, clips = CaptionBench(pair, plan).run(dataset, None)
    said = {clip.clip: clip.text for clip in clips if clip.arm == "cloud-only"}
    lines = [
        {"file": item.name, "language": item.language, "captions": [said[f"{item.language}/{item.name}"]]}
        for item in dataset.items
    ]
    path = dataset.source.with_name("truth.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return load_dataset(path)


@pytest.fixture(scope="module")
def run(pair: CaptionPair, dataset: Dataset) -> Run:
    """Run the bench, or go on with what the directory holds of it."""
    return lambda path: CaptionBench(pair, PLAN, steps=KeptSteps(path, resume=True)).run(dataset, dataset)


@pytest.fixture(scope="module")
def whole(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """The directory of an unbroken run, and what it found."""
    path = tmp_path_factory.mktemp("whole")
    return path, run(path)


def figures(found: Found) -> Found:
    """Without when it was run."""
    results, clips = found
    manifest = msgspec.structs.replace(results.manifest, started_at="", took_s=0.0)
    return msgspec.structs.replace(results, manifest=manifest), clips


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_wherever_a_run_was_cut_the_figures_are_those_of_an_unbroken_one(
    share: float, whole: tuple[Path, Found], run: Run, tmp_path: Path
) -> None:
    """The journal ends anywhere, also in the middle of a line. The first one has the times measured here."""
    before, found = whole
    steps = (before / STEPS_FILE).read_bytes()
    first = steps.index(b"\n") + 1
    (tmp_path / STEPS_FILE).write_bytes(steps[: first + int(share * (len(steps) - first))])
    (tmp_path / MANIFEST_FILE).write_bytes((before / MANIFEST_FILE).read_bytes())
    assert figures(run(tmp_path)) == figures(found)
    assert sorted((tmp_path / STEPS_FILE).read_bytes().split(b"\n")) == sorted(steps.split(b"\n"))


def test_what_was_found_before_ctrl_c_is_not_done_again(
    whole: tuple[Path, Found], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, asked = VirtualCaptions.record, []

    def interrupted(self: VirtualCaptions, arm: Arm, clip: Any, setting: Setting) -> ClipRecord:
        if len(asked) == num_left:
            raise KeyboardInterrupt
        asked.append(arm)
        return record(self, arm, clip, setting)

    monkeypatch.setattr(VirtualCaptions, "record", interrupted)
    num_left: int | None = None
    run(tmp_path / "unbroken")
    num_in_all, num_left = len(asked), len(asked) // 2
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut")
    kept = (tmp_path / "cut" / STEPS_FILE).read_bytes()
    asked.clear()
    num_left = None
    results, _ = run(tmp_path / "cut")
    assert len(asked) < 0.6 * num_in_all
    assert (tmp_path / "cut" / STEPS_FILE).read_bytes().startswith(kept)
    assert results.arms[0].languages == whole[1][0].arms[0].languages


# -- another run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arms", ["ugsd"]),
        ("sweeps", ["rank"]),
        ("thresholds", {"ugsd": 0.5}),
        ("share", 0.2),
        ("max_tokens", 23),
        ("edge_step_s", None),
        ("rtt_s", 0.1),
        ("bytes_per_s", 1e4),
        ("num_chances", 2),
        ("seed", 1),
    ],
)
def test_a_run_with_other_options_is_not_gone_on_with(
    field: str, value: object, whole: tuple[Path, Found], pair: CaptionPair, dataset: Dataset
) -> None:
    path, _ = whole
    before = {file: file.read_bytes() for file in path.iterdir()}
    plan = CaptionPlan(**{**msgspec.to_builtins(PLAN), "dtype": PLAN.dtype, field: value})
    with pytest.raises(InvalidRequestError, match=f"holds a run with another '{field}'") as error:
        CaptionBench(pair, plan, steps=KeptSteps(path, resume=True)).run(dataset, dataset)
    assert error.value.field == field
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_other_clips_live_do_not_make_it_another_run(
    whole: tuple[Path, Found], pair: CaptionPair, dataset: Dataset, tmp_path: Path
) -> None:
    path, found = whole
    copy = shutil.copytree(path, tmp_path / "copy")
    plan = dataclasses.replace(PLAN, num_live=PLAN.num_live + 1)
    assert figures(CaptionBench(pair, plan, steps=KeptSteps(copy, resume=True)).run(dataset, dataset)) == figures(found)


def test_a_run_over_other_clips_is_not_gone_on_with(
    whole: tuple[Path, Found], pair: CaptionPair, dataset: Dataset
) -> None:
    fewer = load_dataset(dataset.source, limit=1)
    for test, dev, field in ((fewer, dataset, "dataset"), (dataset, fewer, "dev"), (dataset, None, "dev")):
        with pytest.raises(InvalidRequestError, match=f"another '{field}': '4 clips, sha256") as error:
            CaptionBench(pair, PLAN, steps=KeptSteps(whole[0], resume=True)).run(test, dev)
        assert error.value.field == field


def test_a_run_of_other_models_is_not_gone_on_with(whole: tuple[Path, Found], dataset: Dataset, tmp_path: Path) -> None:
    other = CaptionPair.open(*write_pair(tmp_path))
    with pytest.raises(InvalidRequestError, match="another 'draft': 'captioner:edge"):
        CaptionBench(other, PLAN, steps=KeptSteps(whole[0], resume=True)).run(dataset, dataset)
    other.close()


def test_a_dataset_is_known_by_its_captions_and_recordings_not_by_its_place(tmp_path: Path) -> None:
    first, second = (load_dataset(write_dataset(tmp_path / name)) for name in ("a", "b"))
    assert content_of(first) == content_of(second)
    captions = second.source.read_text(encoding="utf-8")
    second.source.write_text(captions.replace("calm", "loud"), encoding="utf-8")
    assert content_of(first) != content_of(load_dataset(second.source))
    second.source.write_text(captions, encoding="utf-8")
    data = bytearray(second.items[0].path.read_bytes())
    data[-1] ^= 1
    second.items[0].path.write_bytes(data)
    assert content_of(first) != content_of(second)


# -- the directory -----------------------------------------------------------------------------------------------------


def test_a_directory_in_use_needs_resume(tmp_path: Path) -> None:
    KeptSteps(tmp_path, resume=False).begin({"a": (1,)})
    with pytest.raises(InvalidRequestError, match="already holds a bench run") as error:
        KeptSteps(tmp_path, resume=False)
    assert "--resume" in error.value.remedy
    KeptSteps(tmp_path, resume=True).begin({"a": (1,)})


def test_results_of_an_unknown_run_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}", encoding="utf-8")
    for resume in (False, True):
        with pytest.raises(InvalidRequestError, match=r"holds results\.json, but no manifest\.json"):
            KeptSteps(tmp_path, resume=resume)


def test_a_run_that_could_not_begin_leaves_nothing(pair: CaptionPair, tmp_path: Path) -> None:
    """Its command may be given again, without --resume, once the recordings are mended."""
    dataset = load_dataset(write_dataset(tmp_path / "clips"))
    dataset.items[-1].path.write_text("no sound")
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidRequestError, match="recordings that cannot be used"):
        CaptionBench(pair, PLAN, steps=KeptSteps(tmp_path / "out", resume=False)).run(dataset, None)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_step_that_is_none_is_named(tmp_path: Path) -> None:
    begun = KeptSteps(tmp_path, resume=False)
    begun.begin({})
    begun.once("times", int, lambda: 3)
    again = KeptSteps(tmp_path, resume=True)
    again.begin({})
    with pytest.raises(InvalidRequestError, match=r"steps\.jsonl, step 'times' is no Setting"):
        again.once("times", Setting, lambda: pytest.fail("it was taken before"))
    with (tmp_path / STEPS_FILE).open("a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(InvalidRequestError, match=r"steps\.jsonl, line 2 is no step"):
        KeptSteps(tmp_path, resume=True).begin({})


def test_a_disk_without_room_says_how_to_go_on(tmp_path: Path) -> None:
    steps = KeptSteps(tmp_path, resume=False)
    steps.begin({})
    (tmp_path / STEPS_FILE).unlink()
    (tmp_path / STEPS_FILE).symlink_to("/dev/full")
    with pytest.raises(InvalidRequestError, match="No space left") as error:
        steps.once("times", int, lambda: 3)
    assert "--resume" in error.value.remedy
