"""Outputs of foreign code for a notebook's page and for a terminal.

A notebook runs the scripts of what it is shown with all that the page may do, which includes telling its kernel to
execute code on this machine; and a terminal obeys escape sequences. So nothing that came from a sandbox is handed on as
HTML: text is escaped, images are images, and HTML and SVG stand in a frame without scripts, without the page's origin,
and without anything from the network, by which code inside could send away what it has."""
from __future__ import annotations

import html
import re
from typing import Any, Dict, List, Optional

IMAGES = ("image/png", "image/jpeg", "image/gif")
FRAMED = ("text/html", "image/svg+xml")
FRAME = ('<iframe sandbox="" referrerpolicy="no-referrer" style="width:100%%;height:320px;border:0" srcdoc="%s">'
         '</iframe>')
MAX_SHOWN = 16 << 20  # characters of one bundle
POLICY = ('<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
          'style-src \'unsafe-inline\'; font-src data:">')

# C0 but newline and tab, DEL, C1, and what turns the direction of writing.
UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
COLOURS = re.compile("\x1b\\[[0-9;:]*m")


def _visible(match: "re.Match[str]") -> str:
    code = ord(match.group())
    return "^" + chr(code ^ 0x40) if code < 0x20 or code == 0x7f else "\\u%04x" % code


def printable(text: str) -> str:
    """Without colours, and with every other character that a terminal would obey as text."""
    return UNSHOWN.sub(_visible, COLOURS.sub("", text.replace("\r\n", "\n")))


def _text(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else value if isinstance(value, str) else ""


def _plain(output: Dict[str, Any]) -> str:
    if output.get("output_type") == "stream":
        return _text(output.get("text"))
    if output.get("output_type") == "error":
        return "\n".join(_text(line) for line in output.get("traceback", [])) + "\n"
    data = output.get("data")
    text = _text(data.get("text/plain")) if isinstance(data, dict) else ""
    return text + "\n" if text else ""


def _pre(text: str, style: str = "") -> str:
    return '<pre style="white-space:pre-wrap;%s">%s</pre>' % (style, html.escape(printable(text)))


def _marked_up(output: Dict[str, Any]) -> str:
    if output.get("output_type") == "stream":
        return _pre(_plain(output), "background:#fdd" if output.get("name") == "stderr" else "")
    data = output.get("data")
    if isinstance(data, dict):
        for kind in IMAGES:
            if _text(data.get(kind)):
                return '<img alt="" src="data:%s;base64,%s">' % (kind, re.sub("[^A-Za-z0-9+/=]", "", _text(data[kind])))
        for kind in FRAMED:
            if _text(data.get(kind)):
                page = html.escape(POLICY + _text(data[kind]), quote=True)
                return FRAME % page
    return _pre(_plain(output)) if _plain(output) else ""


def bundle(outputs: List[Dict[str, Any]], message: Optional[str]) -> Dict[str, str]:
    """For `_repr_mimebundle_()`: text for a terminal, and a page where there is more than text to show."""
    outputs = [output for output in outputs if isinstance(output, dict)]
    note = message + "\n" if message else ""
    shown = {"text/plain": printable("".join(_plain(output) for output in outputs) + note).rstrip("\n")[:MAX_SHOWN]}
    if any(isinstance(output.get("data"),
                      dict) and any(output["data"].get(kind) for kind in IMAGES + FRAMED) for output in outputs):
        page = "".join(_marked_up(output) for output in outputs) + (_pre(note) if note else "")
        if len(page) <= MAX_SHOWN:
            shown["text/html"] = page
    return shown
