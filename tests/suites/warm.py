#!/usr/bin/python3
"""tests/suites/warm.py session|server HUTCH ROOT POLICY DATA - runs DATA/cell.py as one cell of a warm session, by
the library or by `hutch serve`. Its output goes to DATA/log, as that of the other ways to run a suite does; the status is 0 where the
cell came to its end.

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
                with tarfile.open(packed) as archive:
                    archive.extractall(data, filter="data")
                return result
            finally:
                server.terminate()


def policy_folder(program):
    return os.environ.get("HUTCH_POLICY_DIR") or os.path.join(os.path.dirname(os.path.dirname(program)), "policies")


def main():
    way, program, root, policy, data = sys.argv[1:]
    with open(os.path.join(data, "cell.py"), encoding="utf-8") as cell:
        code = cell.read()
    result = (by_library if way == "session" else by_server)(program, root, policy, data, code)
    with open(os.path.join(data, "log"), "w", encoding="utf-8") as log:
        log.write(result.stdout + result.stderr)
        if result.verdict != "ok":
            log.write("hutch: %s\n" % (result.message or result.verdict))
    return 0 if result.verdict == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
