"""A browser without a window, driven by its own debugging protocol through pipes."""

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

# The browser reads commands from 3 and answers on 4.
_EXEC = """
import os, sys
ours, theirs, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.dup2(ours, 100), os.dup2(theirs, 101), os.dup2(100, 3), os.dup2(101, 4)
os.execv(path, sys.argv[3:])
"""


def find_browser():
    """The path of a browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def data_of(page):
    """What the table of a page is drawn from."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(found[1])


class Browser:
    """One tab. Records what the page logs and what it asks the network for."""

    def __init__(self, path, profile):
        ours, self._out = os.pipe()
        self._in, theirs = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _EXEC, str(ours), str(theirs), path]
            + ["--headless=new", "--no-sandbox", "--disable-gpu"]
            + ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(ours, theirs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours), os.close(theirs)
        self._ids, self._unread, self._session = itertools.count(1), b"", None
        self.events = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.send(
            "Target.attachToTarget", targetId=page["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        # Of the thread, not of the clock: what else runs makes no difference.
        self.send("Performance.enable", timeDomain="threadTicks")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._out), os.close(self._in)

    def send(self, method, **params):
        """Call a method of the protocol."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _receive(self, timeout=60):
        deadline = time.monotonic() + timeout
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], 1)
            if ready:
                assert (read := os.read(self._in, 1 << 20)), "the browser is gone"
                self._unread += read
            assert time.monotonic() < deadline, "the browser does not answer"
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, path):
        """Open a file, and wait until it is loaded."""
        self.events = []
        self.send("Page.navigate", url=path.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive())

    def run(self, expression):
        """The value of a JavaScript expression, or what it promises."""
        answer = self.send(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def violations(self, axe):
        """What axe-core, given as its source, finds serious or critical on the page."""
        self.run(axe + "; undefined")
        return self.run(
            """axe.run().then((result) => result.violations.filter(
            (v) => ["serious", "critical"].includes(v.impact)).map(
            (v) => [v.id, v.nodes.map((node) => node.html)]))"""
        )

    def click(self, selector):
        """Press the mouse in the middle of the first element that is selected."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.scrollIntoView({{block: 'center'}})")
        box = json.loads(self.run(f"JSON.stringify({place}.getBoundingClientRect())"))
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at
            )

    def type(self, text):
        """Type text where the cursor is."""
        self.send("Input.insertText", text=text)

    def press(self, key, code):
        """Press a key."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if (kind, key) == ("char", "Enter") else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def set_width(self, width, height=900):
        """Set the size of the window."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_dark(self, is_dark, media=""):
        """Set what the user prefers, on the screen or in print."""
        value = "dark" if is_dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)

    def choose(self, selector, value):
        """Choose an option of a menu."""
        self.run(f"""(() => {{
            const menu = document.querySelector({json.dumps(selector)});
            menu.value = {json.dumps(value)};
            menu.dispatchEvent(new Event("change"));
        }})()""")

    def script_seconds(self):
        """Time that the processor has spent on scripts since the page was opened."""
        metrics = self.send("Performance.getMetrics")["metrics"]
        return next(m["value"] for m in metrics if m["name"] == "ScriptDuration")

    def screenshot(self, path, **params):
        """Write a picture of the page."""
        answer = self.send("Page.captureScreenshot", **params)
        path.write_bytes(base64.b64decode(answer["data"]))

    @property
    def requests(self):
        """Addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self):
        """What was logged or thrown."""
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [
            event["params"]
            for event in self.events
            if event.get("method") in (*names, "Log.entryAdded")
        ]
