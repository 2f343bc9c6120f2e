"""Items survive the wire bit for bit, and any bytes give an item or an ItemError."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest

from isolane.pipeline.item import MAX_FIELDS, Item, ItemError, Value, decode, decode_batch, encode, encode_batch

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]


def random_item(draw: random.Random) -> Item:
    """Any item that the format can carry, small."""
    payload: dict[str, Value] = {}
    for _ in range(draw.randrange(6)):
        name = draw.choice(["frame", "boxes", "text", "größe", "x" * 255, "n"]) + str(draw.randrange(2))
        name = name[:200]
        kind = draw.randrange(3)
        if kind == 0:
            payload[name] = draw.choice([0.0, -1.5, float("inf"), float("nan"), draw.uniform(-1e9, 1e9)])
        elif kind == 1:
            payload[name] = "".join(draw.choice("aé\0漢🙂 ") for _ in range(draw.randrange(20)))
        else:
            shape = tuple(draw.randrange(5) for _ in range(draw.randrange(4)))
            data = np.frombuffer(draw.randbytes(8 * int(np.prod(shape))), np.int64).reshape(shape)
            payload[name] = np.asarray(data % 2).astype(draw.choice(DTYPES))
    return Item(draw.getrandbits(64), draw.uniform(0, 2e9), payload)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_encoded_is_decoded(seed: int) -> None:
    item = random_item(random.Random(seed))
    assert decode(encode(item)) == item, f"seed {seed}"
    assert encode(decode(encode(item))) == encode(item), f"seed {seed}"


@pytest.mark.parametrize("seed", range(50))
def test_a_batch_keeps_items_and_order(seed: int) -> None:
    draw = random.Random(seed)
    items = [random_item(draw) for _ in range(draw.randrange(5))]
    assert decode_batch(encode_batch(items)) == items, f"seed {seed}"


def attempt(data: bytes) -> Item | None:
    try:
        return decode(data)
    except ItemError:
        return None


@pytest.mark.parametrize("seed", range(400))
def test_damaged_bytes_are_an_item_error_or_the_same_header(seed: int) -> None:
    """One to three changes: bits, cuts, additions. What passes differs at most in the data, which the checksum leaves out."""
    draw = random.Random(seed)
    item = random_item(draw)
    data = bytearray(encode(item))
    for _ in range(draw.randint(1, 3)):
        match draw.randrange(3):
            case 0:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            case 1:
                del data[draw.randrange(len(data)) :]
            case _:
                data += draw.randbytes(draw.randint(1, 9))
        if not data:
            break
    for batch in (data, struct.pack("<4sIIIQ", b"ISLB", 1, 1, 0, len(data)) + data):
        try:
            decode_batch(bytes(batch))
        except ItemError:
            pass
    found = attempt(bytes(data))
    if found is not None:
        assert (found.id, found.time_s, list(found.payload)) == (item.id, item.time_s, list(item.payload)), f"seed {seed}"


@pytest.mark.parametrize("seed", range(400))
def test_a_header_with_a_right_checksum_is_still_read_with_care(seed: int) -> None:
    """The reader behind the checksum: descriptions of random bytes, sealed as an encoder would."""
    import zlib

    draw = random.Random(seed)
    body = bytearray(encode(random_item(draw)))
    length = struct.unpack_from("<I", body, 24)[0]
    for _ in range(draw.randint(1, 6)):
        at = draw.choice([5, *range(24, 28), *range(32, max(length, 33))])
        if at < len(body):
            body[at] = draw.choice([0, 1, 2, 255, draw.randrange(256)])
    claimed = struct.unpack_from("<I", body, 24)[0]
    body[28:32] = bytes(4)
    body[28:32] = struct.pack("<I", zlib.crc32(bytes(body[: min(claimed, len(body))])))
    attempt(bytes(body))


@pytest.mark.parametrize("seed", range(100))
def test_noise_is_an_item_error(seed: int) -> None:
    draw = random.Random(seed)
    noise = draw.randbytes(draw.randrange(200))
    with pytest.raises(ItemError):
        decode(noise)
    with pytest.raises(ItemError):
        decode_batch(noise)


def test_decoded_arrays_cannot_be_written() -> None:
    array = decode(encode(Item(1, 0.0, {"a": np.arange(4)}))).payload["a"]
    assert isinstance(array, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Item(-1, 0.0), "an id is from 0"),
        (Item(1, float("nan")), "no time"),
        (Item(1, 0.0, {"": 1.0}), "1 to 255 bytes"),
        (Item(1, 0.0, {f"f{n}": 0.0 for n in range(MAX_FIELDS + 1)}), "65 fields"),
        (Item(1, 0.0, {"a": np.array(["x"])}), "array of <U1"),
        (Item(1, 0.0, {"a": np.zeros((1,) * 9)}), "9 dimensions"),
        (Item(1, 0.0, {"a": 2**60}), "cannot hold"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_name(item: Item, words: str) -> None:
    with pytest.raises(ItemError, match=words):
        encode(item)


def test_a_foreign_object_is_refused() -> None:
    foreign: Any = {"a": object()}
    with pytest.raises(ItemError, match="field 'a' is a object"):
        encode(Item(1, 0.0, foreign))


def test_big_endian_and_strided_arrays_arrive_as_what_they_mean() -> None:
    big = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    found = decode(encode(Item(1, 0.0, {"a": big}))).payload["a"]
    assert isinstance(found, np.ndarray) and found.tolist() == big.tolist()
