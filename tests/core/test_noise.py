"""The keyed noise, to the bit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from edgedraft.core import noise
from edgedraft.core.noise import gumbel_noise, keyed_uniform, noise_hashes, noise_key, noisy_argmax, scale

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "noise_v1.json").read_text())
MANY_IDS = 50_000


@pytest.mark.parametrize("vector", GOLDEN["noise"], ids=lambda v: f"{v['seed']}-{v['choice']}-{v['position']}")
def test_hashes_are_golden(vector: dict) -> None:
    """Vectors made with Python integers; append-only."""
    key = noise_key(vector["seed"], vector["choice"], vector["position"])
    assert f"{key:016x}" == vector["key"]
    hashes = noise_hashes(key, np.array(vector["ids"], np.int64))
    assert [f"{h:016x}" for h in hashes.tolist()] == vector["hashes"]


@pytest.mark.parametrize("vector", GOLDEN["uniforms"], ids=lambda v: f"{v['seed']}-{v['purpose']}")
def test_uniforms_are_golden(vector: dict) -> None:
    uniform = keyed_uniform(vector["seed"], vector["choice"], vector["position"], vector["purpose"].encode())
    assert uniform == float.fromhex(vector["uniform"])


def test_noise_is_finite_for_the_extreme_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "noise_hashes", lambda key, ids: np.array([0, 2**64 - 1], np.uint64))
    low, high = gumbel_noise(0, np.arange(2))
    assert low == pytest.approx(-math.log(53 * math.log(2)))
    assert high == pytest.approx(53 * math.log(2))


@pytest.mark.parametrize("digest", [b"\0" * 8, b"\xff" * 8])
def test_uniforms_are_never_0_or_1(digest: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        def __init__(self, *args: object, **kwargs: object) -> None: ...

        def digest(self) -> bytes:
            return digest

    monkeypatch.setattr(noise.hashlib, "blake2b", Fixed)
    assert 0.0 < keyed_uniform(0, 0, 0, b"draft") < 1.0


def test_seed_choice_position_and_purpose_all_count() -> None:
    draws = {keyed_uniform(*triple, purpose) for triple in [(1, 2, 3), (2, 1, 3), (1, 3, 2), (0, 2, 3)]
             for purpose in (b"draft", b"accept", b"recover", b"bonus")}  # fmt: skip
    assert len(draws) == 16
    assert len({noise_key(1, 2, 3), noise_key(2, 1, 3), noise_key(1, 3, 2), noise_key(0, 2, 3)}) == 4


def test_noise_is_gumbel_over_ids_and_over_positions() -> None:
    over_ids = gumbel_noise(noise_key(7, 0, 7), np.arange(MANY_IDS))
    over_positions = [gumbel_noise(noise_key(7, 0, p), np.array([3]))[0] for p in range(5_000)]
    over_seeds = [gumbel_noise(noise_key(s, 0, 9), np.array([3]))[0] for s in range(5_000)]
    for sample in (over_ids, over_positions, over_seeds):
        assert stats.kstest(sample, stats.gumbel_r.cdf).pvalue > 1e-3


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    wide = rng.normal(0, 3, MANY_IDS)
    peaked = wide.copy()
    peaked[40_000] = 40.0
    holes = np.where(rng.random(MANY_IDS) < 0.9, -np.inf, wide)
    last = np.full(MANY_IDS, -np.inf)
    last[-1] = 1.0
    huge = wide * 1e36
    return {"wide": wide, "peaked": peaked, "flat": np.zeros(MANY_IDS), "holes": holes, "last": last, "huge": huge}


@pytest.mark.parametrize("temperature", [1e-200, 1e-30, 0.05, 0.8, 1.0, 100.0])
@pytest.mark.parametrize("name", rows())
def test_sieve_gives_the_plain_formula(name: str, temperature: float) -> None:
    values = rows()[name].astype(np.float32)
    ids = np.arange(0, 3 * MANY_IDS, 3)
    top = float(values.max())
    for key in range(20):
        plain = scale(values, top, temperature) + gumbel_noise(key, ids)
        assert noisy_argmax(values, top, temperature, ids, key) == int(plain.argmax())


def test_sieve_takes_few_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(noise, "gumbel_noise", lambda key, ids: (taken.append(len(ids)), gumbel_noise(key, ids))[1])
    values = rows()["wide"].astype(np.float32)
    noisy_argmax(values, float(values.max()), 0.8, np.arange(MANY_IDS), 1)
    assert sum(taken) < MANY_IDS / 20


def test_noisy_ties_go_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "gumbel_noise", lambda key, ids: np.full(len(ids), 36.0))
    monkeypatch.setattr(noise, "_mixed", lambda key, ids: np.full(len(ids), 2**64 - 1, np.uint64))
    for num_ids in (10, MANY_IDS):
        values = np.zeros(num_ids, np.float32)
        values[:3] = -1.0
        assert noisy_argmax(values, 0.0, 1.0, np.arange(num_ids), 1) == 3
