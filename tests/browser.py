"""A real browser for tests: headless chromium over its debugging pipe, so that no port and no further package is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


_LAYOUT = (Path(__file__).parent / "layout.js").read_text()


class Browser:
    """One page in a headless chromium; a context."""

    def __init__(self, patience=60.0):
        self.patience = patience
        self.events = []
        self._buffer = b""
        self._sent = 0
        self._session = None

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True)
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; 8 and 9 keep the two apart while they move there.
        line = f'exec 8<&{commands} 9>&{answers}; exec 3<&8 4>&9 8<&- 9>&-; exec "$@"'
        call = ["bash", "-c", line, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            call, pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._out)  # it ends when the pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def open(self, path, width=1280, height=900, dark=False):
        """Load a file afresh at a width and in a colour scheme; what it complains of is in `complaints`."""
        self.resize(width, height)
        self.prefer(dark)
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")

    def resize(self, width, height):
        """Give the window another size; what is narrow is a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )

    def prefer(self, dark):
        """Ask for a colour scheme, and wait until the page has been drawn in it."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.captureScreenshot", clip={"x": 0, "y": 0, "width": 1, "height": 1, "scale": 1})  # draws it

    def layout(self):
        """Return what `layout.js` finds: overlapping texts, clipped blocks, broken images, and by how much the page is too wide."""
        return self.evaluate(_LAYOUT)

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, whole=True):
        """Return a PNG picture of the page, or of the window."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def keep(self, *names):
        """Write a picture of the whole page, named by some words, where DIHT_SCREENSHOTS names a folder for pictures."""
        if folder := os.environ.get("DIHT_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            file = "-".join(str(name).replace(" ", "-") for name in names) + ".png"
            (Path(folder) / file).write_bytes(self.picture())

    def key(self, name, code):
        """Press a key and let it go."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def overlaps(self):
        """Return the pairs of texts of which one is written over the other."""
        return self.layout()["overlaps"]

    @property
    def complaints(self):
        """Errors and warnings of the console since the page was opened."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    @property
    def requests(self):
        """Addresses that the page asked for since it was opened."""
        sent = (event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in sent]

    def call(self, method, **params):
        """Send a command of the DevTools protocol and return its result."""
        self._sent += 1
        number = self._sent
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda message: message.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _wait(self, wanted):
        end = time.monotonic() + self.patience
        while True:
            message = self._receive(end)
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message

    def _receive(self, end):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0.0))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)
