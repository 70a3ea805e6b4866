"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library.

Its commands are those of https://chromedevtools.github.io/devtools-protocol/; messages are JSON, each
ended by a zero byte, on the child's file descriptors 3 (in) and 4 (out).
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


class PageError(Exception):
    """What a script in the page threw, or what the browser refused."""


class Chromium:
    """One browser with one tab. Use it in a `with`; the profile is a fresh folder that goes with it."""

    def __init__(self, program, width=1440, height=900, limit_s=60):
        self._program, self._limit = program, limit_s
        self._size = (width, height)
        self._number, self._events, self._unread = 0, [], b""

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="pipewright-chromium-")
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()

        def connect():
            # The pipes may have these very numbers: first out of the way, then into place.
            reading, writing = os.dup(to_child), os.dup(from_child)
            while reading in (3, 4) or writing in (3, 4):
                reading, writing = os.dup(reading), os.dup(writing)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        size = "--window-size=%d,%d" % self._size
        self._browser = subprocess.Popen(
            [self._program, *FLAGS, size, "--user-data-dir=" + self._profile, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=connect,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(each for each in targets if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self._size[0], height=self._size[1], deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self._browser.wait(10)
        except (OSError, PageError, subprocess.TimeoutExpired):
            self._browser.kill()
            self._browser.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session") and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._to, text) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]
            self._events.append(answer)

    def _read(self):
        until = time.monotonic() + self._limit
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0, until - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if ready else b""
            if not piece:
                raise PageError("Chromium says nothing" if not ready else "Chromium has ended")
            self._unread += piece
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def events(self, method):
        """What the browser told of this kind since open()."""
        self.evaluate("0")  # so that all that was said before is here
        return [each["params"] for each in self._events if each.get("method") == method]

    def open(self, path, dark=False, ready="(document.documentElement || {dataset: {}}).dataset.ready"):
        """Opens a file, by default one of our pages, and waits until it is drawn; seconds."""
        self._events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while not self.evaluate("location.protocol === 'file:' && !!(%s)" % ready):
            failed = self.evaluate("document.documentElement && document.documentElement.dataset.failed || ''")
            if failed or time.monotonic() - begin > self._limit:
                raise PageError("%s is not drawn: %s" % (path, failed or "no answer"))
            time.sleep(0.01)
        return time.monotonic() - begin

    def evaluate(self, expression):
        """The value of an expression in the page; of a promise what it becomes."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def screenshot(self, path, whole=False, form="png", **quality):
        taken = self.call("Page.captureScreenshot", format=form, captureBeyondViewport=whole, **quality)
        with open(path, "wb") as file:
            file.write(base64.b64decode(taken["data"]))

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        self.move(x, y)
        for what in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    def wheel(self, x, y, dy, shift=False):
        self.call(
            "Input.dispatchMouseEvent",
            type="mouseWheel", x=x, y=y, deltaX=0, deltaY=dy, modifiers=8 if shift else 0,
        )  # fmt: skip

    def key(self, key):
        """A key that writes a letter, or one with a name such as "Escape"."""
        code = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        down = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
        if len(key) == 1:
            down["text"] = key
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text):
        for letter in text:
            self.key(letter)
