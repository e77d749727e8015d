"""Access to the status: for clients over loopback, for this host by name, and through no proxy."""

import socket
import subprocess
import sys

import pytest
from tests.fakes.http_peers import Starter, received, serve
from tests.fakes.needs import needs, needs_root

from llmhost.serve.access import may_see_all
from llmhost.serve.routes import Request, Response, text

__all__ = ["serve"]


def request(client: str = "127.0.0.1", host: str | None = "localhost:10061", **headers: str) -> Request:
    named = {} if host is None else {"host": host}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method="GET", path="/", query={}, headers=named, client=client)


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_a_local_client_may(client: str) -> None:
    assert may_see_all(request(client))


@pytest.mark.parametrize(
    "client",
    [
        "10.0.0.7",
        "192.168.1.1",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "::2",
        "::ffff:10.0.0.7",
        "fe80::1%eth0",
        "",
        "localhost",
    ],
)
def test_a_client_from_elsewhere_may_not_whatever_it_says(client: str) -> None:
    assert not may_see_all(request(client))
    assert not may_see_all(request(client, x_forwarded_for="127.0.0.1"))


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:10061", "127.1.2.3", "[::1]", "[::1]:10061"]
)
def test_this_host_may_be_called_by_its_loopback_names(host: str) -> None:
    assert may_see_all(request(host=host))


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:10061",
        "localhost.evil.example",
        "localhost:10061.evil.example",
        "evil.example@localhost",
        "127.0.0.1.evil.example",
        "10.0.0.7:10061",
        "[::ffff:10.0.0.7]",
        "[::1",
        "::1",
        "127.1",
        "2130706433",
        "0.0.0.0:10061",
        "localhost:",
        "localhost:999999",
        "localhost, evil.example",
        "localhost\t",
    ],
)
def test_a_name_that_was_made_to_lead_here_may_not(host: str | None) -> None:
    assert not may_see_all(request(host=host))


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_forwarded_anything", "x_real_ip"]
)
def test_what_a_proxy_on_this_host_asks_for_others_may_not(header: str) -> None:
    assert not may_see_all(request(**{header: ""}))


def test_it_goes_by_the_connection_and_the_headers_as_they_are_sent(serve: Starter) -> None:
    def handler(incoming: Request) -> Response:
        return text(str(may_see_all(incoming)))

    server = serve({"/": handler}, listen="[::]:0")
    for address in ("127.0.0.1", "::1"):
        assert answer_to(address, server.address[1], "Host: localhost") == b"True"
        assert answer_to(address, server.address[1], "Host: evil.example") == b"False"
        assert answer_to(address, server.address[1], "Host: localhost", "x-FORWARDED-for: 10.0.0.7") == b"False"
        assert answer_to(address, server.address[1], "Host: localhost", "Via: 1.1 proxy") == b"False"


def test_a_client_of_an_address_that_other_hosts_reach_is_from_elsewhere() -> None:
    needs_root()
    done = subprocess.run(
        [needs("unshare"), "--net", sys.executable, "-c", _IN_A_NETWORK], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("127.0.0.1: True\n198.51.100.1: False\n", "")


# In a network of its own, in which the loopback interface is up and has a second address (netdevice(7)).
_IN_A_NETWORK = """
import fcntl, http.client, socket, struct
from llmhost.serve.access import may_see_all
from llmhost.serve.http import HttpServer
from llmhost.serve.routes import text

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("198.51.100.1"))
    fcntl.ioctl(control, 0x8916, struct.pack("16s16s", b"lo:1", address))  # SIOCSIFADDR
server = HttpServer(":0", {"/": lambda request: text(str(may_see_all(request)))}, max_connections=2)
server.start()
for name in ("127.0.0.1", "198.51.100.1"):
    connection = http.client.HTTPConnection(name, server.address[1], timeout=60)
    connection.request("GET", "/", headers={"Host": "localhost"})
    print(f"{name}: {connection.getresponse().read().decode()}")
    connection.close()
server.stop()
"""


def answer_to(address: str, port: int, *headers: str) -> bytes:
    with socket.create_connection((address, port), timeout=60) as client:
        client.sendall("\r\n".join(["GET / HTTP/1.1", "Connection: close", *headers, "", ""]).encode())
        return received(client).partition(b"\r\n\r\n")[2]
