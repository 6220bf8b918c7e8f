"""examples/kubernetes: each object against the schemas of Kubernetes, without a cluster; what they say of each other and of hutch;
and hutch in surroundings like those of the pod, made by bubblewrap from the Deployment's own words."""
import contextlib
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

import gateway
import support

FOLDER = os.path.join(support.TREE, "examples", "kubernetes")
CLUSTER = os.path.join(FOLDER, "cluster")
PACKAGES = os.path.join(os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients"), "kubernetes")
KINDS = ["Namespace", "ConfigMap", "Secret", "Deployment", "Service", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"]
# What containers cover of /proc, as far as this kernel has it.
COVERED = ["acpi", "keys", "latency_stats", "timer_list", "sched_debug", "scsi", "kcore"]
READ_ONLY = ["bus", "fs", "irq", "sys", "sysrq-trigger"]


def check(folder):
    if not shutil.which("node") or not os.path.exists(os.path.join(PACKAGES, "installed.json")):
        support.miss("npm: its packages for tests/clients/kubernetes are not installed (make clients)")
    done = subprocess.run(["node", os.path.join(PACKAGES, "check.mjs"), str(folder)], capture_output=True, text=True, check=False,
                          timeout=gateway.SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.lru_cache(maxsize=None)
def manifests():
    return check(FOLDER)


def objects(kind):
    return [one for one in manifests()["objects"] if one["kind"] == kind]


def pod():
    (deployment,) = objects("Deployment")
    return deployment["spec"]["template"]["spec"]


def text_of(*names):
    with open(os.path.join(FOLDER, *names), encoding="utf-8") as file:
        return file.read()


# --------------------------------------------------------------------------------------------------
# The objects

def test_schemas():
    found = manifests()
    assert found["errors"] == []
    assert [one["kind"] for one in found["objects"]] == KINDS


WRONG = [
    ("30-deployment.yaml", "hostUsers: false", "hostUser: false", '"hostUser\"\' does not exist'),
    ("30-deployment.yaml", "containerPort: 8080", "containerPort: http", "containerPort must be integer"),
    ("30-deployment.yaml", "memory: 6Gi", "memory: 6GiB", 'must match format "quantity"'),
    ("30-deployment.yaml", "  selector:\n    matchLabels: *labels\n", "", "must have required property selector"),
    ("40-services.yaml", "sessionAffinity: ClientIP", "sessionAffinity: 5", "sessionAffinity must be string"),
    ("60-scaling.yaml", "maxReplicas: 20", "maxReplicas: many", "maxReplicas must be integer"),
    ("70-network.yaml", "podSelector: {}", "podSelektor: {}", '"podSelektor\"\' does not exist'),
    ("20-tokens.yaml", "type: Opaque", "type: Opaque\ntype: Opaque", "Map keys must be unique"),
]


def test_the_check_finds(tmp_path):
    """What is wrong; and nothing in the file beside."""
    for number, (file, old, new, _) in enumerate(WRONG):
        text = text_of(file)
        assert old in text
        (tmp_path / ("%d.yaml" % number)).write_text(text.replace(old, new, 1))
    (tmp_path / "right.yaml").write_text(text_of("50-disruption.yaml"))
    errors = check(tmp_path)["errors"]
    for number, (_, _, new, says) in enumerate(WRONG):
        assert any(says in error and error.startswith("%d.yaml: " % number) for error in errors), (new, errors)
    assert not any(error.startswith("right.yaml") for error in errors)


def test_they_fit_each_other():
    (deployment,) = objects("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = pod()["containers"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for service in objects("Service"):
        assert service["spec"]["selector"] == labels and [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    for kind, key in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert objects(kind)[0]["spec"][key]["matchLabels"] == labels
    assert {one["metadata"].get("namespace", one["metadata"]["name"]) for one in manifests()["objects"]} == {"hutch"}
    (scaling,) = objects("HorizontalPodAutoscaler")
    target = scaling["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"], target["name"]) == (deployment["apiVersion"], "Deployment", deployment["metadata"]["name"])
    assert deployment["spec"]["replicas"] == scaling["spec"]["minReplicas"]
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert sorted(volumes) == sorted(mount["name"] for mount in container["volumeMounts"])
    assert volumes["config"]["configMap"]["name"] == objects("ConfigMap")[0]["metadata"]["name"]
    assert volumes["tokens"]["secret"]["secretName"] == objects("Secret")[0]["metadata"]["name"]
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", 8080)
    probes = {name: container[name + "Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    profile = pod()["securityContext"]["seccompProfile"]["localhostProfile"]
    assert os.path.exists(os.path.join(CLUSTER, os.path.basename(profile)))


def config_in(folder, listen="127.0.0.1:0"):
    """hutch.json and the tokens as the pod has them, with paths that exist here."""
    (container,) = pod()["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    options = json.loads(objects("ConfigMap")[0]["data"]["hutch.json"])
    assert container["args"] == ["serve", "--config", mounts["config"] + "/hutch.json"]
    assert options["tokens"] == mounts["tokens"] + "/tokens" and options["listen"] == ["0.0.0.0:8080"]
    (folder / "tokens").write_text(objects("Secret")[0]["stringData"]["tokens"])
    (folder / "tokens").chmod(0o440)
    (folder / "hutch.json").write_text(json.dumps({**options, "tokens": str(folder / "tokens"), "listen": [listen]}))
    return options


def test_options(tmp_path):
    options = config_in(tmp_path)
    done = support.hutch("serve", "--config", str(tmp_path / "hutch.json"), "--check")
    assert done.returncode == 0, done.stderr
    names = [service["metadata"]["name"] for service in objects("Service")]
    assert options["allow-host"] == [name + rest for name in names for rest in ("", ".hutch", ".hutch.svc", ".hutch.svc.cluster.local")]
    seconds = pod()["terminationGracePeriodSeconds"]
    pre_stop = pod()["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pre_stop + int(options["drain"].rstrip("s")) < seconds
    limits = pod()["containers"][0]["resources"]["limits"]
    assert int(limits["cpu"]) == options["jobs"]
    assert int(limits["memory"].rstrip("Gi")) * 1024 > options["jobs"] * int(options["memory"].rstrip("m")) * 2


def test_metrics_that_scaling_asks_for(tmp_path):
    """hutch tells them, the adapter's rules make of them what the autoscaler names, and Prometheus sends a token."""
    rules = text_of("cluster", "prometheus-adapter.yaml")
    made = re.findall(r"name: \{ as: (\w+) \}", rules)
    asked = [metric["pods"]["metric"]["name"] for metric in objects("HorizontalPodAutoscaler")[0]["spec"]["metrics"]]
    assert sorted(made) == sorted(asked)
    with gateway.Server(tmp_path) as server:
        told = set(server.metrics())
    used = set(re.findall(r"\b(hutch_\w+)\{", rules))
    assert used == {"hutch_running", "hutch_queued", "hutch_sessions"} and used <= told
    job = text_of("cluster", "prometheus.yaml")
    assert "credentials_file:" in job and "regex: hutch;http" in job


def test_the_document_names_what_there_is():
    with open(os.path.join(support.TREE, "docs", "kubernetes.md"), encoding="utf-8") as file:
        text = file.read()
    files = {name for name in os.listdir(FOLDER) if name.endswith(".yaml")} | {"cluster/" + name for name in os.listdir(CLUSTER)}
    assert {name for name in files if "`%s`" % name not in text} == set()


# --------------------------------------------------------------------------------------------------
# The pod's surroundings

def filter_of(profile, path):
    """The program for the kernel of an OCI profile, as a container's runtime makes it."""
    lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    lib.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    context = lib.seccomp_init(0x7fff0000)
    known = 0
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ERRNO"
        for name in rule["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            known += number >= 0
            if number != -1:  # __NR_SCMP_ERROR: no architecture has it
                assert lib.seccomp_rule_add_array(context, 0x00050000 | rule["errnoRet"], number, 0, None) == 0, name
    with open(path, "wb") as file:
        assert lib.seccomp_export_bpf(context, file.fileno()) == 0
    return known


def surroundings(tmp_path, covered=False, profile=None):
    """Words before a command: namespaces, user, capabilities, /proc and filter as the Deployment has them."""
    if not shutil.which("bwrap"):
        support.miss("bubblewrap is not installed")
    (container,) = pod()["containers"]
    context, security = pod()["securityContext"], container["securityContext"]
    assert pod()["hostUsers"] is False and security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False  # bubblewrap sets no_new_privs always
    assert security["procMount"] == "Unmasked" and security["readOnlyRootFilesystem"] is True
    words = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net",
             "--uid", str(context["runAsUser"]), "--gid", str(context["runAsGroup"]), "--cap-drop", "ALL", "--hostname", "pod", "--new-session",
             "--die-with-parent"]
    # As a container's root: the directories of Debian, what is under test, the store, and volumes.
    for path in ("/usr", "/etc", "/sys"):
        words += ["--ro-bind", path, path]
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink("/" + name):
            words += ["--symlink", "usr/" + name, "/" + name]
    words += ["--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--proc", "/proc"]
    for path in {os.path.realpath(path) for path in (support.TREE, os.path.dirname(os.path.dirname(support.HUTCH)), str(tmp_path))}:
        words += ["--bind", path, path]
    store = os.environ.get("HUTCH_HOME") or os.path.expanduser("~/.local/share/hutch")
    words += ["--bind", store, store, "--setenv", "HUTCH_HOME", store, "--setenv", "XDG_RUNTIME_DIR", "/run", "--setenv", "HOME", "/tmp",
              "--setenv", "ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"]  # its counting takes ptrace(2)
    for name in COVERED if covered else ():
        if os.path.exists("/proc/" + name) and not os.path.isdir("/proc/" + name):
            words += ["--ro-bind", "/dev/null", "/proc/" + name]
    for name in READ_ONLY if covered else ():
        if os.path.exists("/proc/" + name):
            words += ["--ro-bind", "/proc/" + name, "/proc/" + name]
    if profile:
        assert filter_of(profile, tmp_path / "filter") > 20
        words = ["sh", "-c", 'exec "$@" 9<"$0"', str(tmp_path / "filter"), *words, "--seccomp", "9"]
    return words


def shipped():
    return json.loads(text_of("cluster", "seccomp-hutch.json"))


def inside(words, *command):
    return subprocess.run([*words, *command], capture_output=True, text=True, check=False, timeout=gateway.SECONDS)


def needs_user():
    if support.is_root():
        pytest.skip("bubblewrap as root keeps the store's owner out of the namespace")


def test_doctor_in_the_pod(tmp_path):
    """default runs there, strict does not: docs/kubernetes.md says why."""
    needs_user()
    done = inside(surroundings(tmp_path, profile=shipped()), support.HUTCH, "doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["policies"]["default"]["runs"] is True, done.stdout
    assert found["policies"]["strict"]["runs"] is False and "cgroup" in found["policies"]["strict"]["reason"]
    checks = {one["name"]: one["status"] for one in found["checks"]}
    isolation = [one for one in found["checks"] if one["group"] == "isolation"]
    assert {one["name"] for one in isolation if one["status"] not in ("ok", "not_needed")} == {"identity"}, isolation
    assert checks["cgroup_delegation"] == "missing"


def test_layers_in_the_pod(tmp_path):
    needs_user()
    done = inside(surroundings(tmp_path, profile=shipped()), support.HUTCH, "run", "--image", "minimal", "--warm", "--json", "-c", "print(6 * 7)")
    result = json.loads(done.stdout)
    assert (result["verdict"], result["stdout"]) == ("ok", "42\n"), done.stdout
    # What this host has not got without a pod is not the pod's doing.
    there = json.loads(support.hutch("run", "--image", "minimal", "--json", "-c", "1").stdout)["layers"]
    off = {name for name, layer in result["layers"].items() if not layer["active"] and there[name]["active"]}
    assert off <= {"cgroup", "own_uid"}, result["layers"]


def test_without_the_uncovered_proc(tmp_path):
    """procMount: Default. Single programs and the engine run at the level no_proc."""
    needs_user()
    words = surroundings(tmp_path, covered=True, profile=shipped())
    for more in ([], ["--warm"]):
        done = inside(words, support.HUTCH, "run", "--image", "minimal", "--json", *more, "-c", "print(6 * 7)")
        result = json.loads(done.stdout)
        assert (result["verdict"], result["level"], result["stdout"]) == ("ok", "no_proc", "42\n"), done.stdout
    done = inside(words, support.HUTCH, "doctor", "--json")
    assert done.returncode == 1 and {"fresh_proc": "degraded"}.items() <= {one["name"]: one["status"] for one in json.loads(done.stdout)["checks"]}.items()


def test_without_user_namespaces(tmp_path):
    """As under RuntimeDefault."""
    needs_user()
    names = ["unshare", "mount", "fsopen", "open_tree", "setns", "sethostname", "pivot_root"]
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": names + ["umount2", "chroot", "move_mount", "fsmount", "fsconfig",
               "mount_setattr", "bpf", "acct", "reboot", "swapon", "swapoff", "syslog", "vhangup", "quotactl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}
    done = inside(surroundings(tmp_path, profile=profile), support.HUTCH, "run", "--image", "minimal", "-c", "print(6 * 7)")
    assert done.returncode == 125 and done.stdout == "" and done.stderr.startswith("hutch: "), done


def test_what_the_profile_forbids(tmp_path):
    """In the pod itself, beside sandboxes."""
    needs_user()
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "for number in (250, 298, 321, 323, 425, 101, 310):\n"
            "    libc.syscall(number, 0, 0, 0, 0, 0, 0)\n    print(ctypes.get_errno(), end=' ')\n")
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    done = inside(surroundings(tmp_path, profile=shipped()), "/usr/bin/python3", "-c", code)
    assert done.stdout.split() == ["1"] * 7, done  # keyctl perf_event_open bpf userfaultfd io_uring_setup ptrace process_vm_readv


def test_the_server_in_the_pod(tmp_path):
    """With the options of the ConfigMap, but for the address; a token that nobody knows lets nobody in."""
    needs_user()
    with tempfile.TemporaryDirectory(prefix="hutch-pod-", dir="/tmp") as folder:  # paths of sockets are short
        serve_in(pathlib.Path(folder))


def serve_in(tmp_path):
    path = str(tmp_path / "s")
    config_in(tmp_path, "unix:" + path)
    words = surroundings(tmp_path, profile=shipped())
    process = subprocess.Popen([*words, support.HUTCH, *pod()["containers"][0]["args"][:2], str(tmp_path / "hutch.json")], stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True)
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if '"ready"' in line:
                break
        else:
            raise AssertionError("".join(said))
        threading.Thread(target=process.stderr.read, daemon=True).start()

        def ask(method, where, body=None):
            connection = gateway.UnixConnection(path)
            connection.request(method, where, body, {"Content-Type": "application/json", "Authorization": "Bearer nobody"})
            answer = connection.getresponse()
            return answer.status, answer.read()

        assert [ask("GET", where)[0] for where in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]
        assert ask("POST", "/v1/run", '{"code": "1"}')[0] == 401
        (tmp_path / "tokens").chmod(0o600)
        (tmp_path / "tokens").write_text("ada %s\n" % hashlib.sha256(b"nobody").hexdigest())
        for pid in support.descendants(process.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has ended since
                if os.readlink("/proc/%d/exe" % pid).endswith("/hutch-serve"):
                    os.kill(pid, signal.SIGHUP)
        gateway.await_that(lambda: ask("GET", "/metrics")[0] == 200)
        status, body = ask("POST", "/v1/run", json.dumps({"code": "import pandas as pd\nprint(pd.Series([1, 2]).sum())"}))
        assert status == 200 and json.loads(body)["stdout"] == "3\n", body
    finally:
        process.kill()
        process.wait()
