#!/usr/bin/python3
"""tests/suites/warm.py session|server HUTCH ROOT POLICY DATA CODE - runs CODE as one cell of a warm session, by the
library or by `hutch serve`, and prints what it has printed. The status is 0 where the cell came to its end.

A server's session has files of its own: what is below DATA/src and the like is not there, and DATA/out is fetched at the end."""
import os
import subprocess
import sys
import tarfile
import tempfile
import threading

sys.dont_write_bytecode = True
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "clients", "python"))

import hutch  # noqa: E402  (the path comes first)

SECONDS = 3600
MOST_BYTES = 64 << 20  # of one file of results
FETCH = "\nimport tarfile\nwith tarfile.open('/mnt/data/out.tar', 'w') as packed: packed.add('/mnt/data/out', 'out')\n"


def by_library(program, root, policy, data, code):
    os.environ.setdefault("HUTCH_LIBRARY", os.path.join(os.path.dirname(program), "libhutch.so.1"))
    with hutch.BlockingEngine(rootfs=root, policy=policy, launcher=os.path.join(os.path.dirname(program), "hutch-launcher"),
                              policy_dir=policy_folder(program), 
                              zygotes=[hutch.Zygote("bare"), hutch.Zygote("shell", parent="bare", modules=("IPython", "ipykernel"))]) as engine:
        with engine.session(data_dir=data) as session:
            return session.run(code)


def by_server(program, root, policy, data, code):
    with tempfile.TemporaryDirectory() as place:
        address = "unix:" + os.path.join(place, "socket")
        with subprocess.Popen([program, "serve", "--rootfs", root, "--policy", policy, "--jobs", "1", "--listen", address],
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                said = []
                for line in server.stderr:
                    said.append(line)
                    if '"listening"' in line:
                        break
                else:
                    sys.exit("the server does not listen: " + "".join(said)[-2000:])
                threading.Thread(target=server.stderr.read, daemon=True).start()  # its log must not fill the pipe
                with hutch.Client(address, timeout=SECONDS) as client:
                    with client.session() as session:
                        result = session.run(code + FETCH)
                        packed = os.path.join(place, "out.tar")
                        with open(packed, "wb") as out:
                            session.download("out.tar", out)
                take(packed, os.path.join(data, "out"))
                return result
            finally:
                server.terminate()


def take(packed, folder):
    """The regular files right in out/, by their last name alone: whatever else there is came from inside."""
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(packed) as archive:
        for member in archive:
            name = os.path.basename(member.name)
            if member.isreg() and member.size <= MOST_BYTES and name not in ("", ".", ".."):
                with open(os.path.join(folder, name), "wb") as out:
                    out.write(archive.extractfile(member).read())


def policy_folder(program):
    return os.environ.get("HUTCH_POLICY_DIR") or os.path.join(os.path.dirname(os.path.dirname(program)), "policies")


def main():
    way, program, root, policy, data, code = sys.argv[1:]
    result = (by_library if way == "session" else by_server)(program, root, policy, data, code)
    print(result.stdout + result.stderr)
    if result.verdict != "ok":
        print("hutch: %s" % (result.message or result.verdict))
    return 0 if result.verdict == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
