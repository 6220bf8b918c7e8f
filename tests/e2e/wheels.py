"""Wheels that tests make, and a package index that serves them on loopback."""
import base64
import contextlib
import hashlib
import http.server
import os
import threading
import zipfile


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def wheel(folder, name, version="1.0", files=None, requires=(), info=None):
    """A wheel of pure Python; @files: names and texts, by default one module that says its version. @info changes the ZipInfo of each."""
    about = "%s-%s.dist-info" % (name, version)
    files = dict(files or {name + ".py": "version = %r\n" % version})
    files[about + "/METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version) + "".join(
        "Requires-Dist: %s\n" % other for other in requires)
    files[about + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = os.path.join(str(folder), "%s-%s-py3-none-any.whl" % (name, version))
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in files.items():
            data = text.encode()
            one = zipfile.ZipInfo(entry, (2020, 1, 1, 0, 0, 0))
            one.external_attr = 0o100644 << 16
            if info:
                info(one)
            archive.writestr(one, data)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\n" % (entry, checksum, len(data))
        archive.writestr(about + "/RECORD", record + about + "/RECORD,,\n")
    return path


class Index:
    """PEP 503 over the wheels of a directory. @asked: the paths that were. @hold: called before each answer."""

    def __init__(self, folder):
        self.folder, self.asked, self.forged, self.hold = str(folder), [], set(), lambda path: None
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                index.hold(self.path)
                index.asked.append(self.path)
                body = index.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body or b"")

            def log_message(self, *args):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/simple/" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path):
        if path.startswith("/files/"):
            with contextlib.suppress(OSError), open(os.path.join(self.folder, os.path.basename(path)), "rb") as file:
                return file.read()
            return None
        wanted = path.strip("/").split("/")[-1]
        names = [name for name in sorted(os.listdir(self.folder)) if name.split("-")[0].replace("_", "-").lower() == wanted]
        links = ""
        for name in names:
            checksum = "0" * 64 if name in self.forged else digest(os.path.join(self.folder, name))
            links += '<a href="/files/%s#sha256=%s">%s</a>\n' % (name, checksum, name)
        return ("<!DOCTYPE html><html><body>%s</body></html>" % links).encode() if names else None

    def close(self):
        self.server.shutdown()
        self.server.server_close()
