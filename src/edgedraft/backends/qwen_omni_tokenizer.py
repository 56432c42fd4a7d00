"""The tokenizer of a Qwen-Omni folder, cut to the ids that all of these models share."""

from __future__ import annotations

from pathlib import Path

from edgedraft.backends.qwen_omni_files import read_tokenizer_files
from edgedraft.backends.qwen_omni_prompts import DETAILED, REQUESTS, TURN_END
from edgedraft.backends.transformers_tokenizer import SILENT, TransformersTokenizer
from edgedraft.errors import InvalidRequestError, ModelFileError


class QwenOmniTokenizer(TransformersTokenizer):
    """See `base.CaptionTokenizer`. `num_ids` ends behind `<|im_end|>`: the ids from there on (audio, pictures, speech)
    mean different things in different models. `silent_ids`: control ids below it that no caption holds. `style`: how
    long a caption is asked for.
    """

    languages = tuple(REQUESTS[DETAILED])

    def __init__(self, folder: Path, style: str = DETAILED) -> None:
        super().__init__(folder, read_tokenizer_files(folder))
        self._requests = REQUESTS[style]
        found = self.encode(TURN_END, parse_special=True)
        if len(found) != 1:
            raise ModelFileError(
                f"the tokenizer in {folder} does not know {TURN_END}.", remedy="Fetch it together with the model."
            )
        self.num_ids = found[0] + 1
        self.eos_ids = (found[0],)
        self.bos_id, self.add_bos = None, False
        self.silent_ids = tuple(index for index in range(found[0]) if self._entry(index)[0] in SILENT)

    def caption_prompt(self, language: str) -> list[int]:
        """The request and the `<|im_end|>` behind it, by which back ends know where the caption begins."""
        if language not in self._requests:
            raise InvalidRequestError(
                f"language is '{language}'; legal: {', '.join(self.languages)}.",
                field="language",
                remedy="Use a language that the models caption in.",
            )
        return [*self.encode(self._requests[language], parse_special=False), *self.eos_ids]
