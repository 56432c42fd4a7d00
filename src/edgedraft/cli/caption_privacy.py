"""`edgedraft caption privacy`: what left this device for a caption, byte by byte, and what can be made of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgedraft.bench.cloud_process import cloud_process
from edgedraft.caption.audio import load, own_samples
from edgedraft.caption.blocking import Captioner
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_TARGET
from edgedraft.caption.excerpt_captions import excerpts_of
from edgedraft.caption.features import extract
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import CaptionRequest
from edgedraft.caption.voice_activity import check
from edgedraft.cli import caption_flags, options
from edgedraft.cli.render import err_console, out_console, print_json, print_table, table
from edgedraft.cli.report import exit_code, print_error
from edgedraft.errors import EdgedraftError, InvalidRequestError, LinkError, LinkLostError
from edgedraft.speech_features import FeatureDtype, FeatureSpec
from edgedraft.types import OnLinkLoss

if TYPE_CHECKING:
    from edgedraft.caption.attack import Recogniser, VoiceAttack, WordsAttack
    from edgedraft.caption.privacy import Ledger
    from edgedraft.caption.tap import Tap

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Recordings. Stdin is not read.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A cloud at ws://; default: one is started here.", rich_help_panel=options.CLOUD
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target", metavar="SPEC", help="What the cloud that is started serves.", rich_help_panel=options.CLOUD
    ),
]
Attack = Annotated[
    Path | None,
    typer.Option(
        "--attack",
        metavar="DIR",
        help="Turn the features of every kind back into sound, written to DIR, and compare it with the recording.",
    ),
]
RecogniserFolder = Annotated[
    Path | None,
    typer.Option(
        "--recogniser",
        metavar="DIR",
        help="With --attack: a Whisper (CTranslate2) or Vosk model that listens to it; needs faster-whisper or vosk.",
    ),
]
Words = Annotated[
    str | None, typer.Option("--words", metavar="TEXT", help="With --attack: what is said; default: what it heard.")
]


def privacy(
    files: Files,
    lang: caption_flags.Lang = None,
    draft: caption_flags.Draft = DEFAULT_DRAFT,
    url: Url = None,
    token: options.Token = None,
    target: Target = DEFAULT_TARGET,
    strategy: caption_flags.StrategyName = None,
    threshold: caption_flags.ThresholdText = caption_flags.AUTO,
    features: caption_flags.FeatureName = caption_flags.AUTO,
    dtype: caption_flags.Dtype = FeatureDtype.INT8,
    attack: Attack = None,
    recogniser: RecogniserFolder = None,
    words: Words = None,
    as_json: options.Json = False,
) -> None:
    """Caption recordings with a tap in the link: what left, byte by byte, and a search for the recording in it.

    --attack tries what the features of each kind give away: words, by turning them back into sound, and, where files
    lie in folders by speaker, who speaks. Its report is evidence, not proof. Exit code 1 where anything undeclared
    left, 4 where the cloud was called and not reached.
    """
    from edgedraft.caption.recogniser import open_recogniser
    from edgedraft.caption.tap import tapped

    choice = caption_flags.gate_choice(strategy=strategy, threshold=threshold)
    spec = caption_flags.feature_spec(features)
    if attack is None and (recogniser is not None or words is not None):
        name = "words" if recogniser is None else "recogniser"
        raise InvalidRequestError(f"{name} is given without attack.", field=name, remedy="Add --attack DIR.")
    listener = None if recogniser is None else open_recogniser(recogniser, lang or "en")
    screen = _Screen(as_json)
    with _cloud(url, target) as address, tapped(address) as tap:
        run = _Run(address, tap, draft, token, choice, lang, spec, dtype, screen)
        codes = [run.one(file) for file in files]
    if attack is not None:
        codes += _Attack(attack, listener, words, screen).on(files)
    code = next((code for code in codes if code), 0)
    if code:
        raise typer.Exit(code)


@contextlib.contextmanager
def _cloud(url: str | None, target: str) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with cloud_process(target) as cloud:
        yield cloud.url


@dataclass(frozen=True, slots=True)
class _Screen:
    """Where findings go: tables, or one JSON object each."""

    as_json: bool

    def fail(self, file: str, error: EdgedraftError) -> int:
        message = error.message if error.message.startswith(file) else f"{file}: {error.message}"
        print_error(error.code, message, error.remedy, as_json=self.as_json)
        return exit_code(error)

    def ledger(self, file: str, captions: Sequence[Caption], found: Ledger) -> None:
        if self.as_json:
            told = [caption.to_dict() for caption in captions]
            print_json({"file": file, "captions": told, "ledger": found.to_dict()})
            return
        console = out_console()
        if not found.entries:
            console.print(f"{file}: nothing left this device, not even a connection.")
            return
        rows = [
            (each.kind, each.way, str(each.count), f"{each.payload_bytes:,}", str(each.num_ids or ""), each.holds)
            for each in found.entries
        ]
        print_table(table(f"{file}: what passed", ("message", "way", "number", "bytes", "ids", "what it holds"), rows))
        for each in found.features:
            console.print(
                f"Features: {each.kind} from '{each.encoder_id}', {each.dims} values at {each.rate_hz:g} Hz, "
                f"{each.dtype}: {each.num_bytes:,} bytes for {each.seconds:.1f} s, {each.pcm_ratio:.1%} of the PCM."
            )
        console.print(_verdict(found))

    def words(self, file: str, found: Sequence[WordsAttack]) -> None:
        if self.as_json:
            print_json({"file": file, "attack_on_words": [each.to_dict() for each in found]})
            return
        rows = [
            (
                f"{each.spec.kind} {each.spec.rate_hz:g} Hz",
                f"{each.bytes_per_s:,.0f}",
                f"{each.envelope_correlation:.2f}",
                _percent(each.recovered_share),
                _percent(each.original_recovered_share),
                each.heard or "",
            )
            for each in found
        ]
        columns = ("features", "B/s", "likeness", "words", "words, original", "heard")
        print_table(table(f"{file}: turned back into sound", columns, rows))

    def voices(self, found: Sequence[VoiceAttack]) -> None:
        if self.as_json:
            print_json({"attack_on_voices": [each.to_dict() for each in found]})
            return
        rows = [
            (f"{each.spec.kind} {each.spec.rate_hz:g} Hz", _percent(each.accuracy), _percent(each.chance))
            for each in found
        ]
        first = found[0]
        title = f"{first.num_speakers} speakers told from {first.num_clips} recordings"
        print_table(table(title, ("features", "right", "by chance"), rows))

    def note(self, text: str) -> None:
        if not self.as_json:
            err_console().print(text)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _verdict(found: Ledger) -> str:
    if found.search is None:
        return ""
    if not found.holds_only_declared:
        return "UNDECLARED: bytes passed that are no message of the protocol."
    if not found.search.is_clean:
        what = [each.what for each in found.search.found] + list(found.search.names_found)
        return f"FOUND in what left: {', '.join(what) or 'numbers that follow the waveform'}."
    return (
        f"Searched {found.search.searched_bytes:,} bytes that left: only declared messages, no 20 ms of the recording "
        "in any encoding looked for, no file name. Evidence, not proof."
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """Captions one recording after another, each over a connection of its own."""

    url: str
    tap: Tap
    draft: str
    token: str | None
    choice: GateChoice
    language: str | None
    features: FeatureSpec | None
    dtype: FeatureDtype
    screen: _Screen

    def one(self, file: str) -> int:
        """The exit code for one recording: that of its error, else 1 where anything but what is declared left."""
        from edgedraft.caption.privacy import ledger

        captions: list[Caption] = []
        code = 0
        try:
            recording = load(file)
            data = Path(file).read_bytes()
            own = own_samples(data, file, recording.source.lone_channel or 1)
        except EdgedraftError as error:
            return self.screen.fail(file, error)
        try:
            captions = self._captions(recording)
        except EdgedraftError as error:
            code = self.screen.fail(file, self._untapped(error))
        found = ledger(self.tap.take(), recording, own_samples=own, file=data)
        if found.entries or not code:  # what passed before an error is told as well
            self.screen.ledger(file, captions, found)
        clean = found.holds_only_declared and (found.search is None or found.search.is_clean)
        return code or (0 if clean else 1)

    def _captions(self, recording: Recording) -> list[Caption]:
        with Captioner(self.tap.url, draft=self.draft, token=self.token) as captioner:
            request = self._request(captioner)
            parts = excerpts_of(recording, check(recording), captioner.max_seconds)
            return [captioner.caption(part.recording, request) for part in parts if part.has_speech]

    def _request(self, captioner: Captioner) -> CaptionRequest:
        request, notice = captioner.settled(
            CaptionRequest(
                language=self.language,
                strategy=self.choice,
                on_link_loss=OnLinkLoss.FAIL,  # what was not sent for want of a cloud must not pass for all there is
                features=self.features,
                dtype=self.dtype,
            )
        )
        if notice:
            self.screen.note(notice)
        return request

    def _untapped(self, error: EdgedraftError) -> EdgedraftError:
        """The error as if there were no tap, whose address means nothing to the user."""
        if isinstance(error, LinkError):
            met = "lost" if isinstance(error, LinkLostError) else "not reached"
            return type(error)(
                f"the cloud at {self.url} was called and {met}, so this run does not show what a caption sends.",
                remedy="Check the address (--url), and that `edgedraft cloud` runs there.",
            )
        error.message = error.message.replace(self.tap.url, self.url)
        return error


@dataclass(frozen=True, slots=True)
class _Attack:
    """Tries every kind of features on the recordings, whatever was sent."""

    folder: Path
    listener: Recogniser | None
    words: str | None
    screen: _Screen

    def on(self, files: Sequence[str]) -> list[int]:
        from edgedraft.caption.attack import EVIDENCE

        if self.listener is None:
            self.screen.note(_without_recogniser())
        recordings: dict[Path, Recording] = {}
        codes = []
        for number, file in enumerate(files, 1):
            try:
                recording = recordings[Path(file)] = load(file)
                self._words(file, number, recording)
                codes.append(0)
            except EdgedraftError as error:
                codes.append(self.screen.fail(file, error))
        self._voices(recordings)
        self.screen.note(EVIDENCE)
        return codes

    def _words(self, file: str, number: int, recording: Recording) -> None:
        from edgedraft.caption.attack import attack_words
        from edgedraft.caption.synthetic import write_wav

        found = [
            attack_words(recording, spec, words=self.words, recogniser=self.listener)
            for spec in caption_flags.FEATURES.values()
        ]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, each in zip(caption_flags.FEATURES, found, strict=True):
                write_wav(self.folder / f"{number}-{Path(file).stem}-{name}.wav", each.waveform)
        except OSError as error:
            raise InvalidRequestError(
                f"attack '{self.folder}' cannot be written: {error.strerror}.",
                field="attack",
                remedy="Name another folder.",
            ) from None
        self.screen.words(file, found)

    def _voices(self, recordings: Mapping[Path, Recording]) -> None:
        """Where there are two folders or more with two recordings or more each, a folder counts as a speaker."""
        from edgedraft.caption.attack import attack_voices

        speakers = Counter(file.resolve().parent for file in recordings)
        told = {file: recording for file, recording in recordings.items() if speakers[file.resolve().parent] > 1}
        if len({file.resolve().parent for file in told}) < 2:
            self.screen.note("Who speaks is tried where recordings lie in folders by speaker, two or more in each.")
            return
        self.screen.voices(
            [
                attack_voices([(extract(each, spec), str(file.resolve().parent)) for file, each in told.items()])
                for spec in caption_flags.FEATURES.values()
            ]
        )


def _without_recogniser() -> str:
    from edgedraft.caption.recogniser import installed_recogniser

    library = installed_recogniser()
    if library is not None:
        return f"{library.replace('_', '-')} is installed: give its model with --recogniser DIR, and words are counted."
    return "No recogniser is given (--recogniser DIR), so words are not counted: listen for yourself."


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft caption privacy speech.wav",
            "edgedraft caption privacy speech.wav --strategy exact --json",
            "edgedraft caption privacy anna/*.wav ben/*.wav --attack heard --recogniser whisper-base",
        )
    )(privacy)
