import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest
from tests.fakes.http_peers import Starter, get, hello, serve
from tests.fakes.needs import missing

from llmhost.model.listen import ListenAddress, parse_listen
from llmhost.serve.http import HttpServer, ListenError
from llmhost.serve.listening import open_listener

__all__ = ["serve"]


@pytest.fixture
def ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        missing("IPv6 on loopback")


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":10061", "", 10061),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::1]:10061", "::1", 10061),
        ("[::]:1", "::", 1),
        ("localhost:65535", "localhost", 65535),
        ("gpu-1.example.org:80", "gpu-1.example.org", 80),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, host: str, port: int) -> None:
    assert parse_listen(text) == ListenAddress(host=host, port=port)
    assert str(parse_listen(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10061", 'did you mean ":10061"?'),
        ("", "a listen address is [HOST]:PORT"),
        ("localhost", "a listen address is [HOST]:PORT"),
        ("http://localhost:80", "without scheme or path"),
        ("localhost:80/metrics", "without scheme or path"),
        ("::1:80", "an IPv6 address stands in brackets"),
        ("[::1]", "a listen address is [HOST]:PORT"),
        ("[::1]80", "a listen address is [HOST]:PORT"),
        ("[::g]:80", "in brackets stands an IPv6 address"),
        ("[localhost]:80", "in brackets stands an IPv6 address"),
        ("256.0.0.1:80", "the host is no IPv4 address"),
        ("127.1:80", "the host is no IPv4 address"),
        (":65536", "a number from 0 to 65535"),
        (":http", "a number from 0 to 65535"),
        (":-1", "a number from 0 to 65535"),
        ("a b:80", "no address and no host name"),
        ("*:80", "no address and no host name"),
        ("-a:80", "no address and no host name"),
    ],
)
def test_a_bad_address_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"address|port|host") as caught:
        parse_listen(text)
    assert said in str(caught.value)
    with pytest.raises(ListenError) as listening:
        open_listener(text)
    assert str(listening.value) == f'bad listen address "{text}": {caught.value}'


def test_no_host_is_every_address_ipv4_and_ipv6(serve: Starter, ipv6: None) -> None:
    server = serve(listen=":0")
    assert server.address[0] == "::"
    port = server.address[1]
    assert port > 0
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_no_host_is_ipv4_where_the_kernel_has_no_ipv6(serve: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIpv6(socket.socket):
        def __init__(self, family: int = -1, *arguments: int, **options: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *arguments, **options)

    monkeypatch.setattr(socket, "socket", WithoutIpv6)
    server = serve(listen=":0")
    assert server.address[0] == "0.0.0.0"
    assert get(server)[0] == 200


def test_an_ipv6_address_is_served(serve: Starter, ipv6: None) -> None:
    server = serve(listen="[::1]:0")
    assert server.address[0] == "::1"
    assert get(server)[0] == 200


def test_a_name_is_served_at_its_ipv4_address(serve: Starter) -> None:
    server = serve(listen="localhost:0")
    assert server.address[0] == "127.0.0.1"
    assert get(server)[0] == 200


def test_a_port_in_use_says_so_in_one_line() -> None:
    with taken_port() as port, pytest.raises(ListenError) as caught:
        HttpServer(f"127.0.0.1:{port}", {"/": hello}, max_connections=1)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: the port is in use, perhaps by another llmhost"


def test_a_port_in_use_on_one_address_is_in_use_for_all() -> None:
    with taken_port() as port, pytest.raises(ListenError, match="the port is in use"):
        open_listener(f":{port}")


def test_an_address_that_this_host_does_not_have_says_so() -> None:
    with pytest.raises(ListenError) as caught:
        open_listener("192.0.2.1:0")  # TEST-NET-1, RFC 5737
    assert str(caught.value) == "cannot listen on 192.0.2.1:0: this host has no such address"


def test_a_name_that_is_not_known_says_so() -> None:
    with pytest.raises(ListenError) as caught:
        open_listener("nowhere.invalid:0")  # RFC 6761
    assert str(caught.value) == "cannot listen on nowhere.invalid:0: no address is known for this host name"


def test_a_port_that_needs_a_privilege_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden(socket.socket):
        def bind(self, _address: object, /) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Forbidden)
    with pytest.raises(ListenError) as caught:
        open_listener(":80")
    assert str(caught.value) == "cannot listen on :80: permission denied; ports below 1024 want CAP_NET_BIND_SERVICE"


def test_a_name_with_both_is_served_at_its_ipv4_address(serve: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: both)
    assert serve(listen="gpu1:0").address[0] == "127.0.0.1"


def test_a_restart_need_not_wait_for_the_connections_of_the_last_run(serve: Starter) -> None:
    first = serve()
    assert get(first)[0] == 200  # closed by the server, so TIME_WAIT is on its port
    first.stop()
    second = serve(listen=f"127.0.0.1:{first.address[1]}")
    assert get(second)[0] == 200
