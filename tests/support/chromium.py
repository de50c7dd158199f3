"""A page in headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.compilers import needs


class Page:
    """A page that has been loaded, with what it wrote to the console as warnings and errors."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = os.fdopen(commands, "wb", buffering=0), os.fdopen(answers, "rb")
        self._number, self._session = 0, ""
        self.complaints: list[str] = []
        self._events: list[str] = []

    def open(self, path: Path, width: int, height: int) -> None:
        """Loads a file, and waits for it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Clicks with the mouse on the middle of an element, which is scrolled to first."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.value(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({find}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        self._session = ""
        self.call("Browser.close")
        self._commands.close()
        self._answers.close()

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended."
            text += byte
        message = json.loads(text)
        method, said = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"].get("exception", {}).get("description", str(said)))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        return message


@contextmanager
def shown(path: Path, profile: Path, width: int = 1600, height: int = 1100) -> Iterator[Page]:
    """A file in a browser without network, whose profile is in a folder."""
    browser = needs("chromium")
    read, commands = os.pipe()
    answers, write = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    options += [
        f"--user-data-dir={profile}",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    # Chromium reads commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{read} 4>&{write}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", browser, *options], pass_fds=(read, write), stderr=subprocess.DEVNULL
    )
    os.close(read)
    os.close(write)
    page = Page(commands, answers)
    try:
        page.open(path, width, height)
        yield page
    finally:
        page.close()
        process.wait(timeout=30)
