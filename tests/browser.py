"""Chromium without a screen, for tests and for docs/draw-page: a small client of the DevTools protocol, over pipes."""
import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time

SECONDS = 60  # for anything that has to happen at all
NAMES = ("chromium", "chromium-browser", "google-chrome")

# Its messages come and go by descriptors 3 and 4, whatever numbers the pipes have here.
EXECUTE = """import fcntl, os, sys
ends = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])"""


def find():
    """Path of the program; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab. What its console, its scripts and its rules complain about is in @complaints; where its requests lead to, in @requests."""

    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.complaints, self.requests, self.replaced = [], [], {}

    def order(self, method, **params):
        return self.browser.order(method, self.session, **params)

    def hear(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append("%(text)s %(url)s" % {"url": "", **params["entry"]})
        elif method == "Audits.issueAdded" and params["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.complaints.append(json.dumps(params["issue"]["details"])[:2000])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Fetch.requestPaused":  # an order waits for its answer, which comes by who calls this
            threading.Thread(target=self._replace, args=(params,), daemon=True).start()

    def replace(self, url, headers, body):
        """From here on, the answer to requests of @url is this one."""
        self.replaced[url] = [{"name": name, "value": value} for name, value in headers.items()], base64.b64encode(body).decode()
        self.order("Fetch.enable", patterns=[{"urlPattern": url} for url in self.replaced])

    def _replace(self, params):
        headers, body = self.replaced[params["request"]["url"]]
        self.order("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=200, responseHeaders=headers, body=body)

    def frames(self):
        """The elements of each frame with a process of its own, which those without an origin have, as JSON. The page cannot look into them."""
        found = []
        for target in self.browser.order("Target.getTargets")["targetInfos"]:
            if target["type"] == "iframe" and target.get("browserContextId") == self.context:
                session = self.browser.order("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
                found.append(json.dumps(self.browser.order("DOM.getDocument", session, depth=-1)["root"], ensure_ascii=False))
                self.browser.order("Target.detachFromTarget", sessionId=session)
        return found

    def open(self, url):
        self.order("Page.navigate", url=url)

    def value(self, expression):
        """Of an expression of JavaScript; promises are awaited."""
        answer = self.order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression, seconds=SECONDS):
        """Its value, as soon as it is true."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.value(expression)
            except (AssertionError, Refused):  # the page is not there yet
                found = None
            if found:
                return found
            assert time.monotonic() < deadline, (expression, self.value("document.body.innerText"), self.complaints)
            time.sleep(0.03)

    def type(self, text):
        self.order("Input.insertText", text=text)

    def key(self, key, ctrl=False, shift=False):
        """One key, as a keyboard sends it."""
        codes = {"Enter": (13, "\r"), "Tab": (9, "\t"), "Escape": (27, ""), "a": (65, "" if ctrl else "a"), " ": (32, " ")}
        code, text = codes[key]
        event = {"key": key, "code": {"a": "KeyA", " ": "Space"}.get(key, key), "windowsVirtualKeyCode": code, "modifiers": 2 * ctrl + 8 * shift}
        commands = {"commands": ["selectAll"]} if key == "a" and ctrl else {}
        self.order("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event, **commands, **({"text": text} if text else {}))
        self.order("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.order("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def shot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.order("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.browser.order("Target.disposeBrowserContext", browserContextId=self.context)


class Refused(Exception):
    """An order that the browser does not take."""


class Browser:
    def __init__(self, folder, path=None):
        """@folder: for its profile, an empty one."""
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()
        words = [path or find(), "--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + str(folder), "--no-first-run",
                 "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad", "--disable-crash-reporter", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                 "--no-sandbox",  # it sees pages of the tests alone, and root has no sandbox of its
                 "--no-proxy-server", "--password-store=basic", "about:blank"]
        self.log = open(os.path.join(str(folder), "log"), "wb")
        self.process = subprocess.Popen([sys.executable, "-c", EXECUTE, str(to_browser), str(from_browser), *words], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, pass_fds=(to_browser, from_browser), start_new_session=True,
                                        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)})
        os.close(to_browser)
        os.close(from_browser)
        self.answers, self.pages, self.number, self.lock = {}, {}, 0, threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        data = b""
        while True:
            try:
                piece = os.read(self.reader, 1 << 16)
            except OSError:
                piece = b""
            if not piece:
                break
            *messages, data = (data + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.pop(message["id"]).put(message)
                elif message.get("sessionId") in self.pages:
                    self.pages[message["sessionId"]].hear(message["method"], message["params"])
        for waiting in list(self.answers.values()):
            waiting.put({"error": {"message": "the browser has ended"}})

    def order(self, method, session=None, **params):
        waiting = queue.Queue()
        with self.lock:
            self.number += 1
            message = {"id": self.number, "method": method, "params": params, **({"sessionId": session} if session else {})}
            self.answers[self.number] = waiting
            data = json.dumps(message).encode() + b"\0"
            while data:
                data = data[os.write(self.writer, data):]
        answer = waiting.get(timeout=SECONDS)
        if "error" in answer:
            raise Refused("%s: %s" % (method, answer["error"]["message"]))
        return answer["result"]

    def page(self, width=1200, height=900, downloads=None):
        """A tab with cookies and storage of its own."""
        context = self.order("Target.createBrowserContext")["browserContextId"]
        target = self.order("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Network", "Audits", "DOM"):
            page.order(domain + ".enable")
        page.order("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if downloads:
            self.order("Browser.setDownloadBehavior", behavior="allow", browserContextId=context, downloadPath=str(downloads))
        return page

    def stop(self):
        try:
            self.order("Browser.close")
        except (Refused, OSError, queue.Empty):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever it has left
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.writer)
        os.close(self.reader)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
