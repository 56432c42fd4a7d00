"""The consoles that commands print to."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from edgedraft.cli.render import err_console, out_console


def test_a_reader_that_has_left_is_told_as_such_on_any_thread() -> None:
    """Rich would raise SystemExit, which ends the event loop of another thread while its caller waits for ever."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for make, name in ((out_console, "stdout"), (err_console, "stderr")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, name, Gone())
            console = make()
        with pytest.raises(BrokenPipeError):
            console.print("a caption")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [("models", "list"), ("models", "list", "--json")])
def test_a_full_disk_is_no_bug(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgedraft", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "stdout cannot be written" in done.stderr
    assert "bug" not in done.stderr
