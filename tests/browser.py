"""A browser without a window, driven over a pipe by the Chrome DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, cast

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WITH_PIPES = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3]]
for number, pipe in enumerate(pipes, 3):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A program that starts the browser with its pipes as descriptors 3 and 4, as it expects them."""
Answer: TypeAlias = Mapping[str, object]
"""An answer of the browser, or an event."""
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
"""The sandbox needs rights that a container does not give; the page is our own."""


def find_browser() -> str | None:
    """The path of an installed Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """An open page.

    What its script throws or logs as an error is in `errors`, each address that it asked for in `requests`.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        """Make a page, and hear what happens in it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Answer:
        """The result of a command of the protocol."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return cast(Answer, answer["result"])
            self._hear(answer)

    def _next(self) -> Answer:
        while b"\0" not in self._read:
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._read += data
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def _hear(self, event: Answer) -> None:
        parameters = json.dumps(event.get("params"))
        match event:
            case {"method": "Runtime.exceptionThrown"}:
                self.errors.append(parameters[:2000])
            case {"method": "Runtime.consoleAPICalled", "params": {"type": "error"}}:
                self.errors.append(parameters[:2000])
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": str(url)}}}:
                self.requests.append(url)
            case _:
                pass

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Show pages as a screen of this size does."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, ready: str = "true") -> None:
        """Open a file, and wait until an expression holds."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait(ready)

    def wait(self, condition: str) -> None:
        """Wait, at most ten seconds, until an expression holds."""
        self.evaluate(
            f"""new Promise((resolve, reject) => {{
              const until = Date.now() + 10000;
              const look = () => {{
                let holds = false;
                try {{ holds = {condition}; }} catch {{}}
                if (document.readyState === "complete" && holds) resolve(true);
                else if (Date.now() > until) reject(new Error("it did not come to hold"));
                else setTimeout(look, 20);
              }};
              look();
            }})"""
        )

    def evaluate(self, expression: str) -> object:
        """The value of an expression in the page. Raises RuntimeError for what it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return cast(Answer, answer["result"]).get("value")

    def press(self, key: str) -> None:
        """Press a key, which is a letter or has a name such as `Enter`."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "Tab": 9}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def click(self, x: float, y: float) -> None:
        """Click at a point of the screen."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@contextmanager
def browser_page() -> Generator[Page]:
    """A page in a browser of its own, which ends afterwards."""
    program = find_browser()
    assert program is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", WITH_PIPES, str(to_read), str(from_write)),
                *(program, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, from_write),
        )
        os.close(to_read)
        os.close(from_write)
        page = Page(to_write, from_read)
        try:
            page.attach()
            yield page
        finally:
            os.close(to_write)
            process.wait(20)
            os.close(from_read)
