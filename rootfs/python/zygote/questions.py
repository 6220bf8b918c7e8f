# What a shell is asked besides cells: what a line goes on with, what is known of a name, whether a text is a whole
# cell. The answers are those of ipykernel (IPythonKernel.do_complete(), do_inspect(), do_is_complete()), bounded.

MAX_MATCHES = 1000
MAX_MATCH = 1024  # characters; a longer one is left out
MAX_TEXT = 64 << 10  # characters of a description, or of all matches together


def complete(shell, order):
    from IPython.utils.tokenutil import line_at_cursor

    code, cursor = order["code"], cursor_of(order)
    shell.set_completer_frame()
    # Jedi would take its time to be imported, and knows less of a living object than the object.
    shell.Completer.use_jedi = False
    line, offset = line_at_cursor(code, cursor)
    typed, found = shell.complete(None, line, cursor - offset)
    matches, room = [], MAX_TEXT
    for word in found:
        if len(matches) < MAX_MATCHES and len(word) <= min(MAX_MATCH, room):
            matches.append(str(word))
            room -= len(word)
    start = cursor - min(len(typed), cursor)
    return {"matches": matches, "cursor_start": start, "cursor_end": cursor, "metadata": {}, "status": "ok"}


def inspect(shell, order):
    from IPython.utils.tokenutil import token_at_cursor

    name = token_at_cursor(order["code"], cursor_of(order))
    reply = {"data": {}, "metadata": {}, "found": False, "status": "ok"}
    try:
        found = shell.object_inspect_mime(name, detail_level=1 if order.get("detail") else 0)
    except KeyError:
        return reply
    reply["found"] = True
    for kind, text in found.items():
        if kind == "text/plain":
            reply["data"][kind] = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."
        elif isinstance(text, str) and len(text) <= MAX_TEXT and shell.enable_html_pager:
            reply["data"][kind] = text
    return reply


def is_complete(shell, order):
    status, indent = shell.input_transformer_manager.check_complete(order["code"])
    return {"status": status, "indent": " " * min(indent or 0, MAX_MATCH)}


def cursor_of(order):
    cursor = order["cursor"]
    return cursor if 0 <= cursor <= len(order["code"]) else len(order["code"])


KNOWN = {"complete": complete, "inspect": inspect, "is_complete": is_complete}
