"""Scores equal those of the libraries that the field quotes, and the degenerate cases have an answer."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.caption import meteor, tokens, wordnet
from edgedraft.caption.rouge import common_length, rouge_l
from edgedraft.caption.scoring import CaptionScores, Metric, score_captions
from edgedraft.caption.tokens import Tokenisation, tokenisations, tokenise
from edgedraft.errors import InvalidRequestError, UnsupportedError

sacrebleu = pytest.importorskip("sacrebleu", reason="needs edgedraft[caption]")
pytest.importorskip("nltk", reason="needs edgedraft[caption]")
pytest.importorskip("jieba", reason="needs edgedraft[caption]")

# Chinese punctuation, spelled so that nobody takes it for ASCII.
COMMA, SEMICOLON, STOP = "\uff0c", "\uff1b", "\u3002"
SENTENCE = "A woman man speaks talks fast quickly loudly, her voices voice is high and low. She sounds ill sick; sad"
ENGLISH = SENTENCE.split()
CHINESE = [*"一位女士语速很快缓慢声音响亮低沉", COMMA, SEMICOLON, "听起来", "愤怒", "悲伤", STOP, "OK", "3.5"]
CAPTION = f"一位女士语速很快{COMMA}声音响亮{SEMICOLON}她听起来很愤怒{STOP}"

needs_wordnet = pytest.mark.skipif(
    wordnet.system_wordnet() is None, reason="no WordNet files here (Debian: apt install wordnet-base)"
)


def _set(words: list[str], glue: str, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Random captions, each with three references that share words and runs of words with it.

    With an even seed the references are longer than the captions, else shorter.
    """
    rng = np.random.default_rng(seed)
    captions, references = [], []
    for _ in range(40):
        caption = [str(word) for word in rng.choice(words, size=rng.integers(4, 15))]
        captions.append(glue.join(caption))
        references.append([glue.join(_changed(caption, words, extra, rng)) for extra in (0, 1, 2)])
        if seed % 2:
            captions[-1] += glue + glue.join(caption[:3])
    return captions, references


def _changed(caption: list[str], words: list[str], extra: int, rng: np.random.Generator) -> list[str]:
    kept = [word if rng.random() < 0.7 else str(rng.choice(words)) for word in caption]
    return [*kept, *(str(word) for word in rng.choice(words, size=1 + extra))]


def _streams(references: list[list[str]]) -> list[list[str]]:
    return [list(stream) for stream in zip(*references, strict=True)]


def _scores(captions: list[str], references: list[list[str]], tokenisation: Tokenisation) -> dict[str, float]:
    scores = score_captions(captions, references, tokenisation)
    return {metric.value: scores.score(metric) for metric in Metric}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("tokenisation", "words", "glue", "name"),
    [(Tokenisation.EN_13A, ENGLISH, " ", "13a"), (Tokenisation.ZH_CHARACTERS, CHINESE, "", "zh")],
)
def test_bleu_is_that_of_sacrebleu(
    tokenisation: Tokenisation, words: list[str], glue: str, name: str, seed: int
) -> None:
    captions, references = _set(words, glue, seed)
    ours = _scores(captions, references, tokenisation)
    theirs = sacrebleu.BLEU(lowercase=True, tokenize=name).corpus_score(captions, _streams(references))
    single = sacrebleu.BLEU(lowercase=True, tokenize=name, max_ngram_order=1)
    assert ours["bleu_4"] == pytest.approx(theirs.score, abs=1e-9)
    assert ours["bleu_1_precision"] == pytest.approx(theirs.precisions[0], abs=1e-9)
    assert ours["bleu_1"] == pytest.approx(single.corpus_score(captions, _streams(references)).score, abs=1e-9)
    assert (theirs.bp < 1) == (seed % 2 == 0) == (ours["bleu_1"] < ours["bleu_1_precision"] - 1e-9)


def test_bleu_of_chinese_words_is_that_of_sacrebleu_on_the_same_words() -> None:
    captions, references = _set(CHINESE, "")
    ours = _scores(captions, references, Tokenisation.ZH_WORDS)
    cut = [" ".join(tokenise(caption, Tokenisation.ZH_WORDS)) for caption in captions]
    wanted = [[" ".join(tokenise(text, Tokenisation.ZH_WORDS)) for text in texts] for texts in references]
    theirs = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(cut, _streams(wanted))
    assert ours["bleu_4"] == pytest.approx(theirs.score, abs=1e-9)
    assert ours["bleu_4"] != pytest.approx(_scores(captions, references, Tokenisation.ZH_CHARACTERS)["bleu_4"], abs=0.5)


@pytest.mark.parametrize("caption", ["a b x y z", "a", "x y z u v", "a b c"])
def test_orders_without_a_match_are_smoothed_as_in_sacrebleu(caption: str) -> None:
    theirs = sacrebleu.BLEU(lowercase=True, force=True).corpus_score([caption], [["a b c d e f"]])
    ours = _scores([caption], [["a b c d e f"]], Tokenisation.EN_13A)
    assert ours["bleu_4"] == pytest.approx(theirs.score, abs=1e-9)


def test_the_brevity_penalty_takes_the_closest_reference_and_the_shorter_of_two() -> None:
    captions, references = ["a b c d"], [["a b c d e f g", "a b c d e", "a b c"]]
    theirs = sacrebleu.BLEU(max_ngram_order=1).corpus_score(captions, _streams(references))
    assert theirs.ref_len == 3
    assert _scores(captions, references, Tokenisation.EN_13A)["bleu_1"] == pytest.approx(100.0)


def test_references_may_differ_in_number() -> None:
    captions, references = _set(ENGLISH, " ")
    ragged = [texts[: 1 + number % 3] for number, texts in enumerate(references)]
    streams = [[texts[place] if place < len(texts) else None for texts in ragged] for place in range(3)]
    theirs = sacrebleu.BLEU(lowercase=True).corpus_score(captions, streams)
    assert _scores(captions, ragged, Tokenisation.EN_13A)["bleu_4"] == pytest.approx(theirs.score, abs=1e-9)


# -- METEOR ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nltk_wordnet() -> Iterator[Any]:
    """nltk's own reader on the same files. It wants a file that Debian leaves out, and the folder on its list."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            names = "".join(f"{number:02d}\tfile{number}\t0\n" for number in range(45))
            return io.StringIO(names) if file == "lexnames" else super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            return None

    folder = next(folder for folder in wordnet.FOLDERS if Path(folder, "index.noun").is_file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [folder])
        yield Reader(folder, object())


@needs_wordnet
def test_synonyms_are_those_that_nltk_finds(nltk_wordnet: Any) -> None:
    ours = wordnet.system_wordnet()
    assert ours is not None
    assert ours.version == "3.0"
    known = [word for part in ours._index.values() for word in part]
    some = list(np.random.default_rng(0).choice(known, size=400))
    forms = ["angrier", "spoke", "spoken", "voices", "women", "wolves", "boxes", "loudest", "Tones", "rising", "xyzzy"]
    wolves = [word[:-1] + "ves" for word in ours._index["noun"] if word.endswith("f")]
    for word in [
        *some,
        *forms,
        *wolves,
        *(word + ending for word in some[:100] for ending in ("s", "ed", "ing", "est")),
    ]:
        names = {lemma.name() for synset in nltk_wordnet.synsets(word) for lemma in synset.lemmas()}
        assert ours.synonyms(word) == {name for name in names if "_" not in name}, word


@needs_wordnet
def test_meteor_is_that_of_nltk_with_its_own_wordnet(nltk_wordnet: Any) -> None:
    from nltk.translate.meteor_score import meteor_score

    captions, references = _set(ENGLISH, " ")
    scores = score_captions(captions, references, Tokenisation.EN_13A)
    wanted = [
        meteor_score(
            [tokenise(text, Tokenisation.EN_13A) for text in texts],
            tokenise(caption, Tokenisation.EN_13A),
            wordnet=nltk_wordnet,
        )
        for caption, texts in zip(captions, references, strict=True)
    ]
    assert scores.per_caption(Metric.METEOR) == pytest.approx(100 * np.array(wanted), abs=1e-9)
    assert scores.score(Metric.METEOR) == pytest.approx(100 * np.mean(wanted), abs=1e-9)
    assert scores.meteor_matching == "equal words, stems, synonyms of WordNet 3.0"


def test_without_wordnet_meteor_matches_words_and_stems_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "FOLDERS", ())
    for cached in (wordnet.system_wordnet, meteor.system_meteor):
        monkeypatch.setattr(f"{cached.__module__}.{cached.__name__}", cached.__wrapped__)
    monkeypatch.setattr("edgedraft.caption.meteor.system_wordnet", wordnet.system_wordnet)
    monkeypatch.setattr("edgedraft.caption.scoring.system_meteor", meteor.system_meteor)
    scores = score_captions(["she is ill", "she speaks"], [["she is sick"], ["she speaking"]], Tokenisation.EN_13A)
    assert scores.meteor_matching == "equal words, stems"
    assert "equal words, stems" in scores.definitions()["meteor_is"]
    synonym, stem = scores.per_caption(Metric.METEOR)
    assert synonym == pytest.approx(100 * (2 / 3) * (1 - 0.5 * (1 / 2) ** 3))
    assert stem == pytest.approx(100 * (1 - 0.5 * (1 / 2) ** 3))


@needs_wordnet
def test_a_synonym_counts() -> None:
    scores = score_captions(["she is ill"], [["she is sick"]], Tokenisation.EN_13A)
    assert scores.score(Metric.METEOR) == pytest.approx(100 * (1 - 0.5 * (1 / 3) ** 3))


def test_chinese_meteor_matches_equal_words_only() -> None:
    scores = score_captions(["speaks 快"], [["speak 快"]], Tokenisation.ZH_WORDS)
    assert scores.meteor_matching == "equal words"
    assert scores.score(Metric.METEOR) == pytest.approx(100 * 0.5 * (1 - 0.5))


# -- ROUGE-L ---------------------------------------------------------------------------------------------------------


def _brute_force(left: str, right: str) -> int:
    if not left or not right:
        return 0
    if left[0] == right[0]:
        return 1 + _brute_force(left[1:], right[1:])
    return max(_brute_force(left[1:], right), _brute_force(left, right[1:]))


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_common_length_is_that_of_a_brute_force(left: str, right: str) -> None:
    assert common_length(left, right) == _brute_force(left, right)


def test_rouge_takes_the_best_precision_and_the_best_recall_of_all_references() -> None:
    caption, references = list("abcd"), [list("ab"), list("abcxyzuv")]
    precision, recall, weight = 3 / 4, 1.0, 1.2**2
    assert rouge_l(caption, references) == pytest.approx(
        (1 + weight) * precision * recall / (recall + weight * precision)
    )
    assert rouge_l(caption, [caption]) == pytest.approx(1.0)
    assert rouge_l(caption, [["x"]]) == rouge_l([], references) == 0.0


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_chinese_punctuation_is_tokens_of_its_own() -> None:
    words = tokenise(CAPTION, Tokenisation.ZH_WORDS)
    assert {COMMA, SEMICOLON, STOP, "女士", "愤怒"} <= set(words)
    assert "".join(words) == CAPTION
    assert tokenise(CAPTION, Tokenisation.ZH_CHARACTERS) == list(CAPTION)


def test_letters_are_lowered_and_blanks_are_no_tokens() -> None:
    assert tokenise("  Calm, LOW voice. ", Tokenisation.EN_13A) == ["calm", ",", "low", "voice", "."]
    assert tokenise("OK \u3000 好", Tokenisation.ZH_WORDS) == ["ok", "好"]
    assert [tokenise(" \n", each) for each in Tokenisation] == [[], [], []]


def test_languages_have_their_tokenisations() -> None:
    assert tokenisations("en") == (Tokenisation.EN_13A,)
    assert tokenisations("zh") == (Tokenisation.ZH_WORDS, Tokenisation.ZH_CHARACTERS)
    with pytest.raises(InvalidRequestError, match="language is 'fr'; legal: en, zh"):
        tokenisations("fr")


def test_libraries_load_without_a_word_and_leave_no_file(tmp_path: Path) -> None:
    """As for someone who has just installed them: jieba is not compiled yet, and every warning is an error."""
    code = (
        "import sys\n"
        "from edgedraft.caption.scoring import score_captions\n"
        "from edgedraft.caption.tokens import Tokenisation\n"
        "score_captions(['a'], [['a']], Tokenisation.EN_13A)\n"
        f"sys.pycache_prefix = {str(tmp_path / 'compiled')!r}\n"
        f"score_captions(['{CAPTION}'], [['{CAPTION}']], Tokenisation.ZH_WORDS)\n"
    )
    places = {"TMPDIR": str(tmp_path), "NLTK_DATA": "", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, env=places, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["compiled"]


@pytest.mark.parametrize(
    ("library", "tokenisation"), [("jieba", "zh_words"), ("sacrebleu", "en_13a"), ("nltk", "zh_words")]
)
def test_a_missing_library_is_named_with_what_to_install(
    library: str, tokenisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if re.match(rf"{library}(\.|$)", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(tokens, "_cutter", tokens._cutter.__wrapped__)
    monkeypatch.setattr("edgedraft.caption.scoring.system_meteor", meteor.system_meteor.__wrapped__)
    with pytest.raises(UnsupportedError, match=rf"{library} is not installed.*edgedraft\[caption\]"):
        score_captions(["a"], [["a"]], Tokenisation(tokenisation))


# -- sets ------------------------------------------------------------------------------------------------------------


def test_an_empty_caption_scores_nothing_and_spoils_nothing() -> None:
    for tokenisation, text in ((Tokenisation.EN_13A, "a low calm voice"), (Tokenisation.ZH_WORDS, CAPTION)):
        assert set(_scores([""], [[text]], tokenisation).values()) == {0.0}
        both = score_captions([text, ""], [[text], [text]], tokenisation)
        assert both.score(Metric.ROUGE_L) == pytest.approx(50.0)
        assert both.score(Metric.BLEU_1_PRECISION) == pytest.approx(100.0)
        assert both.score(Metric.BLEU_1) == pytest.approx(100 * np.exp(-1))


def test_a_perfect_set_scores_a_hundred_and_a_foreign_one_nothing() -> None:
    texts = ["a low and calm voice here", "she is very angry today"]
    assert _scores(texts, [[text] for text in texts], Tokenisation.EN_13A) == pytest.approx(
        dict.fromkeys(Metric, 100.0), abs=0.6
    )
    assert set(_scores(texts, [["x y z"], ["u v w"]], Tokenisation.EN_13A).values()) == {0.0}


@pytest.mark.parametrize(
    ("captions", "references", "message"),
    [
        ([], [], "0 captions with references for 0"),
        (["a"], [["a"], ["b"]], "1 captions with references for 2"),
        (["a", "b", "c"], [["a", " "], ["b"], []], "caption 0 has an empty reference; caption 2 has no reference"),
    ],
)
def test_a_set_that_cannot_be_scored_is_refused(captions: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        score_captions(captions, references, Tokenisation.EN_13A)


def test_a_dict_names_every_metric_and_how_it_was_made() -> None:
    captions, references = _set(ENGLISH, " ")
    scores = score_captions(captions, references, Tokenisation.EN_13A)
    told = scores.to_dict()
    assert {metric.value for metric in Metric} <= set(told)
    assert all(f"{metric}_is" in told for metric in Metric)
    assert (told["tokenisation"], told["num_captions"]) == ("en_13a", 40)
    assert not scores.statistics.flags.writeable


@pytest.mark.parametrize("metric", list(Metric))
def test_a_set_with_repeated_captions_is_scored_from_the_same_numbers(metric: Metric) -> None:
    captions, references = _set(ENGLISH, " ")
    scores = score_captions(captions, references, Tokenisation.EN_13A)
    weights = np.random.default_rng(0).integers(0, 3, size=(1, len(captions))).astype(float)
    chosen = [number for number, times in enumerate(weights[0].astype(int)) for _ in range(times)]
    repeated = _select(captions, references, chosen)
    assert scores.resampled(metric, weights)[0] == pytest.approx(repeated.score(metric), abs=1e-9)
    alone = _select(captions, references, [7])
    assert scores.per_caption(metric)[7] == pytest.approx(alone.score(metric), abs=1e-9)


def _select(captions: list[str], references: list[list[str]], chosen: list[int]) -> CaptionScores:
    return score_captions(
        [captions[number] for number in chosen], [references[number] for number in chosen], Tokenisation.EN_13A
    )
