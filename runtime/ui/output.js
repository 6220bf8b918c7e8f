// output.js - a cell that was run: its code, what it shows as it comes, and how it ended.

import { AnsiText } from "./ansi.js";
import { highlight } from "./editor.js";
import { frameOf } from "./frame.js";

const IMAGES = ["image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp"];
const displays = new Map(); // by display_id: the elements that show it

// Images are shown as images only, where the scripts and links of an SVG are dead.
function imageOf(type, text, alt) {
    const image = document.createElement("img");

    image.src = type === "image/svg+xml" ? `data:${type};charset=utf-8,${encodeURIComponent(text)}`
                                         : `data:${type};base64,${text.replace(/\s+/g, "")}`;
    image.alt = alt;
    return image;
}

function textOf(text, kind) {
    const pre = document.createElement("pre");

    pre.className = kind;
    new AnsiText(pre).write(text);
    return pre;
}

// The first of these that an output has: image, table, text.
function bundleOf(data, title) {
    const type = IMAGES.find(each => typeof data[each] === "string");
    const plain = typeof data["text/plain"] === "string" ? data["text/plain"] : "";

    if (type)
        return imageOf(type, data[type], plain || `Image of ${title}`);
    return (typeof data["text/html"] === "string" && frameOf(data["text/html"], `Table of ${title}`)) ||
        textOf(plain || data["text/markdown"] || data["text/latex"] || JSON.stringify(data), "value");
}

function make(name, properties = {}, ...children) {
    const element = document.createElement(name);

    Object.assign(element, properties);
    element.append(...children);
    return element;
}

const SIGNS = { ok: "", error: "failed", timeout: "took too long", killed: "was ended" };

export class CellView {
    // @list: the newest is on top. @onEdit: takes the code back into the editor.
    constructor(list, code, onEdit) {
        const edit = make("button", { type: "button", textContent: "Edit", onclick: () => onEdit(code) });
        const listing = make("pre", { className: "code", tabIndex: 0 });

        this.title = make("h3", { textContent: "In [ ]" });
        this.end = make("span", { className: "end", textContent: "running" });
        this.shown = make("div", { className: "shown" });
        this.shown.setAttribute("role", "log");
        this.shown.setAttribute("aria-label", "Output of the cell");
        listing.setAttribute("aria-label", "Code of the cell");
        edit.setAttribute("aria-label", "Edit this code again");
        highlight(code.trimEnd(), listing);
        this.element = make("li", { className: "cell" },
            make("header", {}, this.title, this.end, edit), listing, this.shown);
        this.stream = null;         // {name, text}: where text of this stream goes on
        this.isClearDue = false;
        list.prepend(this.element);
    }

    add(element) {
        this.clearIfDue();
        this.stream = null;
        this.shown.append(element);
    }

    clearIfDue() {
        if (this.isClearDue)
            this.shown.replaceChildren();
        this.isClearDue = false;
    }

    addDisplay({ data, transient }) {
        const element = bundleOf(data, "the cell");
        const id = transient?.display_id;

        this.add(element);
        if (id !== undefined)
            displays.set(id, [...(displays.get(id) ?? []).filter(each => each.isConnected), element]);
    }

    // What is at its end follows what comes.
    write({ stream, text }) {
        const isAtEnd = this.shown.scrollHeight - this.shown.scrollTop - this.shown.clientHeight < 40;

        this.clearIfDue();
        if (this.stream?.name !== stream) {
            const pre = make("pre", { className: stream === "stderr" ? "stderr" : "stdout" });

            this.add(pre);
            this.stream = { name: stream, text: new AnsiText(pre) };
        }
        this.stream.text.write(text);
        if (isAtEnd)
            this.shown.scrollTop = this.shown.scrollHeight;
    }

    addError({ ename, evalue, traceback }) {
        this.add(textOf(traceback.join("\n") || `${ename}: ${evalue}`, "traceback"));
    }

    update({ id, data }) {
        const made = (displays.get(id) ?? []).map(old => {
            const element = bundleOf(data, "the cell");

            old.replaceWith(element);
            return element;
        });

        displays.set(id, made);
    }

    clear({ wait }) {
        this.isClearDue = true;
        this.stream = null;
        if (!wait)
            this.clearIfDue();
    }

    finish(result) {
        const sign = SIGNS[result.verdict] ?? result.verdict;
        const count = result.execution_count;

        this.title.textContent = `In [${count ?? " "}]`;
        this.end.textContent = [sign, `${result.timings_ms.run.toFixed(1)} ms`].filter(Boolean).join(", ");
        this.element.classList.toggle("failed", result.verdict !== "ok");
        if (result.message)
            this.add(textOf(result.message, "stderr"));
        if (result.truncated)
            this.add(textOf("There was more than the output limit allows.", "stderr"));
    }

    fail(message) {
        this.end.textContent = message;
        this.element.classList.add("failed");
    }

    // An event of the server's, as docs/gateway.md has them.
    hear(event, data) {
        switch (event) {
        case "output": return this.write(data);
        case "display": return this.addDisplay(data);
        case "value": return this.addDisplay(data);
        case "update": return this.update(data);
        case "clear": return this.clear(data);
        case "error": return this.addError(data);
        case "result": return this.finish(data);
        default: return undefined; // of a newer server
        }
    }
}
