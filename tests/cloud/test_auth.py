"""Tokens, and the refusal to serve a public address without protection."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.cloud.auth import ANONYMOUS, check_bind, check_tokens, hash_token, is_loopback, subject_of
from edgedraft.config import CloudConfig
from edgedraft.errors import AuthError, InsecureBindError, InvalidRequestError

TOKENS = (hash_token("one"), hash_token("two"))


def test_without_configured_tokens_everybody_is_anonymous() -> None:
    assert subject_of("", ()) == ANONYMOUS
    assert subject_of("Bearer whatever", ()) == ANONYMOUS


def test_each_token_is_a_subject_of_its_own() -> None:
    assert subject_of("Bearer one", TOKENS) != subject_of("bearer two", TOKENS)
    assert subject_of("Bearer one", TOKENS) == subject_of("Bearer one", TOKENS)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer three", "Basic one", "one", f"Bearer {TOKENS[0]}"])
def test_a_missing_or_wrong_token_is_refused(header: str) -> None:
    with pytest.raises(AuthError, match="token"):
        subject_of(header, TOKENS)


def test_digests_match_in_either_case() -> None:
    assert subject_of("Bearer one", (hash_token("one").upper(),))


def test_a_token_in_place_of_its_digest_is_refused_without_being_repeated() -> None:
    with pytest.raises(InvalidRequestError, match="64 hexadecimal") as caught:
        check_tokens([hash_token("fine"), "my-secret-token"])
    assert "my-secret-token" not in str(caught.value)
    assert "[1]" in str(caught.value)


def test_an_empty_token_has_no_digest() -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        hash_token(" \n")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_needs_no_protection(host: str) -> None:
    assert is_loopback(host)
    check_bind(CloudConfig(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "cloud.example", "localhost.example"])  # noqa: S104
def test_a_public_address_needs_both_token_and_tls(host: str) -> None:
    token, tls = TOKENS[:1], Path("cert.pem")
    with pytest.raises(InsecureBindError, match=r"without a token .* and TLS .*--insecure"):
        check_bind(CloudConfig(host=host))
    with pytest.raises(InsecureBindError, match="without TLS"):
        check_bind(CloudConfig(host=host, token_sha256=token))
    with pytest.raises(InsecureBindError, match="without a token"):
        check_bind(CloudConfig(host=host, tls_cert=tls, tls_key=tls))
    check_bind(CloudConfig(host=host, token_sha256=token, tls_cert=tls, tls_key=tls))
    check_bind(CloudConfig(host=host, insecure=True))
