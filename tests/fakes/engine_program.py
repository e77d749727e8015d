"""Something that is run as `vllm serve …` and listens: real sockets and descriptors, and every way of answering.

ENGINE_LISTENERS is JSON: a list of {"mode": …, "at": address or socket path, "in": self | shared | worker}. `shared`
ones are listened on by this process and by two children, as by API servers of one launcher; `worker` ones by a child of
their own. Once all listen, one line of JSON goes to stdout: their ports, the children's pids. Every connection is noted
by its listener's number, a byte in the file ENGINE_VISITS.
"""

import json
import os
import socket
import ssl
import sys
import threading
from pathlib import Path

VISITS = os.open(os.environ["ENGINE_VISITS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
BODY = Path(os.environ["ENGINE_BODY"]).read_bytes()
FOREVER = threading.Event()


def answer(connection: socket.socket, status: str, body: bytes = b"", *headers: str) -> None:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""])
    connection.sendall(head.encode() + body)


def trickle(connection: socket.socket, data: bytes) -> None:
    for byte in data:
        connection.sendall(bytes([byte]))
        FOREVER.wait(0.02)


def flood(connection: socket.socket, mode: str, more: str) -> None:
    data = b"vllm:generation_tokens_total 1\n"
    if mode == "continue":
        data = b"HTTP/1.1 100 Continue\r\n\r\n"
    elif mode == "chunk":  # of a size that cannot be
        connection.sendall(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{more}\r\n".encode())
    else:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(data * 1000)


def request_of(connection: socket.socket) -> str:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        data = connection.recv(4096)
        if not data or data[0] == 0x16:  # the hello of TLS: as every server does, be done with it
            break
        received += data
    return received.decode("latin-1")


def respond(connection: socket.socket, mode: str, port: int) -> None:
    mode, _, more = mode.partition(" ")
    if mode == "zeromq":  # its greeting, which has no end of line, and then it waits for ours
        connection.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f")
        connection.recv(1 << 16)
        FOREVER.wait()
    request = request_of(connection)
    path = request.split(" ")[1] if " " in request else ""
    match mode:
        case "metrics":
            answer(connection, "200 OK", BODY)
        case "status":
            answer(connection, more, b"no\n")
        case "token":
            good = f"\r\nAuthorization: Bearer {more}\r\n" in request
            answer(connection, "200 OK", BODY) if good else answer(connection, "401 Unauthorized")
        case "path":
            answer(connection, "200 OK", BODY) if path == more else answer(connection, "404 Not Found")
        case "redirect":  # once: what it leads to is answered
            if path == "/metrics":
                answer(connection, "307 Temporary Redirect", b"", f"Location: {more.replace('PORT', str(port))}")
            else:
                answer(connection, "200 OK", BODY)
        case "loop":
            answer(connection, "308 Permanent Redirect", b"", "Location: /metrics/")
        case "chunked":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"%x\r\n%s\r\n" % (len(BODY), BODY) + (b"" if more == "cut" else b"0\r\n\r\n"))
        case "unframed":
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + BODY)
        case "raw":
            connection.sendall(more.encode())
        case "huge" | "chunk" | "continue":
            flood(connection, mode, more)
        case "announced":  # and not sent
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(BODY) + 100) + BODY)
        case "close":
            pass
        case "trickled-head":
            trickle(connection, b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(10_000)))
        case "trickled-body":
            trickle(connection, b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
        case "hang":
            FOREVER.wait()
        case "slow":
            FOREVER.wait(float(more))
            answer(connection, "200 OK", BODY)
        case _:
            raise AssertionError(mode)


def serve(listener: socket.socket, number: int, mode: str) -> None:
    context = None
    if mode.startswith("tls "):
        mode = mode.removeprefix("tls ")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.environ["ENGINE_CERTIFICATE"])

    def handle(connection: socket.socket) -> None:
        os.write(VISITS, b"%d" % number)
        try:
            secured = connection if context is None else context.wrap_socket(connection, server_side=True)
            name = listener.getsockname()
            respond(secured, mode, name[1] if isinstance(name, tuple) else 0)
            secured.close()
        except OSError:
            pass
        connection.close()

    while True:
        threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()


def listening(at: str, port: int) -> socket.socket:
    if at.startswith("/"):
        made = socket.socket(socket.AF_UNIX)
        made.bind(at)
    else:
        made = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if os.environ.get("ENGINE_REUSEPORT"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((at, port))
    made.listen(64)
    return made


def child(read: int, write: int, *served: tuple[socket.socket, int, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.close(write)
    for bound in served:
        threading.Thread(target=serve, args=bound, daemon=True).start()
    os.read(read, 1)  # the end of the parent
    os._exit(0)


def main() -> None:
    described = json.loads(os.environ["ENGINE_LISTENERS"])
    read, write = os.pipe()
    ports: list[int | str] = []
    children: list[int] = []
    own = []
    for number, description in enumerate(described):
        listener = listening(description["at"], description.get("port", 0))
        name = listener.getsockname()
        ports.append(name[1] if isinstance(name, tuple) else name)
        served = (listener, number, description["mode"])
        if description["in"] == "shared":
            children += [child(read, write, served), child(read, write, served)]
        elif description["in"] == "worker":
            children.append(child(read, write, served))
            listener.close()
        own.append((description["in"], served))
    for where, served in own:
        if where == "self":
            threading.Thread(target=serve, args=served, daemon=True).start()
    print(json.dumps({"ports": ports, "children": children}), flush=True)
    sys.stdin.read()


main()
