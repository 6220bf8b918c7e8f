"""Debian's podman and buildah, rootless and without a daemon, with a storage of their own that is gone at the end."""
import os
import shutil
import signal
import subprocess
import tempfile


class Storage:
    """One storage and one runtime directory."""

    def __init__(self):
        self.place = tempfile.mkdtemp(prefix="hutch-podman-", dir="/tmp")  # conmon's sockets take no long path
        os.mkdir(os.path.join(self.place, "run"), 0o700)
        settings = os.path.join(self.place, "containers.conf")
        with open(settings, "w", encoding="ascii") as file:
            file.write('[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "none"\n')
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": os.path.join(self.place, "run"),
                            "CONTAINERS_CONF": settings}
        self.storage = ["--root", os.path.join(self.place, "storage"), "--runroot", os.path.join(self.place, "runroot"),
                        "--storage-driver", "vfs"]

    def podman(self, *words, seconds=120, program="podman"):
        return subprocess.run([program, *self.storage, *words], env=self.environment, capture_output=True, text=True,
                              timeout=seconds, check=False)

    def buildah(self, *words, seconds=120):
        return self.podman(*words, seconds=seconds, program="buildah")

    def close(self):
        # What a first rootless command leaves to hold its namespaces.
        try:
            with open(os.path.join(self.place, "run/libpod/tmp/pause.pid"), encoding="ascii") as file:
                pause = int(file.read())
        except (OSError, ValueError):
            pause = None
        self.podman("unshare", "rm", "-rf", os.path.join(self.place, "storage"), os.path.join(self.place, "runroot"))
        if pause:
            os.kill(pause, signal.SIGTERM)
        shutil.rmtree(self.place, ignore_errors=True)
        assert not os.path.exists(self.place)
