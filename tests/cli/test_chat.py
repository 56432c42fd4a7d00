"""`edgedraft chat` with questions from a pipe, and with Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from edgedraft.bench.cloud_process import CloudProcess

TARGET = "toy:vocab=300,context=100000"


@pytest.fixture
def chat(run, cloud: CloudProcess):
    def chat_with_cloud(*lines: str, options: tuple[str, ...] = ("--json",)):
        words = ("chat", "--url", cloud.url, "--draft", TARGET, "--max-tokens", "5", *options)
        return run(*words, stdin="".join(f"{line}\n" for line in lines))

    return chat_with_cloud


def _prompt_tokens(outcome) -> list[int]:
    return [json.loads(line)["usage"]["prompt_tokens"] for line in outcome.out.splitlines()]


def test_questions_from_a_pipe_are_answered_with_their_history(chat) -> None:
    outcome = chat("one", "one", "one")
    assert outcome.code == 0
    first, second, third = _prompt_tokens(outcome)
    assert first < second < third


def test_reset_forgets_the_conversation_but_not_the_system_message(chat) -> None:
    options = ("--json", "--system", "Be brief.")
    first, again = _prompt_tokens(chat("one", "/reset", "one", options=options))
    assert first == again
    assert first > _prompt_tokens(chat("one"))[0]


def test_exit_ends_the_chat_before_later_questions(chat) -> None:
    assert len(_prompt_tokens(chat("one", "/exit", "two"))) == 1


def test_empty_lines_are_no_questions(chat) -> None:
    assert len(_prompt_tokens(chat("", "one", "   "))) == 1


def test_stats_tell_of_the_last_answer_and_of_all(chat) -> None:
    assert "no answer yet" in chat("/stats").err
    outcome = chat("one", "two", "/stats", options=())
    assert "last: 5 tokens" in outcome.err
    assert "all: 2 answers, 10 tokens" in outcome.err


def test_an_unknown_command_is_named_and_not_sent(chat) -> None:
    outcome = chat("/fly")
    assert "no such command: /fly" in outcome.err
    assert outcome.out == ""


def test_an_error_from_a_pipe_ends_with_its_code(run) -> None:
    outcome = run("chat", "--url", "ws://127.0.0.1:9/v1/edgedraft", "--draft", TARGET, stdin="hi\n")
    assert outcome.code == 4


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_stops_the_answer_and_not_the_chat(cloud: CloudProcess) -> None:
    command = [sys.executable, "-m", "edgedraft", "chat", "--url", cloud.url, "--draft", TARGET]
    with subprocess.Popen(
        [*command, "--max-tokens", "90000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"a long one\n")
        assert child.stdout.read(20), "the answer has begun"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(b"/stats\n", timeout=40)
    assert child.returncode == 0, errors
    assert b"finish: cancelled" in errors
    assert b"all: 1 answer," in errors
    assert b"Traceback" not in errors
