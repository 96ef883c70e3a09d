"""Framed messages over a socket: a JSON header and any number of byte blobs."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("!II")

#: No single blob may be larger than this; it bounds what a rank can make its owner hold.
MAX_BLOB_BYTES = 2**31


class ChannelClosed(ConnectionError):
    """The other side has gone."""


class ChannelFault(ValueError):
    """The other side sent something that is no message, or one beyond the limits."""


def pack(header: dict[str, Any], *blobs: bytes) -> bytes:
    """One message as bytes: two lengths, the blobs' lengths, the header, the blobs."""
    text = json.dumps(header).encode()
    sizes = struct.pack(f"!{len(blobs)}Q", *map(len, blobs))
    return b"".join([_LENGTHS.pack(len(text), len(blobs)), sizes, text, *blobs])


class Parser:
    """Turns a stream of bytes into messages, however the stream is cut."""

    def __init__(self, max_bytes: int = MAX_BLOB_BYTES):
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], list[bytes]]]:
        """Add bytes; return the messages that are now whole.

        Raises:
            ChannelFault: what came is no message, or is larger than ``max_bytes``.
        """
        self._buffer += data
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> tuple[dict[str, Any], list[bytes]] | None:
        buffer = self._buffer
        if len(buffer) < _LENGTHS.size:
            return None
        text_bytes, count = _LENGTHS.unpack_from(buffer)
        if count > 64 or text_bytes > self._max_bytes:
            raise ChannelFault(f"a message of {text_bytes:,} bytes with {count} parts is beyond the limits")
        start = _LENGTHS.size + 8 * count
        if len(buffer) < start:
            return None
        sizes = struct.unpack_from(f"!{count}Q", buffer, _LENGTHS.size)
        if text_bytes + sum(sizes) > self._max_bytes:
            raise ChannelFault(
                f"a message of {text_bytes + sum(sizes):,} bytes is beyond the limit of {self._max_bytes:,}"
            )
        end = start + text_bytes + sum(sizes)
        if len(buffer) < end:
            return None
        try:
            header = json.loads(bytes(buffer[start : start + text_bytes]))
        except ValueError as error:
            raise ChannelFault(f"a message whose header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise ChannelFault("a message whose header is not an object")
        blobs, at = [], start + text_bytes
        for size in sizes:
            blobs.append(bytes(buffer[at : at + size]))
            at += size
        del buffer[:end]
        return header, blobs


class Channel:
    """A blocking end of such a stream."""

    def __init__(self, sock: socket.socket, max_bytes: int = MAX_BLOB_BYTES):
        self.socket = sock
        self._parser = Parser(max_bytes)
        self._waiting: list[tuple[dict[str, Any], list[bytes]]] = []

    def send(self, header: dict[str, Any], *blobs: bytes) -> None:
        """Send one message.

        Raises:
            ChannelClosed: nobody reads any more.
        """
        try:
            self.socket.sendall(pack(header, *blobs))
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """Wait for one message.

        Raises:
            ChannelClosed: the other side closed before a whole message came.
        """
        while not self._waiting:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError as error:
                raise ChannelClosed(str(error)) from None
            if not data:
                raise ChannelClosed("the other side has gone")
            self._waiting += self._parser.feed(data)
        return self._waiting.pop(0)

    def close(self) -> None:
        self.socket.close()
