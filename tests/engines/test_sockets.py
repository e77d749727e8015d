"""Listening sockets as the kernel writes them into /proc/net/tcp and tcp6."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.engine_servers import PROC, process_id

from llmhost.sources.engine.sockets import parse_listeners, read_listeners, sockets_of, still_holds

COLUMNS = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(address: str, state: str, uid: int, inode: int) -> str:
    zero = "0" * len(address.partition(":")[0]) + ":0000"
    rest = f"00000000:00000000 00:00000000 00000000  {uid:4}        0 {inode} 1 0000000000000000 100 0 0 10 0"
    return f"   0: {address} {zero} {state} {rest}\n"


def test_addresses_are_words_in_the_machines_byte_order() -> None:
    # as seen on a little-endian machine, which is what NVIDIA's drivers run on
    lines = [
        COLUMNS,
        row("0100007F:1F40", "0A", 0, 101),
        row("00000000:0050", "0A", 1000, 102),
        row("00000000000000000000000000000000:2328", "0A", 0, 103),
        row("00000000000000000000000001000000:FFFF", "0A", 0, 104),
        row("0000000000000000FFFF00000500000A:1F90", "0A", 0, 105),
        row("B80D01200000000067452301EFCDAB89:0001", "0A", 0, 106),
    ]
    assert [
        (parse_listener.address, parse_listener.port, parse_listener.uid, parse_listener.inode)
        for parse_listener in parse_listeners(lines)
    ] == [
        ("127.0.0.1", 8000, 0, 101),
        ("0.0.0.0", 80, 1000, 102),
        ("::", 9000, 0, 103),
        ("::1", 65535, 0, 104),
        ("10.0.0.5", 8080, 0, 105),
        ("2001:db8::123:4567:89ab:cdef", 1, 0, 106),
    ]


def test_reading_ends_where_connections_begin() -> None:
    def lines() -> Iterator[str]:
        yield COLUMNS
        yield row("0100007F:1F40", "0A", 0, 101)
        yield row("0100007F:1F40", "01", 0, 555)
        raise AssertionError("read on")

    assert [parse_listener.inode for parse_listener in parse_listeners(lines())] == [101]


def test_the_sockets_of_a_process_are_what_it_has_open() -> None:
    me = process_id(os.getpid())
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as second,
    ):
        listeners = {listener.inode: (listener.address, listener.port) for listener in read_listeners(PROC)}
        sockets = {held.descriptor: held for held in sockets_of(PROC, me) or ()}
        assert listeners[sockets[first.fileno()].inode] == first.getsockname()
        assert listeners[sockets[second.fileno()].inode] == second.getsockname()[:2]
        held = sockets[first.fileno()]
        assert still_holds(PROC, held)
    assert not still_holds(PROC, held)


def test_a_host_without_ipv6_has_no_tcp6(tmp_path: Path) -> None:
    (tmp_path / "self/net").mkdir(parents=True)
    (tmp_path / "self/net/tcp").write_text(COLUMNS + row("0100007F:1F40", "0A", 0, 101))
    assert [read_listener.port for read_listener in read_listeners(tmp_path)] == [8000]
