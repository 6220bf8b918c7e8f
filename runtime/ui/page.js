// page.js - the page: a session of the server, and what the user does with it.

import { Editor } from "./editor.js";
import { CellView } from "./output.js";
import { noteCell, watchServer } from "./pool.js";
import { Refusal, ask, askJson, eventsOf, onTokenWanted, takeTokenFromLink } from "./server.js";

const SESSION = "hutch-session", CODE = "hutch-code"; // in sessionStorage: a reload goes on with them
const FIRST_CODE = `import pandas as pd

cities = pd.DataFrame({"city": ["Oslo", "Lima", "Hanoi"], "millions": [0.7, 10.1, 8.1]})
cities.plot.bar(x="city", legend=False)
cities  # the last value is shown
`;

const $ = id => document.getElementById(id);

let id = null;     // of the session
let running = 0;   // cells that are not over
let opening = null; // a promise, while a session is opened
let news = "";      // what is to be said when what was asked for is done

// ---- what is said ----

function say(text, isTrouble = false) {
    $("status").textContent = text;
    $("status").classList.toggle("trouble", isTrouble);
}

function sizeText(bytes) {
    const units = ["B", "kB", "MB", "GB"];
    const at = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);

    return `${(bytes / 1000 ** at).toFixed(at ? 1 : 0)} ${units[at]}`;
}

// Wraps what a button or key does: what goes wrong is said.
function act(work) {
    return async (...words) => {
        try {
            await work(...words);
        } catch (error) {
            const hint = error instanceof Refusal && error.status !== 409 ? error.hint : "";

            say([error.message, hint].filter(Boolean).join(". "), true);
        }
    };
}

// ---- the session ----

function path(rest = "") {
    return `sessions/${id}${rest}`;
}

async function open() {
    const stored = sessionStorage.getItem(SESSION);

    if (stored && !id) {
        id = stored;
        try {
            await askJson("GET", path());
            say("the session of before goes on");
            return;
        } catch (error) {
            if (error.status !== 404)
                throw error;
        }
    }
    ({ id } = await askJson("POST", "sessions", {}));
    sessionStorage.setItem(SESSION, id);
    await askJson("POST", path("/cells"), { code: "", silent: true }); // files are there from the first cell on
    say("ready");
}

async function openOnce() {
    opening ??= open().finally(() => { opening = null; });
    await opening;
}

// What @work does with the session. One that has ended meanwhile is followed by another one.
async function inSession(work) {
    if (!id || opening)
        await openOnce();
    try {
        return await work();
    } catch (error) {
        if (error.status !== 404 || !await hasEnded())
            throw error;
    }
    await openOnce();
    await refresh();
    news = "the session had ended: this is a new one, without its variables and files";
    return work();
}

async function hasEnded() {
    try {
        await askJson("GET", path());
        return false;
    } catch (error) {
        return error.status === 404;
    }
}

async function refresh() {
    await Promise.all([listFiles(), listCheckpoints()]);
}

async function renew() {
    const old = id;

    id = null;
    sessionStorage.removeItem(SESSION);
    if (old)
        await ask("DELETE", `sessions/${old}`).catch(() => {}); // it may have ended
    await openOnce();
    await refresh();
    say("a new session");
}

// ---- cells ----

function count(change) {
    running += change;
    $("interrupt").disabled = running === 0;
}

function sayResult({ verdict, message, error }) {
    if (news)
        say(news, true);
    else if (verdict === "ok")
        say("ready");
    else
        say(message ?? error?.name ?? verdict, true);
    news = "";
}

async function run() {
    const code = editor.text;

    if (!code.trim())
        return;
    const view = new CellView($("outputs"), code, text => {
        editor.text = text;
        $("code").focus();
    });

    count(1);
    say("running");
    try {
        const from = performance.now();
        const answer = await inSession(() => ask("POST", path("/cells"),
            { json: { code }, accept: "application/x-ndjson" }));
        let result = null;

        for await (const { event, data } of eventsOf(answer)) {
            view.hear(event, data);
            if (event === "result")
                result = data;
        }
        if (!result)
            throw new Refusal(0, "the connection broke off");
        noteCell(performance.now() - from);
        sayResult(result);
    } catch (error) {
        view.fail(error.message);
        throw error;
    } finally {
        count(-1);
    }
    await refresh();
}

async function interrupt() {
    const { interrupted } = await askJson("POST", path("/interrupt"));

    say(interrupted ? "interrupted" : "no cell runs");
}

async function restart() {
    await inSession(() => askJson("POST", path("/restart")));
    await inSession(() => askJson("POST", path("/cells"), { code: "", silent: true }));
    await refresh();
    say("restarted: variables and checkpoints are gone, files are there");
}

// ---- files ----

function pathOfFile(name) {
    const parts = name.split("/");

    if (parts.some(part => part === "" || part === "." || part === ".."))
        throw new Refusal(0, `this is no name of a file: ${name}`);
    return path(`/files/${parts.map(encodeURIComponent).join("/")}`);
}

async function download(name) {
    const content = await (await ask("GET", pathOfFile(name))).blob();
    const link = document.createElement("a");

    link.href = URL.createObjectURL(content);
    link.download = name.split("/").pop();
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    say(`${name}: ${sizeText(content.size)}`);
}

async function upload(files) {
    for (const file of files) {
        say(`uploading ${file.name}, ${sizeText(file.size)}`);
        const answer = await inSession(() => ask("PUT", pathOfFile(file.name), { body: file }));
        const { path: name, size } = await answer.json();

        say(`uploaded ${name}, ${sizeText(size)}`);
    }
    await listFiles();
}

async function remove(name) {
    await ask("DELETE", pathOfFile(name));
    await listFiles();
    say(`removed ${name}`);
}

function button(text, label, work) {
    const made = document.createElement("button");

    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act(work));
    return made;
}

function row(what, size, ...buttons) {
    const made = document.createElement("li");
    const texts = [["what", what], ["size", size]].map(([kind, text]) => {
        const span = document.createElement("span");

        span.className = kind;
        span.textContent = text;
        return span;
    });

    texts[0].title = what;
    made.append(...texts, ...buttons);
    return made;
}

// A list is made anew whenever a cell ends; who has a button of it in hand keeps it.
function list(place, rows, none) {
    const held = $(place).contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    const empty = document.createElement("li");

    empty.className = "none";
    empty.textContent = none;
    $(place).replaceChildren(...(rows.length ? rows : [empty]));
    if (held)
        [...$(place).querySelectorAll("button")].find(each => each.getAttribute("aria-label") === held)?.focus();
}

async function listFiles() {
    const { files } = await inSession(() => askJson("GET", path("/files")));

    list("files", files.map(({ path: name, size, type }) => type && type !== "file" ? row(name, type) :
        row(name, sizeText(size), button("Download", `Download ${name}`, () => download(name)),
            button("Remove", `Remove ${name}`, () => remove(name)))), "none");
}

// ---- checkpoints ----

async function checkpoint() {
    const { id: number, ms, lost } = await inSession(() => askJson("POST", path("/checkpoints")));

    await listCheckpoints();
    say([`checkpoint ${number}, in ${ms.toFixed(1)} ms`, ...lost.map(text => `not in it: ${text}`)].join("; "));
}

async function rollback(number) {
    const { ms } = await askJson("POST", path("/rollback"), { checkpoint: number });

    await refresh();
    say(`back at checkpoint ${number}, in ${ms.toFixed(1)} ms`);
}

async function drop(number) {
    await ask("DELETE", path(`/checkpoints/${number}`));
    await listCheckpoints();
    say(`checkpoint ${number} is dropped`);
}

async function listCheckpoints() {
    const { now } = await inSession(() => askJson("GET", path()));

    list("checkpoints", now.checkpoints.map(({ id: number, bytes }) => row(`checkpoint ${number}`, sizeText(bytes),
        button("Roll back", `Roll back to checkpoint ${number}`, () => rollback(number)),
        button("Drop", `Drop checkpoint ${number}`, () => drop(number)))), "none");
}

// ---- the token ----

function askForToken(why, offered) {
    const form = $("ask").querySelector("form");

    $("ask-why").textContent = why;
    $("token").value = offered;
    if (!$("ask").open)
        $("ask").showModal();
    $("ask").onclose = () => $("ask").showModal(); // nothing goes on without a token
    return new Promise(resolve => {
        form.onsubmit = event => {
            const token = $("token").value.trim();

            event.preventDefault();
            if (!/^[\x21-\x7e]+$/.test(token)) {
                $("ask-why").textContent = "A token has visible characters of ASCII alone.";
                return;
            }
            $("ask").onclose = null;
            $("ask").close();
            $("token").value = "";
            resolve(token);
        };
    });
}

// ---- the beginning ----

const editor = new Editor($("code"), $("colours"),
    { onRun: act(run), onChange: text => sessionStorage.setItem(CODE, text) });

function hear() {
    const drop = $("drop");

    $("run").addEventListener("click", act(run));
    $("interrupt").addEventListener("click", act(interrupt));
    $("restart").addEventListener("click", act(restart));
    $("renew").addEventListener("click", act(renew));
    $("checkpoint").addEventListener("click", act(checkpoint));
    $("upload").addEventListener("click", () => $("chosen").click());
    $("chosen").addEventListener("change", act(async () => {
        await upload([...$("chosen").files]);
        $("chosen").value = "";
    }));
    // All of the page takes files, so that one that is dropped beside the list is not opened in place of the page.
    document.addEventListener("dragover", event => {
        event.preventDefault();
        drop.classList.add("over");
    });
    document.addEventListener("dragleave", event => {
        if (!event.relatedTarget)
            drop.classList.remove("over");
    });
    document.addEventListener("drop", act(async event => {
        event.preventDefault();
        drop.classList.remove("over");
        await upload([...event.dataTransfer.files]);
    }));
}

takeTokenFromLink();
onTokenWanted(askForToken);
editor.text = sessionStorage.getItem(CODE) ?? FIRST_CODE;
hear();
await act(async () => {
    await openOnce();
    await refresh();
    watchServer();
})();
