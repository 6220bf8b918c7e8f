// server.js - requests to the native API of this server, with a token where it wants one.

const TOKEN = "hutch-token"; // in sessionStorage, which ends with the tab
const BASE = new URL("../v1/", location.href);

// A refusal of the server, or a server that cannot be reached: then status is 0.
export class Refusal extends Error {
    constructor(status, message, hint = "") {
        super(message);
        this.status = status;
        this.hint = hint;
    }
}

let token = sessionStorage.getItem(TOKEN) ?? "";
let offered = "";  // by a link
let asking = null; // a promise, while the user is asked for a token
let askUser = async () => { throw new Refusal(401, "the server wants a token"); };

// @ask: shows why the last token was not good, proposes another one where there is one, and returns what the user says.
export function onTokenWanted(ask) {
    askUser = ask;
}

// A link may have a token as #token=…, which no server is sent. It is taken out before anything else happens. The
// user is asked all the same: who has made the link could look into what is done with a token of his.
export function takeTokenFromLink() {
    offered = /^#token=(.+)$/.exec(location.hash)?.[1] ?? "";
    if (location.hash)
        history.replaceState(null, "", location.pathname);
}

async function replaceToken() {
    const why = token ? "The server does not know this token." : offered ? "The link to this page has a token." : "";

    asking ??= askUser(why, offered).then(text => {
        token = text;
        sessionStorage.setItem(TOKEN, text);
    }).finally(() => { asking = null; });
    offered = "";
    await asking;
}

async function refusalOf(answer) {
    const { error } = await answer.json().catch(() => ({}));

    return new Refusal(answer.status, error?.message ?? `the server has answered ${answer.status}`, error?.hint);
}

// The answer to a request of path below /v1/. It is asked again with another token as long as the server wants one.
export async function ask(method, path, { json, body, accept } = {}) {
    for (;;) {
        const sent = token;
        const headers = {};

        if (sent)
            headers.Authorization = `Bearer ${sent}`;
        if (accept)
            headers.Accept = accept;
        if (json !== undefined)
            headers["Content-Type"] = "application/json";
        const answer = await fetch(new URL(path, BASE), {
            method, headers, body: json === undefined ? body : JSON.stringify(json), credentials: "omit",
            redirect: "error",
        }).catch(() => { throw new Refusal(0, "the server cannot be reached"); });

        if (answer.ok)
            return answer;
        if (answer.status !== 401)
            throw await refusalOf(answer);
        if (sent === token)
            await replaceToken();
    }
}

export async function askJson(method, path, json) {
    return (await ask(method, path, { json })).json();
}

// The events of an answer that comes line by line: {event, data}.
export async function* eventsOf(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let begun = []; // of a line that is not whole, its pieces: an image may have many

    for (;;) {
        const { value, done } = await reader.read().catch(() => { throw new Refusal(0, "the connection broke off"); });

        if (done)
            return;
        const lines = value.split("\n");
        const last = lines.pop();

        for (const line of lines) {
            yield JSON.parse(begun.join("") + line);
            begun = [];
        }
        begun.push(last);
    }
}

// The text of /metrics, which is not below /v1/.
export async function metrics() {
    return (await ask("GET", "../metrics")).text();
}
