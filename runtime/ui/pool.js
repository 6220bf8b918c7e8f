// pool.js - what the server is like now: its pools, and how long runs and the cells of this page take.

import { metrics } from "./server.js";

const EVERY_MS = 2000;
const CELLS = 40; // whose times are drawn

const cells = []; // milliseconds from the order to the result, as this page has seen it

export function noteCell(ms) {
    cells.push(ms);
    cells.splice(0, cells.length - CELLS);
    drawCells();
}

// {'name{labels}': number} of the text format of Prometheus.
function parse(text) {
    const found = new Map();

    for (const line of text.split("\n")) {
        const at = line.lastIndexOf(" ");

        if (at > 0 && line[0] !== "#")
            found.set(line.slice(0, at), Number(line.slice(at + 1)));
    }
    return found;
}

// The bound below which @share of a histogram is, of all its series that have @label, as a text; null: nothing was counted.
function quantile(values, name, label, share) {
    const counts = new Map(); // by bound, in their order
    let last = "";

    for (const [key, value] of values)
        if (key.startsWith(`${name}_bucket{`) && key.includes(label)) {
            const bound = /le="([^"]+)"/.exec(key)[1];

            counts.set(bound, (counts.get(bound) ?? 0) + value);
        }
    const count = counts.get("+Inf");

    if (!count)
        return null;
    for (const [bound, value] of counts) {
        if (bound === "+Inf")
            return `> ${last}`;
        last = `${Number(bound) * 1000} ms`;
        if (value >= share * count)
            return `≤ ${last}`;
    }
    return null;
}

function cellOf(name, text) {
    const element = document.createElement(name);

    element.textContent = text;
    return element;
}

function drawPools(values) {
    const rows = [];

    for (const [key, prepared] of values) {
        const [, labels, zygote, policy] = /^hutch_pool_prepared(\{zygote="([^"]*)"(?:,policy="(.*)")?\})$/.exec(key) ?? [];

        if (labels === undefined)
            continue;
        const row = document.createElement("tr");

        row.append(cellOf("td", policy ? `${zygote}, ${policy}` : zygote), cellOf("td", prepared),
            cellOf("td", values.get(`hutch_pool_building${labels}`) ?? 0));
        rows.push(row);
    }
    document.getElementById("pools").replaceChildren(...rows);
}

function median(numbers) {
    return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

let figures = []; // [name, text] of the last metrics

function drawFigures() {
    const own = cells.length ? [["cells of this page, median", `${median(cells).toFixed(1)} ms`],
                                ["the last of them", `${cells.at(-1).toFixed(1)} ms`]] : [];

    document.getElementById("figures").replaceChildren(
        ...[...figures, ...own].flatMap(([name, text]) => [cellOf("dt", name), cellOf("dd", text)]));
}

function drawCells() {
    const most = Math.max(...cells, 1);
    const points = cells.map((ms, i) => `${(i + 0.5) * 120 / CELLS},${23 - 22 * ms / most}`);

    document.querySelector("#latency polyline").setAttribute("points", points.join(" "));
    document.getElementById("latency").setAttribute("aria-label",
        `Times of the last ${cells.length} cells, at most ${most.toFixed(1)} milliseconds`);
    drawFigures();
}

async function look() {
    const values = parse(await metrics());
    const runs = ["0.5", "0.99"].map(share => quantile(values, "hutch_run_seconds", 'phase="total"', Number(share)));

    drawPools(values);
    figures = [["runs now", values.get("hutch_running") ?? 0], ["runs in the queue", values.get("hutch_queued") ?? 0],
               ["sessions", values.get("hutch_sessions") ?? 0]];
    if (runs[0])
        figures.push(["runs, median", runs[0]], ["runs, 99 of 100", runs[1]]);
    drawFigures();
}

// Again and again, as long as somebody sees it.
export async function watchServer() {
    for (;;) {
        if (!document.hidden)
            await look().catch(() => {}); // the page says itself when the server is gone
        await new Promise(resolve => setTimeout(resolve, EVERY_MS));
    }
}
