"""`edgedraft generate` against a real cloud process."""

from __future__ import annotations

import pytest

from edgedraft.bench.cloud_process import CloudProcess

TARGET = "toy:vocab=300,context=100000"
FIRST_KEYS = ["text", "token_ids", "finish_reason", "usage", "strategy", "exact", "accounting"]
ACCOUNTING = {
    *("ttft_s", "total_s", "tpt_s", "num_rounds", "num_drafted", "num_accepted", "num_committed", "num_target_passes"),
    *("tokens_up", "bytes_up", "bytes_down", "num_discarded", "num_reconnects"),
}


def test_json_is_one_object_with_the_promised_keys_in_order(ask) -> None:
    outcome = ask("hello", "--max-tokens", "20", "--json")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.count("\n") == 1
    assert list(outcome.json)[: len(FIRST_KEYS)] == FIRST_KEYS
    assert {"seed", "notices"} <= set(outcome.json)
    assert set(outcome.json["accounting"]) >= ACCOUNTING
    assert outcome.json["usage"]["completion_tokens"] == len(outcome.json["token_ids"]) == 20


def test_json_has_log_probabilities_where_asked(ask) -> None:
    plain = ask("hello", "--max-tokens", "20", "--json").json
    answer = ask("hello", "--max-tokens", "20", "--logprobs", "--json").json
    assert list(answer) == [*plain, "logprobs"]
    assert answer["token_ids"] == plain["token_ids"]
    assert len(answer["logprobs"]) == 20
    assert all(logprob < 0 for logprob in answer["logprobs"])


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "logprobs is given without json"), (["--json", "--strategy", "edge-only"], "strategy 'edge-only'")],
)
def test_log_probabilities_that_cannot_be_shown_or_had_are_refused(run, words: list[str], said: str) -> None:
    outcome = run("generate", "hello", "--url", "ws://127.0.0.1:1/v1/edgedraft", "--logprobs", *words)
    assert outcome.code == 2
    assert said in outcome.err


def test_text_goes_to_stdout_and_the_account_to_stderr(ask) -> None:
    text = ask("hello", "--max-tokens", "20", "--json").json["text"]
    outcome = ask("hello", "--max-tokens", "20")
    assert outcome.code == 0
    assert outcome.out == text + "\n"
    assert "20 tokens in" in outcome.err
    assert "exact: bitwise" in outcome.err


def test_show_tokens_keeps_the_text_and_puts_a_legend_on_stderr(ask) -> None:
    plain = ask("hello", "--max-tokens", "40")
    shown = ask("hello", "--max-tokens", "40", "--show-tokens", "--strategy", "vanilla")
    assert shown.out == plain.out
    assert "accepted" in shown.err
    assert "recovered" in shown.err
    assert "\x1b" not in shown.out + shown.err, "no colours into a pipe"


def test_every_strategy_and_draft_gives_the_same_text(ask, run, cloud: CloudProcess) -> None:
    options = ["--max-tokens", "30", "--temperature", "0.8", "--seed", "5", "--json"]
    texts = {
        ask("hello", *options).json["text"],
        ask("hello", "--draft-length", "9", *options).json["text"],
        ask("hello", *options, draft=TARGET).json["text"],
        ask("hello", "--tokenizer", TARGET, *options, draft="lookup").json["text"],
        ask("hello", "--strategy", "cloud-only", *options).json["text"],
        ask("hello", "--tokenizer", TARGET, *options, draft="none").json["text"],
    }
    assert len(texts) == 1


def test_another_seed_gives_another_text(ask) -> None:
    options = ["--max-tokens", "30", "--temperature", "0.8", "--json"]
    assert ask("hello", "--seed", "5", *options).json["text"] != ask("hello", "--seed", "6", *options).json["text"]


def test_a_drawn_seed_is_reported_and_repeats_the_text(ask) -> None:
    first = ask("hello", "--max-tokens", "30", "--temperature", "0.8", "--json").json
    again = ask("hello", "--max-tokens", "30", "--temperature", "0.8", "--seed", str(first["seed"]), "--json").json
    assert again["text"] == first["text"]


def test_cloud_only_loads_no_draft_and_has_one_pass_per_token(ask) -> None:
    answer = ask("hello", "--strategy", "cloud-only", "--max-tokens", "10", "--json").json
    assert answer["accounting"]["num_drafted"] == 0
    assert answer["accounting"]["num_target_passes"] == 10


def test_a_dash_reads_the_prompt_from_stdin(ask) -> None:
    given = ask("hello there", "--max-tokens", "5", "--json").json
    assert ask("-", "--max-tokens", "5", "--json", stdin="hello there").json["usage"] == given["usage"]


def test_stop_strings_end_the_text(ask) -> None:
    text = ask("hello", "--max-tokens", "30", "--json").json["text"]
    stop = text[8:10]
    answer = ask("hello", "--max-tokens", "30", "--stop", "\x00never", "--stop", stop, "--json").json
    assert answer["text"] == text[: text.index(stop)]
    assert answer["finish_reason"] == "stop"


def test_raw_sends_the_prompt_without_a_template(ask) -> None:
    templated, raw = (ask("hello", "--max-tokens", "1", "--json", *extra).json for extra in ([], ["--raw"]))
    assert raw["usage"]["prompt_tokens"] < templated["usage"]["prompt_tokens"]


def test_a_system_message_goes_into_the_template(ask) -> None:
    plain, system = (ask("hello", "--max-tokens", "1", "--json", *extra).json for extra in ([], ["--system", "Be."]))
    assert system["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]


def test_the_access_token_comes_from_flag_or_environment(
    run, guarded_cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", "hi", "--url", guarded_cloud.url, "--draft", TARGET, "--max-tokens", "3"]
    assert run(*words, "--token", "a token for the tests").code == 0
    monkeypatch.setenv("EDGEDRAFT_TOKEN", "a token for the tests")
    assert run(*words).code == 0


def test_the_url_comes_from_the_environment(run, cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDRAFT_URL", cloud.url)
    assert run("generate", "hi", "--draft", TARGET, "--max-tokens", "3").code == 0


def test_proxy_variables_do_not_divert_a_loopback_cloud(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask("hi", "--max-tokens", "3").code == 0
