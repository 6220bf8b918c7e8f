// ansi.js - text of a program, with the escape sequences for colours and with carriage returns, as elements of a page.

const MAX_LINES = 5000;      // shown of one text; the first ones go
const MAX_LINE = 64 * 1024;  // characters of a line that is not at its end

// Colours; other sequences, which are left out; and control characters, which are shown as pictures of themselves.
const ESCAPE = new RegExp([
    /\x1b\[([\d;:]*)m/, /\x1b\[[0-?]*[ -/]*[@-~]/, /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?/, /\x1b[@-_]?/,
    /([\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f])/,
].map(each => each.source).join("|"), "g");
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };
const PLAIN = { styles: new Set(), fg: null, bg: null };

// 0 to 7 are colours of the page, the others are told by their parts.
function colourOf256(n) {
    if (n < 16)
        return n % 8;
    if (n > 231)
        return `rgb(${[0, 0, 0].fill(8 + (n - 232) * 10)})`;
    const level = part => part ? 55 + part * 40 : 0;

    return `rgb(${[Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level)})`;
}

// 38;5;N or 38;2;R;G;B: the colour, and how many numbers it took.
function readColour(numbers, at) {
    if (numbers[at] === 5)
        return [colourOf256(Math.min(numbers[at + 1] ?? 0, 255)), 2];
    if (numbers[at] === 2)
        return [`rgb(${numbers.slice(at + 1, at + 4).map(part => Math.min(part, 255))})`, 4];
    return [null, 1];
}

function restyle(old, text) {
    const now = { styles: new Set(old.styles), fg: old.fg, bg: old.bg };
    const numbers = text.split(/[;:]/).map(Number);

    for (let i = 0; i < numbers.length; i++) {
        const n = numbers[i];

        if (n === 0)
            Object.assign(now, PLAIN, { styles: new Set() });
        else if (STYLES[n])
            now.styles.add(STYLES[n]);
        else if (ENDS[n])
            ENDS[n].forEach(style => now.styles.delete(style));
        else if (n === 38 || n === 48) {
            const [colour, used] = readColour(numbers, i + 1);

            now[n === 38 ? "fg" : "bg"] = colour;
            i += used;
        } else if (n === 39 || n === 49)
            now[n === 39 ? "fg" : "bg"] = null;
        else if ((n >= 30 && n < 38) || (n >= 90 && n < 98))
            now.fg = n % 10;
        else if ((n >= 40 && n < 48) || (n >= 100 && n < 108))
            now.bg = n % 10;
    }
    return now;
}

// Colours that a program has mixed itself are for a ground that it does not know: a part of the page's own makes them
// readable on light and dark.
function piece(text, style) {
    const span = document.createElement("span");

    span.textContent = text;
    span.classList.add(...style.styles);
    if (typeof style.fg === "number")
        span.classList.add(`fg${style.fg}`);
    else if (style.fg)
        span.style.color = `color-mix(in srgb, ${style.fg} 60%, var(--text))`;
    if (typeof style.bg === "number")
        span.classList.add(`bg${style.bg}`);
    else if (style.bg)
        span.style.backgroundColor = `color-mix(in srgb, ${style.bg} 30%, transparent)`;
    return span;
}

function isPlain(style) {
    return !style.styles.size && style.fg === null && style.bg === null;
}

// Of a line, what was written after its last carriage return. Puts it into @to; the style that holds after it.
function renderLine(line, style, to) {
    const text = line.replace(/\r+$/, "").replace(/^.*\r/s, "");
    let at = 0;
    const add = part => { if (part) to.append(isPlain(style) ? part : piece(part, style)); };

    for (const found of text.matchAll(ESCAPE)) {
        add(text.slice(at, found.index));
        at = found.index + found[0].length;
        if (found[1] !== undefined)
            style = restyle(style, found[1]);
        else if (found[2])
            add(String.fromCharCode(found[2] === "\x7f" ? 0x2421 : 0x2400 + found[2].charCodeAt(0)));
    }
    add(text.slice(at));
    return style;
}

// Text that grows in an element.
export class AnsiText {
    constructor(element) {
        this.element = element;
        this.style = PLAIN;  // where the last line begins
        this.line = "";      // the last one, which is not at its end
        this.last = null;    // its element
        this.lines = 0;
    }

    write(text) {
        const lines = (this.line + text).split("\n");

        this.line = lines.pop();
        for (const line of lines)
            this.end(line, "\n");
        if (this.line.length > MAX_LINE) {
            this.end(this.line, "");
            this.line = "";
        }
        if (this.line)
            renderLine(this.line, this.style, this.place());
    }

    end(line, newline) {
        const place = this.place();

        this.style = renderLine(line, this.style, place);
        place.append(newline);
        this.last = null;
        if (++this.lines > MAX_LINES)
            this.element.firstChild.remove();
    }

    // Of the last line, empty.
    place() {
        if (!this.last) {
            this.last = document.createElement("span");
            this.element.append(this.last);
        }
        this.last.replaceChildren();
        return this.last;
    }
}
