"""An RTSP server on loopback that plays one clip to each client, again and again: a camera for tests.

Method: RTSP/1.0 (RFC 2326) with the clip's MPEG transport stream in RTP over the same connection (RFC 2250, payload type 33). Each client
starts at the clip's beginning. Frames leave at `rate_per_s`, or as fast as the client takes them. Limits: no authentication, no other
transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import struct
import time
from collections.abc import Iterator

#: Bytes of a transport packet, and how many travel in one RTP packet.
TS_BYTES, TS_PACKETS = 188, 7
#: Type of an MPEG transport stream.
PAYLOAD_TYPE = 33
#: The first stream of FFmpeg's transport streams.
VIDEO = 0x100


class Camera:
    """Plays `clip`, a file of MPEG transport packets, `loops` times to each client. Use as an asynchronous context manager."""

    def __init__(self, clip: pathlib.Path, rate_per_s: float = 0.0, loops: int = 1_000_000) -> None:
        self._frames = list(frames_of(clip.read_bytes()))
        self._rate_per_s, self._loops = rate_per_s, loops
        self.clients = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Camera:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"rtsp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/clip"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Ends all connections, as a camera does that starts again."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._session(reader, writer))
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await task
        self._tasks.discard(task)
        writer.transport.abort()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, address, _ = head.split(" ", 2)
            number = next(line.split(":")[1].strip() for line in head.split("\r\n") if line.lower().startswith("cseq"))
            lines, body = [f"CSeq: {number}"], ""
            if method == "OPTIONS":
                lines.append("Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN")
            elif method == "DESCRIBE":
                body = f"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=clip\r\nt=0 0\r\na=control:*\r\nm=video 0 RTP/AVP {PAYLOAD_TYPE}\r\na=control:all\r\n"
                lines += ["Content-Type: application/sdp", f"Content-Base: {address}/", f"Content-Length: {len(body)}"]
            elif method == "SETUP":
                lines += ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1", "Session: 1"]
            else:
                lines.append("Session: 1")
            writer.write("\r\n".join(["RTSP/1.0 200 OK", *lines, "", body]).encode())
            if method == "PLAY":
                # A connection that is closed with reports of the client in it is reset, and frames on their way are lost.
                reports = asyncio.ensure_future(self._until_closed(reader))
                try:
                    await self._play(writer)
                    writer.write_eof()
                    await reports
                finally:
                    reports.cancel()
                return

    async def _until_closed(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(65536):
            pass

    async def _play(self, writer: asyncio.StreamWriter) -> None:
        sequence = number = 0
        begin = time.monotonic()
        for frame in itertools.chain.from_iterable(itertools.repeat(self._frames, self._loops)):
            if self._rate_per_s:
                await asyncio.sleep(begin + number / self._rate_per_s - time.monotonic())
            number += 1
            for at in range(0, len(frame), TS_BYTES * TS_PACKETS):
                packet = frame[at : at + TS_BYTES * TS_PACKETS]
                head = struct.pack(">BBHII", 0x80, PAYLOAD_TYPE, sequence % 65536, 0, 1)
                writer.write(b"$\x00" + struct.pack(">H", len(head) + len(packet)) + head + packet)
                sequence += 1
            if writer.is_closing():
                return
            await writer.drain()


def frames_of(data: bytes) -> Iterator[bytes]:
    """The packets of each frame, with the tables before it."""
    begin = seen = 0
    for at in range(0, len(data), TS_BYTES):
        starts, stream = data[at + 1] & 0x40, (data[at + 1] & 0x1F) << 8 | data[at + 2]
        if starts and stream == VIDEO:
            seen += 1
            if seen > 1:
                yield data[begin:at]
                begin = at
    yield data[begin:]
