"""`edgedraft caption`: what a voice expresses, in words, from recordings that stay on this device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from edgedraft.caption import microphone
from edgedraft.caption.audio import load
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import DEFAULT_DRAFT, AsyncCaptioner
from edgedraft.caption.excerpt_captions import ExcerptCaption, RecordingCaption, excerpts_of
from edgedraft.caption.excerpts import Excerpt
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import DEFAULT_MAX_TOKENS, CaptionRequest
from edgedraft.caption.voice_activity import check
from edgedraft.cli import caption_calibrate, caption_flags, caption_privacy, caption_synth, options
from edgedraft.cli.caption_screen import Screen
from edgedraft.cli.render import print_json
from edgedraft.cli.report import exit_code, print_error
from edgedraft.edge.loop_thread import LoopThread
from edgedraft.errors import EdgedraftError, InvalidRequestError
from edgedraft.speech_features import FeatureDtype

EXIT_NO_SPEECH = 6
"""A recording holds no speech: nothing was captioned or sent."""
DEFAULT_COMMAND = "file"


class FilesFirst(TyperGroup):
    """A group whose first word may be a file or an option of its command `file`, which then goes without saying.

    A file that is named like a command is reached as ./NAME, or with the word `file` before it.
    """

    default_command = DEFAULT_COMMAND

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=FilesFirst,
    add_completion=False,
    help="Caption recordings: how a voice sounds and what it expresses; calibrate, privacy and synth around that.",
)


@app.command(
    name=DEFAULT_COMMAND,
    no_args_is_help=True,
    epilog=options.examples(
        "edgedraft caption speech.wav",
        "edgedraft caption speech.wav --lang zh --show-tokens --show-entropy",
        "edgedraft caption monday.m4a tuesday.ogg --strategy edge-only --json",
        "edgedraft caption --mic 5 --exact",
        "edgedraft caption file ./calibrate",
        "Other commands: edgedraft caption calibrate, privacy and synth (each with --help).",
    ),
)
def file(
    files: caption_flags.Files = None,
    mic: caption_flags.Mic = None,
    lang: caption_flags.Lang = None,
    draft: caption_flags.Draft = DEFAULT_DRAFT,
    url: options.Url = None,
    token: options.Token = None,
    tls_ca: options.TlsCa = None,
    on_link_loss: caption_flags.OnLoss = None,
    strategy: caption_flags.StrategyName = None,
    exact: caption_flags.Exact = False,
    threshold: caption_flags.ThresholdText = caption_flags.AUTO,
    measure: caption_flags.MeasureName = None,
    rank: caption_flags.RankText = caption_flags.AUTO,
    block: caption_flags.BlockText = None,
    count_local: caption_flags.CountLocal = True,
    unit: caption_flags.UnitName = None,
    forced: caption_flags.Forced = None,
    bonus: caption_flags.Bonus = False,
    draft_ahead: caption_flags.DraftAhead = None,
    features: caption_flags.FeatureName = caption_flags.AUTO,
    dtype: caption_flags.Dtype = FeatureDtype.INT8,
    max_tokens: caption_flags.MaxTokens = DEFAULT_MAX_TOKENS,
    window_s: caption_flags.WindowS = None,
    show_tokens: caption_flags.ShowTokens = False,
    show_entropy: caption_flags.ShowEntropy = False,
    as_json: caption_flags.Json = False,
) -> None:
    """Caption recordings: how the voice sounds and what it expresses. The word `file` may be left out.

    The caption goes to stdout; notices and its account, with all that left this device, to stderr. With --json each
    recording is one object. A recording that fails does not stop the others; the exit code is that of the first that
    did. 6: no speech was found, and nothing was sent.
    """
    # What cannot be obeyed is refused before any model is loaded, and the rest before the microphone listens.
    wish = CaptionRequest(
        language=lang,
        strategy=caption_flags.gate_choice(
            strategy=strategy,
            exact=exact,
            threshold=threshold,
            measure=measure,
            rank=rank,
            block=block,
            count_local=count_local,
            unit=unit,
            forced=forced,
            bonus=bonus,
            draft_ahead=draft_ahead,
        ),
        max_tokens=max_tokens,
        on_link_loss=on_link_loss,
        features=caption_flags.feature_spec(features),
        dtype=dtype,
    )
    caption_flags.check_window(window_s)
    sources = _sources(files or [], mic)
    captioner = AsyncCaptioner(url, draft=draft, token=token, tls_ca=tls_ca)
    with LoopThread(captioner, AsyncCaptioner) as loop:  # so a signal ends what is waited for, and then closes it
        caption_flags.check_window(window_s, captioner.max_seconds)
        request, notice = captioner.settled(wish)
        screen = Screen(captioner.tokenizer, names=len(sources) > 1, show_tokens=show_tokens, show_entropy=show_entropy)
        if notice and not as_json:
            screen.note(notice)
        run = _Run(loop, captioner, request, window_s, screen, as_json)
        codes = [run.one(source, notice) for source in sources]
    code = next((code for code in codes if code), 0)
    if code:
        raise typer.Exit(code)


def _sources(files: Sequence[str], mic: float | None) -> list[str | float]:
    if mic is not None and files:
        raise InvalidRequestError("mic is given together with files; legal: one of them.", field="mic")
    if mic is None and not files:
        raise InvalidRequestError(
            "file is missing, and stdin is not read.", field="file", remedy="Name a recording, or use --mic SECONDS."
        )
    if mic is None:
        return list(files)
    microphone.check(mic)
    return [mic]


@dataclass(frozen=True, slots=True)
class _Run:
    """Captions one recording after another."""

    loop: LoopThread
    captioner: AsyncCaptioner
    request: CaptionRequest
    window_s: float | None
    screen: Screen
    as_json: bool

    def one(self, source: str | float, notice: str) -> int:
        """The exit code for one recording, whose errors are told here."""
        name = "microphone" if isinstance(source, float) else source
        try:
            recording = self._recording(source)
            found = self._told(recording) if self.as_json else self._shown(recording)
        except EdgedraftError as error:
            self._tell(name, error)
            return exit_code(error)
        if self.as_json:
            values = found.to_dict()
            notices = [*values["notices"], *([notice] if notice else [])]
            print_json({**values, "notices": notices, "gate": caption_flags.gate_values(self.request.settled_strategy)})
        return 0 if found.captions else EXIT_NO_SPEECH

    def _tell(self, name: str, error: EdgedraftError) -> None:
        body = {"code": error.code, "message": error.message, "remedy": error.remedy}
        if self.as_json:
            print_json({"file": name, "error": body})
            return
        message = error.message if error.message.startswith(name) else f"{name}: {error.message}"
        print_error(error.code, message, error.remedy, as_json=False)

    def _recording(self, source: str | float) -> Recording:
        if isinstance(source, float):
            with self.screen.doing(f"recording {source:g} s"):
                return microphone.record(source)
        with self.screen.doing(f"reading {source}"):
            return load(source)

    def _told(self, recording: Recording) -> RecordingCaption:
        return self.loop.run(self.captioner.caption_all(recording, self.request, window_s=self.window_s))

    def _shown(self, recording: Recording) -> RecordingCaption:
        """The same, each caption on the screen while it is written."""
        found = check(recording)
        excerpts = excerpts_of(recording, found, self.captioner.max_seconds, self.window_s)
        self.screen.begin(recording.name, found)
        done = [
            ExcerptCaption(
                start_s=each.start_s,
                end_s=each.end_s,
                caption=self._caption(each, of_several=len(excerpts) > 1) if each.has_speech else None,
            )
            for each in excerpts
        ]
        self.screen.say_used(done, recording.seconds)
        return RecordingCaption(recording=recording, check=found, excerpts=done)

    def _caption(self, excerpt: Excerpt, *, of_several: bool) -> Caption:
        before = f"[{excerpt.start_s:.1f} to {excerpt.end_s:.1f} s] " if of_several else ""
        caption = self.loop.run(self._streamed(excerpt.recording, before))
        self.screen.say(caption)
        return caption

    async def _streamed(self, recording: Recording, before: str) -> Caption:
        stream = self.captioner.stream(recording, self.request)
        with self.screen.doing("taking features"):
            await stream.__aenter__()
        try:
            return await self.screen.write(stream, before)
        finally:
            await stream.__aexit__(None, None, None)


for command in (caption_calibrate, caption_privacy, caption_synth):
    command.register(app)
