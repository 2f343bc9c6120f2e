"""What travels between operators: an item, and its form on the wire.

Problem: an image, a point cloud or a clip must cross process and machine borders in well under a millisecond, and what a
broken operator or a stranger sends must end in an error that names the place, never in a wrong item or another exception.

Form (little-endian; everything is aligned to 8 bytes, so arrays are read in place):

    offset  bytes  meaning
    0       4      "ISLI"
    4       1      version, 1
    5       1      number of fields
    6       2      zero
    8       8      id, unsigned
    16      8      time_s, a finite float: seconds since the epoch at which the source saw the item
    24      4      length of the header in bytes: these 32 and the descriptions, padded
    28      4      CRC-32 of the header with this field zero
    32      ...    one description per field: length of name (1), name (UTF-8), kind (1), and then
                   number: float (8) | text: length in bytes (4) | array: dtype (1), dimensions (1), shape (4 each)
    ...     ...    texts and arrays in that order, each padded to 8

A batch is "ISLB", version (4), count (4), zero (4), and each item after its length (8), padded to 8.

Limits: `MAX_*` below. The checksum covers the header alone: TCP already protects the data, and what can be wrong with the
data (their length) follows from the header. Decoded arrays are read-only views into the received bytes: copy before writing.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Array | str | float

#: Fields of one item: more is a mistake, and the count must fit one byte.
MAX_FIELDS = 64
#: Dimensions of an array: images and batches of them need four.
MAX_DIMENSIONS = 8
#: Bytes of a batch: a cloud of a million points in double precision has 24 MB; more is a mistake or an attack on memory.
MAX_BYTES = 256 * 1024 * 1024
#: Items of one batch: what an operator makes of one item, for instance the crops of an image.
MAX_ITEMS = 4096
#: Numbers that a float holds exactly.
_EXACT = 2**53

_HEAD = struct.Struct("<4sBBHQdII")
_BATCH = struct.Struct("<4sIII")
_LENGTH = struct.Struct("<Q")
_SHORT = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_ITEM_MAGIC, _BATCH_MAGIC, _VERSION = b"ISLI", b"ISLB", 1
_NUMBER, _TEXT, _ARRAY = 0, 1, 2
_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name) for name in ("|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class ItemError(ValueError):
    """What cannot be encoded, or bytes that are no item; the message says where and what."""


@dataclass(frozen=True, eq=False)
class Item:
    """One frame, sweep or clip with what operators found in it.

    `id` is the source's count and stays the same along the pipeline; `time_s` is when the source saw it (seconds since the
    epoch); `payload` holds arrays, texts and numbers by name.
    """

    id: int
    time_s: float
    payload: dict[str, Value] = field(default_factory=dict)

    def with_payload(self, **changes: Value) -> Item:
        """The same item with fields added or replaced."""
        return Item(self.id, self.time_s, {**self.payload, **changes})

    def __eq__(self, other: object) -> bool:
        """Equal ids, times, names and values; arrays also in shape and dtype."""
        if not isinstance(other, Item):
            return NotImplemented
        return (
            self.id == other.id
            and self.time_s == other.time_s
            and self.payload.keys() == other.payload.keys()
            and all(_same(value, other.payload[name]) for name, value in self.payload.items())
        )

    def __hash__(self) -> int:
        return hash((self.id, self.time_s))


def _same(one: Value, two: Value) -> bool:
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return (
            isinstance(one, np.ndarray)
            and isinstance(two, np.ndarray)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and one.tobytes() == two.tobytes()
        )
    return one == two or (one != one and two != two)


def encode(item: Item) -> bytes:
    """The item's bytes."""
    return b"".join(_parts(item))


def encode_batch(items: Sequence[Item]) -> bytes:
    """The bytes of several items, in their order."""
    if len(items) > MAX_ITEMS:
        raise ItemError(f"a batch of {len(items)} items: {MAX_ITEMS} at most; split it")
    parts: list[bytes | memoryview] = [_BATCH.pack(_BATCH_MAGIC, _VERSION, len(items), 0)]
    total = _BATCH.size
    for item in items:
        own = _parts(item)
        length = sum(len(part) for part in own)
        parts.append(_LENGTH.pack(length))
        parts += own
        total += _LENGTH.size + length
    if total > MAX_BYTES:
        raise ItemError(f"a batch of {total} bytes: {MAX_BYTES} at most; send smaller items")
    return b"".join(parts)


def _parts(item: Item) -> list[bytes | memoryview]:
    """Header and data as pieces whose lengths are multiples of 8 bytes in sum after each field."""
    if not 0 <= item.id < 2**64:
        raise ItemError(f"item {item.id}: an id is from 0 to 2^64-1")
    if not math.isfinite(item.time_s):
        raise ItemError(f"item {item.id}: time_s is {item.time_s}, which is no time")
    if len(item.payload) > MAX_FIELDS:
        raise ItemError(f"item {item.id}: {len(item.payload)} fields; {MAX_FIELDS} at most")
    descriptions = bytearray()
    data: list[bytes | memoryview] = []
    for name, value in item.payload.items():
        spelled = name.encode()
        if not 1 <= len(spelled) <= 255:
            raise ItemError(f"item {item.id}: a field's name has 1 to 255 bytes, {name[:40]!r} has {len(spelled)}")
        descriptions.append(len(spelled))
        descriptions += spelled
        _describe(item.id, name, value, descriptions, data)
    descriptions += bytes(-len(descriptions) % 8)
    length = _HEAD.size + len(descriptions)
    head = _HEAD.pack(_ITEM_MAGIC, _VERSION, len(item.payload), 0, item.id, item.time_s, length, 0)
    check = zlib.crc32(descriptions, zlib.crc32(head))
    head = head[:-4] + _SHORT.pack(check)
    return [head, bytes(descriptions), *data]


def _describe(number: int, name: str, value: Value, out: bytearray, data: list[bytes | memoryview]) -> None:
    if isinstance(value, np.ndarray):
        dtype = value.dtype.newbyteorder("<") if value.dtype.byteorder == ">" else value.dtype
        code = _CODES.get(dtype)
        if code is None:
            known = ", ".join(one.name for one in _DTYPES)
            raise ItemError(f"item {number}: field {name!r} is an array of {value.dtype}; known are {known}")
        if value.ndim > MAX_DIMENSIONS:
            raise ItemError(f"item {number}: field {name!r} has {value.ndim} dimensions; {MAX_DIMENSIONS} at most")
        if value.nbytes > MAX_BYTES:
            raise ItemError(f"item {number}: field {name!r} has {value.nbytes} bytes; {MAX_BYTES} at most")
        out += bytes((_ARRAY, code, value.ndim))
        out += struct.pack(f"<{value.ndim}I", *value.shape)
        plain = np.ascontiguousarray(value, dtype=dtype)
        data.append(plain.reshape(-1).view(np.uint8).data)
        data.append(bytes(-value.nbytes % 8))
    elif isinstance(value, str):
        spelled = value.encode()
        out.append(_TEXT)
        out += _SHORT.pack(len(spelled))
        data.append(spelled + bytes(-len(spelled) % 8))
    elif isinstance(value, (int, float, np.integer, np.floating)):
        if isinstance(value, (int, np.integer)) and abs(int(value)) > _EXACT:
            raise ItemError(f"item {number}: field {name!r} is {value}, which a float cannot hold; send it as text")
        out.append(_NUMBER)
        out += _FLOAT.pack(float(value))
    else:
        raise ItemError(f"item {number}: field {name!r} is a {type(value).__name__}; send an array, a text or a number")


def decode(data: bytes | bytearray | memoryview) -> Item:
    """The item that these bytes are, whole and nothing more. Arrays are read-only views into them."""
    view = memoryview(data).cast("B").toreadonly()
    if len(view) < _HEAD.size:
        raise ItemError(f"{len(view)} bytes: an item has at least {_HEAD.size}")
    magic, version, count, zero, number, time_s, length, check = _HEAD.unpack_from(view)
    if magic != _ITEM_MAGIC:
        raise ItemError(f"begins with {bytes(magic)!r} and not with {_ITEM_MAGIC!r}: this is no item")
    if version != _VERSION:
        raise ItemError(f"is of version {version}; this program reads {_VERSION}")
    if not _HEAD.size <= length <= len(view):
        raise ItemError(f"its header should have {length} bytes, and {len(view)} are here")
    if zlib.crc32(view[_HEAD.size : length], zlib.crc32(bytes(4), zlib.crc32(view[: _HEAD.size - 4]))) != check:
        raise ItemError("the header's checksum is wrong: damaged on the way or written by something else")
    if count > MAX_FIELDS or zero != 0 or length % 8 or not math.isfinite(time_s):
        raise ItemError(f"item {number}: its header contradicts itself ({count} fields, {length} bytes, time {time_s})")
    reader = _Reader(view, _HEAD.size, length, number)
    payload = reader.fields(count)
    if reader.data != len(view):
        raise ItemError(f"item {number}: {len(view) - reader.data} bytes follow its end")
    return Item(number, time_s, payload)


class _Reader:
    """Walks along descriptions and data at once; every step is checked against the end."""

    def __init__(self, view: memoryview, at: int, end: int, number: int) -> None:
        self.view, self.at, self.end, self.number = view, at, end, number
        self.data = end

    def take(self, length: int) -> memoryview:
        if self.at + length > self.end:
            raise ItemError(f"item {self.number}: its descriptions end in the middle of a field")
        self.at += length
        return self.view[self.at - length : self.at]

    def take_data(self, length: int, name: str) -> memoryview:
        if self.data + length + (-length % 8) > len(self.view):
            left = len(self.view) - self.data
            raise ItemError(f"item {self.number}: field {name!r} should have {length} bytes, and {left} are left")
        start = self.data
        self.data += length + (-length % 8)
        return self.view[start : start + length]

    def fields(self, count: int) -> dict[str, Value]:
        payload: dict[str, Value] = {}
        for _ in range(count):
            name = self.text(self.take(self.take(1)[0]), "a field's name")
            if not name or name in payload:
                raise ItemError(f"item {self.number}: the field {name!r} is nameless or comes twice")
            payload[name] = self.value(name)
        if self.end - self.at >= 8 or any(self.view[self.at : self.end]):
            raise ItemError(f"item {self.number}: something follows its last description")
        return payload

    def text(self, spelled: memoryview, what: str) -> str:
        try:
            return str(spelled, "utf-8")
        except UnicodeDecodeError as error:
            raise ItemError(f"item {self.number}: {what} is not UTF-8: {error.reason}") from None

    def value(self, name: str) -> Value:
        kind = self.take(1)[0]
        if kind == _NUMBER:
            number: float = _FLOAT.unpack(self.take(8))[0]
            return number
        if kind == _TEXT:
            return self.text(self.take_data(_SHORT.unpack(self.take(4))[0], name), f"field {name!r}")
        if kind != _ARRAY:
            raise ItemError(f"item {self.number}: field {name!r} is of kind {kind}, which is unknown")
        code, dimensions = self.take(2)
        if code >= len(_DTYPES) or dimensions > MAX_DIMENSIONS:
            raise ItemError(f"item {self.number}: field {name!r} has dtype {code} and {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}I", self.take(4 * dimensions))
        dtype = _DTYPES[code]
        data = self.take_data(math.prod(shape) * dtype.itemsize, name)
        if not len(data):
            return np.zeros(_bounded(shape, self.number, name), dtype)
        if dtype == np.bool_ and max(data) > 1:
            raise ItemError(f"item {self.number}: field {name!r} has truth values that are neither 0 nor 1")
        return np.frombuffer(data, dtype).reshape(shape)


def _bounded(shape: tuple[int, ...], number: int, name: str) -> tuple[int, ...]:
    """The shape of an array without elements: the other sides are still no licence for any size."""
    if math.prod(side for side in shape if side) > MAX_BYTES:
        raise ItemError(f"item {number}: field {name!r} is empty and yet has the shape {shape}")
    return shape


def decode_batch(data: bytes | bytearray | memoryview) -> list[Item]:
    """The items of a batch, in their order; the bytes are exactly one batch."""
    view = memoryview(data).cast("B").toreadonly()
    if not _BATCH.size <= len(view) <= MAX_BYTES:
        raise ItemError(f"{len(view)} bytes: a batch has {_BATCH.size} to {MAX_BYTES}")
    magic, version, count, zero = _BATCH.unpack_from(view)
    if magic != _BATCH_MAGIC or version != _VERSION or zero != 0:
        raise ItemError(f"begins with {bytes(view[:8])!r}: this is no batch of version {_VERSION}")
    if count > MAX_ITEMS:
        raise ItemError(f"a batch of {count} items: {MAX_ITEMS} at most")
    items, at = [], _BATCH.size
    for index in range(count):
        if at + _LENGTH.size > len(view):
            raise ItemError(f"the batch ends before item {index + 1} of {count}")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > len(view) - at:
            raise ItemError(f"item {index + 1} of {count} should have {length} bytes, and {len(view) - at} are left")
        items.append(decode(view[at : at + length]))
        at += length
    if at != len(view):
        raise ItemError(f"{len(view) - at} bytes follow the batch's end")
    return items
