"""Runs one-line idioms, each in a directory of its own, and prints what came of each: the part of test_idioms.py that is inside.

Reads {"words": what stands before a line, "lines": [...], "serve": bool} from standard input, and prints a list of
[status, standard output, standard error] in the order of the lines. A status below 0 is a signal's; one that took too long has "timeout".
"""
import concurrent.futures
import http.server
import json
import os
import signal
import subprocess
import sys
import threading

SECONDS = 30   # one idiom takes a fraction of one
AT_ONCE = 2    # some of them wait, and what `default` allows is 64 processes and threads
SHOWN = 20000  # bytes of each stream


class Server(http.server.SimpleHTTPRequestHandler):
    """What curl speaks to: files of /mnt/data/www, and what was sent comes back."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, b"%s %s: %s\n" % (self.command.encode(), self.headers.get("Content-Type", "-").encode(), body))

    do_PUT = do_POST

    def do_GET(self):
        if self.path == "/redirect":
            self.answer(302, b"", Location="/file.txt")
        elif self.path == "/headers":
            self.answer(200, "".join("%s: %s\n" % (name, self.headers[name]) for name in ("Cookie", "Authorization", "Range")).encode())
        else:
            super().do_GET()

    def answer(self, code, body, **headers):
        self.send_response(code)
        for name, value in dict(headers, **{"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve():
    os.mkdir("/mnt/data/www")
    with open("/mnt/data/www/file.txt", "w", encoding="ascii") as file:
        file.write("".join("line %d\n" % n for n in range(10)))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), lambda *words: Server(*words, directory="/mnt/data/www"))
    threading.Thread(target=server.serve_forever, daemon=True).start()


def run(words, number, line):
    folder = "/mnt/data/%d" % number
    os.mkdir(folder)
    with subprocess.Popen([*words, line], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = "timeout"
            try:
                out, err = process.communicate(timeout=1)
            except subprocess.TimeoutExpired:  # what it has started in another session holds the streams
                out = err = b""
                process.stdout.close()
                process.stderr.close()
    return [status, *(stream[:SHOWN].decode("utf-8", "backslashreplace") for stream in (out, err))]


def main():
    job = json.load(sys.stdin)
    if job["serve"]:
        serve()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda numbered: run(job["words"], *numbered), enumerate(job["lines"]))
        json.dump(list(results), sys.stdout)


main()
