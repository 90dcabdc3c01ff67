"""Field case 73: a cluster that wants Kerberos, a client that has none: the message names both causes, with exit code 3.

hdfs-native drops the refusal itself and says that the listener is gone, so the message names the two usual causes.
No KDC here: a server that gives the answer of such a NameNode, byte by byte (RpcResponseHeaderProto, status FATAL).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ingest.sources import Folder
from streams.errors import Unreachable

REFUSAL = "SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]"


def text(number: int, value: str) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value.encode()


def answer() -> bytes:
    """callId −1 (authorization failed); status 2: FATAL; IPC version 9."""
    call_id = b"\x08" + b"\xff\xff\xff\xff\x0f"
    body = call_id + b"\x10\x02" + b"\x18\x09"
    body += text(4, "org.apache.hadoop.security.AccessControlException") + text(5, REFUSAL)
    framed = (bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) if len(body) > 127 else bytes([len(body)])) + body
    return struct.pack(">I", len(framed)) + framed


@pytest.fixture
def secure() -> Iterator[str]:
    server = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            connection.recv(4096)
            connection.sendall(answer())
            connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"hdfs://127.0.0.1:{server.getsockname()[1]}/in"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for connection in kept:
        connection.close()
    thread.join(5)


def test_the_message_names_both_sides(secure: str) -> None:
    with pytest.raises(Unreachable, match="RPC listener disconnected") as caught:
        Folder(secure).probe()
    assert "KERBEROS" in caught.value.got
    assert "SIMPLE" in caught.value.got
    assert caught.value.exit_code == 3
