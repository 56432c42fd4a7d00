"""A dataset is read as its layouts say, or everything that is wrong with it is told at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgedraft.caption.dataset import Dataset, DatasetItem, dataset_problems, load_dataset
from edgedraft.errors import InvalidRequestError

EN = {"file": "en.wav", "language": "en", "captions": ["A calm voice.", "She is calm."]}
ZH = {"file": "sub/zh.flac", "language": "zh", "captions": ["声音平静"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a few recordings, which are never decoded, and no captions yet."""
    (tmp_path / "sub").mkdir()
    for name in ("en.wav", "sub/zh.flac", "sub/clip_1.wav", "sub/clip_2.wav"):
        (tmp_path / name).write_bytes(b"not decoded")
    return tmp_path


def _jsonl(folder: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "captions.jsonl").write_text(text + "\n", encoding="utf-8")
    return folder


def _csv(folder: Path, text: str, name: str = "labels.csv", encoding: str = "utf-8") -> Path:
    (folder / name).write_text(text, encoding=encoding)
    return folder


def _told(folder: Path, language: str | None = None) -> list[str]:
    """The problems, which the error of `load_dataset` must list all."""
    problems = dataset_problems(folder, language)
    with pytest.raises(InvalidRequestError) as caught:
        load_dataset(folder, language)
    assert str(caught.value).splitlines()[1:] == [f"  {problem}" for problem in problems]
    count = f"{len(problems)} problem" + ("s:" if len(problems) > 1 else ":")
    assert str(caught.value).splitlines()[0].endswith(count)
    return list(problems)


# -- layouts ---------------------------------------------------------------------------------------------------------


def test_the_synthetic_set(folder: Path) -> None:
    made = {**EN, "attributes": {"pitch": "high", "pauses": 2}, "affect": "calm"}
    dataset = load_dataset(_jsonl(folder, made, "", ZH))
    assert dataset == Dataset(
        source=folder / "captions.jsonl",
        items=(
            DatasetItem(
                name="en.wav",
                path=folder / "en.wav",
                language="en",
                captions=("A calm voice.", "She is calm."),
                attributes={"pitch": "high", "pauses": 2},
                affect="calm",
            ),
            DatasetItem(name="sub/zh.flac", path=folder / "sub/zh.flac", language="zh", captions=("声音平静",)),
        ),
    )
    assert dataset.languages == ("en", "zh")
    assert dataset.of("zh") == dataset.items[1:]


def test_the_layout_of_mer2024(folder: Path) -> None:
    """Names without suffix or folder, both languages in one row, a column of numbers."""
    text = ',name,english,chinese\n0,clip_1,"Calm, low.",平静\n1,clip_2,Angry.,愤怒\n'
    dataset = load_dataset(_csv(folder, text))
    assert [(item.path.name, item.language, item.captions) for item in dataset.items] == [
        ("clip_1.wav", "en", ("Calm, low.",)),
        ("clip_1.wav", "zh", ("平静",)),
        ("clip_2.wav", "en", ("Angry.",)),
        ("clip_2.wav", "zh", ("愤怒",)),
    ]
    assert {item.name for item in dataset.items} == {"clip_1", "clip_2"}


@pytest.mark.parametrize("name", ["name", "file", "audio", "path", " Path "])
@pytest.mark.parametrize("caption", ["caption", "captions", "Caption", "english", "reference", "reference_a"])
def test_columns_go_by_several_names(folder: Path, name: str, caption: str) -> None:
    _csv(folder, f"{name},{caption},language\nen.wav,Calm.,en-GB\n")
    assert [(item.language, item.captions) for item in load_dataset(folder).items] == [("en", ("Calm.",))]


def test_a_byte_order_mark_is_no_part_of_a_name(folder: Path) -> None:
    assert len(load_dataset(_csv(folder, "name,english\nen,A\n", encoding="utf-8-sig")).items) == 1


def test_languages_of_one_recording_may_be_rows_of_their_own(folder: Path) -> None:
    _jsonl(folder, EN, {**EN, "language": "zh", "captions": "平静"})
    assert [(item.name, item.language) for item in load_dataset(folder).items] == [("en.wav", "en"), ("en.wav", "zh")]


def test_several_references_of_which_some_are_missing(folder: Path) -> None:
    _csv(folder, "file,reference1,reference2,reference3\nen.wav,A.,,C.\nclip_1,,B.\n")
    assert [item.captions for item in load_dataset(folder, "en").items] == [("A.", "C."), ("B.",)]


@pytest.mark.parametrize("said", ["zh", "ZH", "Chinese", "zh-CN", "zh_TW", "mandarin"])
def test_a_language_goes_by_several_names(folder: Path, said: str) -> None:
    assert load_dataset(_jsonl(folder, {**ZH, "language": said})).languages == ("zh",)


def test_only_one_language(folder: Path) -> None:
    """What is in another language is not looked at."""
    _jsonl(folder, EN, ZH, {"file": "gone.wav", "language": "en", "captions": []}, {"file": "clip_1", "chinese": "慢"})
    assert [item.name for item in load_dataset(folder, "zh").items] == ["sub/zh.flac", "clip_1"]


def test_at_most_so_many_of_each_language(folder: Path) -> None:
    _csv(folder, "name,english,chinese\nclip_1,A,一\nclip_2,B,二\nen,C,三\n")
    limited = load_dataset(folder, limit=2)
    assert [(item.name, item.language) for item in limited.items] == [
        ("clip_1", "en"),
        ("clip_1", "zh"),
        ("clip_2", "en"),
        ("clip_2", "zh"),
    ]
    with pytest.raises(InvalidRequestError, match="limit is 0"):
        load_dataset(folder, limit=0)


def test_the_captions_file_may_be_named(folder: Path) -> None:
    _csv(folder, "file,english\nen.wav,A\n", "gt-eng.csv")
    _csv(folder, "file,chinese\nen.wav,一\n", "gt-chi.csv")
    assert load_dataset(folder / "gt-chi.csv").languages == ("zh",)
    with pytest.raises(InvalidRequestError, match=r"several captions files: gt-chi.csv, gt-eng.csv. Name the one"):
        load_dataset(folder)
    _jsonl(folder, EN)
    assert load_dataset(folder).source.name == "captions.jsonl"


def test_an_absolute_path_or_a_detour_within_the_folder(folder: Path) -> None:
    _jsonl(folder, {**EN, "file": str(folder / "en.wav")}, {**EN, "file": "sub/../sub/clip_1.wav"})
    assert [item.path for item in load_dataset(folder).items] == [folder / "en.wav", folder / "sub/clip_1.wav"]


def test_recordings_behind_a_linked_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.wav").write_bytes(b"")
    (folder / "audio").symlink_to(elsewhere)
    assert load_dataset(_jsonl(folder, {**EN, "file": "far"})).items[0].path == folder / "audio/far.wav"


def test_a_video_beside_its_sound_is_not_meant(folder: Path) -> None:
    (folder / "video").mkdir()
    for name in ("clip_1.mp4", "only.avi"):
        (folder / "video" / name).write_bytes(b"")
    _csv(folder, "name,english\nclip_1,A\nonly,B\n")
    assert [item.path for item in load_dataset(folder).items] == [folder / "sub/clip_1.wav", folder / "video/only.avi"]


# -- problems --------------------------------------------------------------------------------------------------------


def test_every_problem_is_told_at_once(folder: Path) -> None:
    (folder / "clip_1.mp3").write_bytes(b"")
    _jsonl(
        folder,
        EN,
        {"file": "gone.wav", "language": "en", "captions": []},
        "{'file': 1}",
        {**EN, "file": "en"},
        {**ZH, "language": "fr"},
        {**ZH, "captions": ["好", " "]},
        {**ZH, "file": "../../etc/passwd"},
        {**ZH, "file": "/etc/passwd"},
        {"file": "en.wav", "caption": "A"},
        {"language": "en", "caption": 3},
        {"file": "clip_1", "language": "en"},
        [1],
        {**ZH, "attributes": [], "affect": 1},
        {**EN, "file": "sub/clip_2.wav", "captions": "\ud800"},
    )
    assert _told(folder) == [
        "line 2: the caption in en is empty",
        "line 2: 'gone.wav' does not exist",
        "line 3: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "line 4: 'en' has captions in en already, in line 1",
        "line 5: language is 'fr'; legal: en, zh",
        "line 6: 'captions' holds an empty caption",
        "line 7: '../../etc/passwd' is outside the dataset's folder",
        "line 8: '/etc/passwd' is outside the dataset's folder",
        "line 9: 'caption' is in no language; add a column 'language' (en, zh) or name the language",
        "line 10: 'caption' holds something that is not text",
        "line 10: the caption in en is empty",
        "line 10: no recording is named; legal columns: name, file, audio, path",
        "line 11: no captions; legal columns: caption, captions, english, chinese, reference*",
        "line 11: 'clip_1' may be any of 2 files: clip_1.mp3, sub/clip_1.wav",
        "line 12: not a JSON object",
        "line 13: 'attributes' is not a JSON object",
        "line 13: 'affect' is not text",
        "line 13: 'sub/zh.flac' has captions in zh already, in line 6",
        "line 14: 'captions' holds half a character (a lone surrogate)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "header: no column with the recordings' names; legal: name, file, audio, path"),
        ("id,english\n1,A\n", "header: no column with the recordings' names; legal: name, file, audio, path"),
        ("name,label\nen,A\n", "header: no column with captions; legal columns: caption, captions, english,"),
        ("name,english,english\nen,A,B\n", "header: column 'english' occurs twice; number them: english_1, english_2"),
        ("name,english\nen,Calm, low.\n", "line 2: 3 fields under 2 columns; quote a caption that holds a comma"),
        ("name,english\nen,\n", "line 2: the caption in en is empty"),
        ("name,english\nen\n", "line 2: no captions; legal columns"),
        ('name,english\nen,"A\n', "line 2: not CSV: unexpected end of data"),
        ("name,english\n,,\n,A\n", "line 2: 3 fields under 2 columns; quote a caption that holds a comma"),
        ("name,english\n,A\n", "line 2: no recording is named; legal columns: name, file, audio, path"),
        ("name,english\n", "no recording with captions"),
    ],
)
def test_what_is_wrong_with_a_table(folder: Path, text: str, problem: str) -> None:
    assert _told(_csv(folder, text))[0].startswith(problem)


def test_a_language_that_the_dataset_does_not_have(folder: Path) -> None:
    assert _told(_jsonl(folder, EN), "zh") == ["no recording with captions in zh"]


def test_a_name_that_no_file_can_have(folder: Path) -> None:
    long, nul = {**EN, "file": "x" * 5000}, {**ZH, "file": "a\0b"}
    problems = _told(_jsonl(folder, long, nul))
    assert problems[0].endswith("cannot be read: File name too long")
    assert problems[1] == "line 2: 'a\0b' does not exist"


def test_a_folder_without_captions_file_is_told_what_is_understood(folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match="has no captions file") as caught:
        load_dataset(folder)
    assert '{"file": "a.wav", "language": "en"' in str(caught.value)
    assert "name,english,chinese" in str(caught.value)


def test_a_dataset_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist"):
        load_dataset(folder / "gone")
    (folder / "captions.csv").write_bytes("name,chinese\nen,平静\n".encode("gb18030"))
    with pytest.raises(InvalidRequestError, match=r"not UTF-8 text.*Save it as UTF-8"):
        load_dataset(folder)


@pytest.mark.parametrize("load", [load_dataset, dataset_problems])
def test_an_unknown_language_is_refused(folder: Path, load: object) -> None:
    with pytest.raises(InvalidRequestError, match="language is 'fr'; legal: en, zh"):
        load(_jsonl(folder, EN), "fr")  # type: ignore[operator]
