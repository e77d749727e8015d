"""A headless Chromium, driven over a pipe by the DevTools protocol: no port, no driver program.

with Browser() as browser, browser.page(width=390) as page:
    page.open(url); page.run("document.title")
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from tests.fakes.needs import needs

WAIT_SECONDS = 60.0
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which cannot be had as root
    "--remote-debugging-pipe",
    "--disable-dev-shm-usage",  # other tests look at /dev/shm
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Browser:
    def __init__(self) -> None:
        self._chromium = needs("chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="llmhost-test-", ignore_cleanup_errors=True)
        self._received = b""
        self._number = 0
        self._events: dict[str, list[tuple[str, dict[str, Any]]]] = {}

    def __enter__(self) -> Self:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [
            fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (theirs_in, theirs_out)
        ]  # 3 and 4 may be taken here
        command = [sys.executable, "-c", _LAUNCH, *map(str, high), self._chromium, *_FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for descriptor in (theirs_in, theirs_out, *high):
            os.close(descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            self.tell("Browser.close")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own
            self.process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    @contextlib.contextmanager
    def page(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> Iterator["Page"]:
        """Open a tab that shares nothing with others."""
        context = self.tell("Target.createBrowserContext")["browserContextId"]
        target = self.tell("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.tell(f"{domain}.enable")
        page.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.tell("Emulation.setEmulatedMedia", features=[scheme])
        page.tell("Emulation.setScriptExecutionDisabled", value=not scripts)
        try:
            yield page
        finally:
            self.tell("Target.disposeBrowserContext", browserContextId=context)

    def tell(self, method: str, session: str = "", /, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - the protocol's JSON
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": given} | ({"sessionId": session} if session else {})
        remaining = memoryview(json.dumps(message).encode() + b"\0")
        while remaining:
            remaining = remaining[os.write(self._out, remaining) :]
        until = time.monotonic() + WAIT_SECONDS
        while (answer := self._message(until)).get("id") != number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def event(self, session: str, method: str) -> dict[str, Any]:
        until = time.monotonic() + WAIT_SECONDS
        while True:
            events = self._events.get(session, [])
            for index, (name, given) in enumerate(events):
                if name == method:
                    del events[index]
                    return given
            self._message(until)

    def events(self, session: str) -> list[tuple[str, dict[str, Any]]]:
        return self._events.get(session, [])

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, f"the browser has ended with {self.process.wait(5)}"
            self._received += data
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self._events.setdefault(message.get("sessionId", ""), []).append((message["method"], message["params"]))
        return message


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def tell(self, method: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
        return self._browser.tell(method, self._session, **given)

    def event(self, method: str) -> dict[str, Any]:
        """Take the next event of that kind, which may have come already."""
        return self._browser.event(self._session, method)

    def open(self, url: str) -> None:
        """Go there, and wait until all of it has loaded."""
        self._browser.events(self._session).clear()
        answer = self.tell("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.event("Page.loadEventFired")

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON it comes to
        """Give what the script comes to; it is run by the debugger, also where the page may run none."""
        answer = self.tell("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until the script comes to something true."""
        end = time.monotonic() + WAIT_SECONDS
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.tell("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, *, whole: bool = True) -> bytes:
        """Draw the page as PNG, all of it or what the window shows."""
        answer = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def complaints(self) -> list[str]:
        """Say what the browser and the page's scripts have complained of since it was opened."""
        found = []
        self.run("0")  # what was said before is there by then
        for name, given in self._browser.events(self._session):
            if name == "Log.entryAdded" and given["entry"]["level"] in {"error", "warning"}:
                found.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
            elif name == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"]))
        return found
