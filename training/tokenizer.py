"""Learn the shared tokenizer from canonical captions: `python -m training.tokenizer MERGES.json`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from edgedraft.backends.captioner_tokenizer import FIRST_BYTE_ID, FIRST_MERGED_ID, PIECE_PATTERN, CaptionerTokenizer
from edgedraft.caption.attributes import caption
from edgedraft.caption.phrases import LANGUAGES, LEVELS

NUM_IDS = 900
NUM_CAPTIONS = 3_000


def canonical_captions(count: int) -> list[str]:
    """`count` captions of evenly drawn attributes, languages in turn."""
    generator = np.random.default_rng(0)
    drawn = ({name: str(generator.choice(levels)) for name, levels in LEVELS.items()} for _ in range(count))
    return [caption(attributes, LANGUAGES[number % 2]) for number, attributes in enumerate(drawn)]


def learn_merges(texts: list[str], num_ids: int) -> list[tuple[int, int]]:
    """Merges as pairs of our ids, learnt by the package `tokenizers`."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(PIECE_PATTERN), behavior="isolated")
    learner.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=num_ids - FIRST_BYTE_ID, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    learner.train_from_iterator(texts, trainer)
    letter_of_byte = {value: byte_level.pre_tokenize_str(chr(value))[0][0] for value in range(128)}
    id_of = {letter: FIRST_BYTE_ID + value for value, letter in letter_of_byte.items()}
    rest = sorted((letter for letter in alphabet if letter not in id_of), key=_byte_of_letter)
    id_of |= {letter: FIRST_BYTE_ID + 128 + number for number, letter in enumerate(rest)}
    merges: list[tuple[int, int]] = []
    for left, right in json.loads(learner.to_str())["model"]["merges"]:
        id_of[left + right] = FIRST_MERGED_ID + len(merges)
        merges.append((id_of[left], id_of[right]))
    return merges


def _byte_of_letter(letter: str) -> int:
    """Bytes that print stand for themselves in byte-level BPE; the others are counted up from U+0100."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printing]
    return others[ord(letter) - 0x100] if ord(letter) >= 0x100 else ord(letter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("merges", type=Path)
    parser.add_argument("--ids", type=int, default=NUM_IDS)
    args = parser.parse_args()
    texts = canonical_captions(NUM_CAPTIONS)
    merges = learn_merges(texts, args.ids)
    args.merges.write_text(json.dumps(merges))
    tokenizer = CaptionerTokenizer(merges)
    for number, language in enumerate(LANGUAGES):
        lengths = [len(tokenizer.encode(text, parse_special=False)) for text in texts[number::2]]
        print(f"{language}: {np.mean(lengths):.1f} tokens a caption, at most {max(lengths)}; {tokenizer.num_ids} ids")


if __name__ == "__main__":
    main()
