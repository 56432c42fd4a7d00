"""Randomness without state: every draw is a pure function of (seed, choice, position) and a token id or a purpose.

So edge and cloud draw the same noise without exchanging it, and a request gives the same text whatever its schedule.

Exactly (golden vectors in `tests/golden/noise_v1.json`; integers are unsigned and wrap at 2^64):

    key    = BLAKE2b(seed, choice, position as three little-endian 64-bit words), 8 bytes, read little-endian
    z      = key + (id + 1) * 0x9E3779B97F4A7C15
    z      = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
    z      = (z ^ z >> 27) * 0x94D049BB133111EB
    h      =  z ^ z >> 31
    u      = ((h >> 12) + 0.5) * 2^-52              never 0 and never 1
    gumbel = -log(-log(u))

The middle is output number `id` of splitmix64 (Steele, Lea and Flood 2014) seeded with `key`. Uniforms for a purpose
take `h` from BLAKE2b itself, with the purpose as its personalisation, so they are independent of the noise.
"""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import numpy.typing as npt

from edgedraft.types import Float32Array, Float64Array

IdArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]

_WORDS = struct.Struct("<QQQ")
_HASH_BYTES = 8
_INCREMENT = 0x9E3779B97F4A7C15
# Arrays without dimensions: numpy takes them faster than its scalars, which a short row feels.
_FIRST_FACTOR, _SECOND_FACTOR, _ID_FACTOR = (
    np.array(factor, np.uint64) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, _INCREMENT)
)
_SHIFT_12, _SHIFT_27, _SHIFT_30, _SHIFT_31 = (np.array(places, np.uint64) for places in (12, 27, 30, 31))
_MASK = 2**64 - 1

_PLAIN_IDS = 4096
"""Up to so many ids, taking every logarithm is faster than sieving."""
CHUNK_IDS = 15_360
"""Long rows are worked on in pieces whose arrays fit the cache and never make the allocator map fresh pages."""
_TOP_BITS = 31
_LIMIT = np.float32(2.0**_TOP_BITS * (1.0 - 2.0**-20))
_MARGIN = 1e-4
_STEEPEST = 1e30


def noise_key(seed: int, choice: int, position: int) -> int:
    """64-bit key of the noise of one position of one answer. Arguments from 0 to 2^64 - 1."""
    digest = hashlib.blake2b(_WORDS.pack(seed, choice, position), digest_size=_HASH_BYTES)
    return int.from_bytes(digest.digest(), "little")


def keyed_uniform(seed: int, choice: int, position: int, purpose: bytes) -> float:
    """A uniform in (0, 1), independent for every different argument. `purpose`: at most 16 bytes."""
    digest = hashlib.blake2b(_WORDS.pack(seed, choice, position), digest_size=_HASH_BYTES, person=purpose)
    return ((int.from_bytes(digest.digest(), "little") >> 12) + 0.5) * 2.0**-52


def _mixed(key: int, ids: IdArray) -> HashArray:
    """`z` before the last step of the formula. That step leaves the highest 31 bits as they are."""
    z = ids.view(np.uint64) * _ID_FACTOR
    z += np.uint64((key + _INCREMENT) & _MASK)
    shifted = z >> _SHIFT_30
    z ^= shifted
    z *= _FIRST_FACTOR
    z ^= np.right_shift(z, _SHIFT_27, out=shifted)
    z *= _SECOND_FACTOR
    return z


def noise_hashes(key: int, ids: IdArray) -> HashArray:
    """`h` of the module's formula for each id: uint64, the shape of `ids` (int64, not negative)."""
    z = _mixed(key, ids)
    z ^= z >> _SHIFT_31
    return z


def gumbel_noise(key: int, ids: IdArray) -> Float64Array:
    """Standard Gumbel noise for each id: float64, the shape of `ids`, always finite (-3.6 to 36.8)."""
    return np.negative(_negative_noise(key, ids))


def _negative_noise(key: int, ids: IdArray) -> Float64Array:
    hashes = noise_hashes(key, ids)
    hashes >>= _SHIFT_12
    uniforms = hashes.astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-52
    np.log(uniforms, out=uniforms)
    np.negative(uniforms, out=uniforms)
    return np.log(uniforms, out=uniforms)


def noisy_argmax(values: Float32Array, top: float, temperature: float, ids: IdArray, key: int) -> int:
    """Index of the highest `(values - top) / temperature + gumbel_noise(key, ids)` in float64; on a tie, the first.

    `values`: float32, shape (n,), n >= 1, not NaN; `top`: the highest of them, finite. Adding Gumbel noise
    and taking the arg max samples from the softmax. The result is that of the formula bit for bit, but long rows are
    sieved, so that logarithms are taken for few ids: `score + g >= bound` is `-log(u) <= exp(score - bound)`, and as
    `1 - u <= -log(u)` it needs `u + exp(score - bound) >= 1`. That is tested in float32 on the highest 31 bits of the
    hash, with a margin far above its rounding; what passes is computed whole.
    """
    if len(ids) <= _PLAIN_IDS:
        return int(_noisy(values, top, temperature, ids, key).argmax())
    best = int(values.argmax())
    bound = float(_noisy(values[best : best + 1], top, temperature, ids[best : best + 1], key)[0])
    best_value = -math.inf
    for start in range(0, len(ids), CHUNK_IDS):
        chunk = slice(start, start + CHUNK_IDS)
        indices = _sieved(values[chunk], top, temperature, ids[chunk], key, bound)
        if len(indices) == 0:
            continue
        indices += start
        scores = _noisy(values[indices], top, temperature, ids[indices], key)
        winner = int(scores.argmax())
        if scores[winner] > best_value:
            best, best_value = int(indices[winner]), float(scores[winner])
            bound = max(bound, best_value)
    return best


def scale(values: Float32Array, top: float, temperature: float) -> Float64Array:
    """`(values - top) / temperature`: float64, same shape. `temperature` from 1e-200, so that nothing overflows."""
    scaled: Float64Array = np.subtract(values, top, dtype=np.float64)
    scaled /= temperature
    return scaled


def _noisy(values: Float32Array, top: float, temperature: float, ids: IdArray, key: int) -> Float64Array:
    scores = scale(values, top, temperature)
    scores -= _negative_noise(key, ids)
    return scores


def _sieved(
    values: Float32Array, top: float, temperature: float, ids: IdArray, key: int, bound: float
) -> npt.NDArray[np.intp]:
    """Indices of all ids whose noisy score reaches `bound`, and of very few others."""
    mixed = _mixed(key, ids)
    mixed >>= np.uint64(64 - _TOP_BITS)
    reach = np.empty(len(ids), np.float32)
    with np.errstate(over="ignore"):
        np.subtract(values, top, out=reach, casting="same_kind")
        reach *= np.float32(min(1.0 / temperature, _STEEPEST))
    reach += np.float32(_TOP_BITS * math.log(2.0) + _MARGIN - bound)
    np.exp(reach, out=reach)
    reach += mixed.view(np.int64).astype(np.float32)
    return np.flatnonzero(reach >= _LIMIT)
