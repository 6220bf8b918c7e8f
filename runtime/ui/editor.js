// editor.js - a text area that shows Python in colours: the coloured text lies behind it.

const MAX_COLOURED = 100 * 1024;
const INDENT = "    ";

const KEYWORDS = new Set(("and as assert async await break case class continue def del elif else except finally for " +
    "from global if import in is lambda match nonlocal not or pass raise return try while with yield " +
    "False None True").split(" "));
const BUILTINS = new Set(("abs all any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile " +
    "complex delattr dict dir display divmod enumerate eval exec filter float format frozenset getattr globals " +
    "hasattr hash help hex id input int isinstance issubclass iter len list locals map max memoryview min next " +
    "object oct open ord pow print property range repr reversed round self set setattr slice sorted staticmethod str " +
    "sum super tuple type vars zip").split(" "));

// A string, which may go on to the end of the text while somebody types it.
const STRING = ['"""', "'''"].map(quotes => `${quotes}(?:\\\\.|[^\\\\])*?(?:${quotes}|$(?![^]))`)
    .concat(['"', "'"].map(quote => `${quote}(?:\\\\.|[^${quote}\\\\\\n])*${quote}?`)).join("|");
const TOKEN = new RegExp([
    "(?<comment>#[^\\n]*)",
    `(?<string>(?:\\b[rbfu]{1,2})?(?:${STRING}))`,
    "(?<number>\\b(?:0[xob][\\da-f_]+|\\d[\\d_]*\\.?[\\d_]*(?:e[+-]?\\d+)?j?))",
    "(?<name>^[ \\t]*@[\\w.]+|(?<=\\b(?:def|class)[ \\t]+)\\w+)",
    "(?<word>[\\p{L}_][\\p{L}\\p{N}_]*)",
].join("|"), "gimsu");

function kindOf(groups, isAttribute) {
    if (!groups.word)
        return Object.keys(groups).find(kind => groups[kind] !== undefined);
    return KEYWORDS.has(groups.word) ? "keyword" : BUILTINS.has(groups.word) && !isAttribute ? "builtin" : null;
}

// Puts @code into @to, in colours.
export function highlight(code, to) {
    const made = document.createDocumentFragment();
    let at = 0;

    for (const found of code.length > MAX_COLOURED ? [] : code.matchAll(TOKEN)) {
        const kind = kindOf(found.groups, code[found.index - 1] === ".");

        if (!kind)
            continue;
        const span = document.createElement("span");

        span.className = kind;
        span.textContent = found[0];
        made.append(code.slice(at, found.index), span);
        at = found.index + found[0].length;
    }
    made.append(code.slice(at), "\n"); // as high as the text area, whose last line may be empty
    to.replaceChildren(made);
}

export class Editor {
    constructor(area, colours, { onRun, onChange }) {
        this.area = area;
        this.colours = colours;
        this.onChange = onChange;
        this.mayLeave = false; // Escape was pressed: the next Tab leaves, as in other editors
        area.addEventListener("input", () => this.draw());
        area.addEventListener("scroll", () => this.align());
        area.addEventListener("blur", () => { this.mayLeave = false; });
        area.addEventListener("keydown", event => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                onRun();
            } else if (!event.isComposing) {
                this.hear(event);
            }
        });
    }

    get text() {
        return this.area.value;
    }

    set text(text) {
        this.area.value = text;
        this.draw();
    }

    draw() {
        highlight(this.area.value, this.colours);
        this.align();
        this.onChange(this.area.value);
    }

    align() {
        this.colours.scrollTop = this.area.scrollTop;
        this.colours.scrollLeft = this.area.scrollLeft;
    }

    hear(event) {
        if (event.key === "Escape") {
            this.mayLeave = true;
        } else if (event.key === "Tab" && !event.ctrlKey && !event.altKey && !this.mayLeave) {
            event.preventDefault();
            this.indent(event.shiftKey);
        } else if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
            event.preventDefault();
            this.breakLine();
        } else if (event.key !== "Tab" && event.key !== "Shift") {
            this.mayLeave = false;
        }
    }

    // In a way that the browser's Undo knows.
    insert(text) {
        if (!document.execCommand(text ? "insertText" : "delete", false, text))
            this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    }

    lineStart(at) {
        return this.area.value.lastIndexOf("\n", at - 1) + 1;
    }

    indent(isBack) {
        const { selectionStart: from, selectionEnd: to, value } = this.area;

        if (from === to && !isBack) {
            this.insert(" ".repeat(INDENT.length - (from - this.lineStart(from)) % INDENT.length));
            return;
        }
        const start = this.lineStart(from);
        const old = value.slice(start, to);
        const lines = old.split("\n").map(line => isBack ? line.replace(/^ {1,4}|^\t/, "") : line && INDENT + line);
        const text = lines.join("\n");

        if (text === old)
            return;
        this.area.setSelectionRange(start, to);
        this.insert(text);
        if (from === to)
            this.area.setSelectionRange(start + text.length, start + text.length);
        else
            this.area.setSelectionRange(start, start + text.length);
    }

    // The next line begins where this one does, and further in behind a colon.
    breakLine() {
        const at = this.area.selectionStart;
        const line = this.area.value.slice(this.lineStart(at), at);

        this.insert("\n" + /^[ \t]*/.exec(line)[0] + (/:\s*(#.*)?$/.test(line) ? INDENT : ""));
    }
}
