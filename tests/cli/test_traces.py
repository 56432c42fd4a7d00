"""`edgedraft traces`."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.backends.trace import read_trace

TOY = "toy:vocab=300,eos_every=40"
NOISY = f"{TOY},noise=0.5"
SHARED = "qwen25-coder-0.5b-to-1.5b"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("first\nsecond\n")
    return path


def test_show_gives_the_figures_of_the_packaged_trace(run) -> None:
    outcome = run("traces", "show", SHARED, "--json")
    assert outcome.code == 0
    assert outcome.json["header"] is None
    kinds = {kind["kind"]: kind for kind in outcome.json["kinds"]}
    assert round(kinds["code"]["acceptance_rate"], 3) == 0.957
    assert round(kinds["maths"]["acceptance_rate"], 3) == 0.918
    assert round(kinds["chat"]["acceptance_rate"], 3) == 0.693


def test_show_for_people_is_a_table(run) -> None:
    rows = [row.split() for row in run("traces", "show", SHARED).out.replace("│", " ").splitlines()]
    assert ["code", "20", "1490", "0.957", "22.3", "0.516"] in rows


def test_record_writes_a_file_that_show_reads(run, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "toy.jsonl.gz"
    words = ("--target", TOY, "--draft", NOISY, "--prompts", str(prompts), "--out", str(out), "--kind", "toys")
    outcome = run("traces", "record", *words, "--max-tokens", "20", "--json")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.json["header"]["target"] == "toy:seed=1,vocab=300"
    assert [kind["kind"] for kind in outcome.json["kinds"]] == ["toys"]
    assert run("traces", "show", str(out), "--json").json == outcome.json
    header, texts = read_trace(out).header, read_trace(out).texts
    assert header is not None
    assert (header.vocab_size, header.eos_ids, header.max_tokens) == (300, (297, 299), 20)
    assert [text.id for text in texts] == ["prompts-1", "prompts-2"]
    raw = run("traces", "record", *words, "--raw", "--overwrite", "--max-tokens", "20")
    assert raw.code == 0
    assert "recording 2 texts" in raw.err
    assert read_trace(out).texts[0].num_prompt_tokens < texts[0].num_prompt_tokens, "no chat template"


def test_record_refuses_before_it_records(run, prompts: Path, tmp_path: Path) -> None:
    def refused(*, out: Path, draft: str = NOISY, prompts: Path = prompts) -> tuple[int, str]:
        outcome = run(
            *("traces", "record", "--target", TOY, "--draft", draft, "--prompts", str(prompts), "--out", str(out))
        )
        return outcome.code, outcome.err

    new = tmp_path / "new.jsonl"
    assert refused(out=prompts) == (
        2,
        f"error: out {prompts} is there already. Give another name, or add --overwrite.\n",
    )
    assert refused(out=tmp_path)[0] == 2
    assert refused(out=tmp_path / ("n" * 300))[0] == 3
    assert refused(out=tmp_path / ("n" * 245))[0] == 3, "a name, but not with what is added while it is written"
    assert refused(out=tmp_path / "none" / "new.jsonl")[0] == 3
    assert refused(out=new, prompts=tmp_path / "none.txt")[0] == 2
    assert refused(out=new, draft="lookup")[0] == 2
    code, message = refused(out=new, draft="toy:vocab=301")
    assert code == 3
    assert "one vocabulary has 301 ids, the other 300" in message
    assert not new.exists()


def test_prompts_are_not_overwritten(run, prompts: Path) -> None:
    words = ("--target", TOY, "--draft", NOISY, "--prompts", str(prompts), "--out", str(prompts), "--overwrite")
    refused = run("traces", "record", *words)
    assert refused.code == 2
    assert "is the file of prompts" in refused.err
    assert prompts.read_text() == "first\nsecond\n"


def test_show_refuses_what_is_no_trace(run, prompts: Path) -> None:
    outcome = run("traces", "show", str(prompts))
    assert outcome.code == 3
    assert "prompts.txt, line 1" in outcome.err
    assert SHARED in run("traces", "show", "nothing").err
