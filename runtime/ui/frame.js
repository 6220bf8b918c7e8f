// frame.js - HTML that nobody has read, such as that of a table, in a frame that can do nothing.
//
// Three walls, each of which would do. What is put into the frame is made anew of a list of elements and attributes:
// nothing in it leads to another place. The frame has no script, no form, no origin and no way up (sandbox=""). Its
// rules load nothing (RULES, and those of the page, which it inherits).

const ELEMENTS = new Set(("abbr b bdi bdo big blockquote br caption center cite code col colgroup dd del details dfn " +
    "div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark meter ol p pre progress q s samp " +
    "small span strong style sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr").split(" "));
// Their text is not to be read either; of all others that are not in the list, what is in them stays.
const LEFT_OUT = new Set(("applet audio base canvas embed frame frameset head iframe link math meta noembed noframes " +
    "noscript object plaintext script select svg template textarea title video xmp").split(" "));
const ATTRIBUTES = new Set(("align alt bgcolor border cellpadding cellspacing class colspan dir headers height high " +
    "id lang low max min open optimum role rowspan scope span start style title valign value width").split(" "));
const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/i;
const RULES = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STYLE = `
:root { color-scheme: light dark; font: 13.5px/1.45 system-ui, sans-serif; }
body { margin: 0; }
table { border-collapse: collapse; border: 0; }
th, td { padding: .15rem .6rem; border: 0; text-align: right; }
thead { border-bottom: 1px solid GrayText; }
tbody tr:nth-child(even) { background: rgb(128 128 128 / 12%); }
pre { white-space: pre-wrap; }
`;
const MAX_TEXT = 4 * 1024 * 1024, MAX_ELEMENTS = 20000;
const ROW = 24, LEAST = 56, MOST = 420; // pixels: the page cannot look into the frame to see how high it is

// The only place of the page where a text becomes HTML: parsed without being shown, and within the frame.
const trusting = { createHTML: text => text };
const html = globalThis.trustedTypes?.createPolicy("frame", trusting) ?? trusting;

function copyAttributes(from, to) {
    for (const { name, value } of from.attributes)
        if (ATTRIBUTES.has(name) || name.startsWith("aria-"))
            to.setAttribute(name, value);
    if (to.localName === "img" && IMAGE.test(from.getAttribute("src") ?? ""))
        to.setAttribute("src", from.getAttribute("src"));
}

function copyChildren(from, to) {
    for (let child = from.firstChild; child; child = child.nextSibling) {
        if (child.nodeType === Node.TEXT_NODE) {
            to.append(child.data);
        } else if (child.namespaceURI === to.namespaceURI && !LEFT_OUT.has(child.localName)) { // no SVG, no comment
            if (!ELEMENTS.has(child.localName)) {
                copyChildren(child, to);
                continue;
            }
            const copy = to.ownerDocument.createElement(child.localName);

            copyAttributes(child, copy);
            to.append(copy);
            if (child.localName === "style")
                copy.textContent = child.textContent.replaceAll("</", "");
            else
                copyChildren(child, copy);
        }
    }
}

// The same HTML without what is not in the lists. What stands in the head of a document, styles, is kept, too.
export function cleaned(text) {
    const parsed = new DOMParser().parseFromString(html.createHTML(text), "text/html");
    const made = document.implementation.createHTMLDocument("");

    copyChildren(parsed.head, made.body);
    copyChildren(parsed.body, made.body);
    return made.body.innerHTML;
}

// An element with the frame; null: it is too much.
export function frameOf(text, title) {
    if (text.length > MAX_TEXT || (text.match(/<[a-z]/gi)?.length ?? 0) > MAX_ELEMENTS)
        return null;
    const place = document.createElement("div");
    const frame = document.createElement("iframe");
    const rows = text.match(/<(tr|li|p|br|h\d)\b/gi)?.length ?? 1;

    frame.setAttribute("sandbox", "");
    frame.referrerPolicy = "no-referrer";
    frame.title = title;
    frame.srcdoc = html.createHTML(`<!DOCTYPE html><meta charset="utf-8">` +
        `<meta http-equiv="Content-Security-Policy" content="${RULES}">` +
        `<meta name="color-scheme" content="light dark"><style>${STYLE}</style><body>${cleaned(text)}`);
    place.className = "frame";
    place.style.height = `${Math.min(Math.max((rows + 1) * ROW, LEAST), MOST)}px`;
    place.append(frame);
    return place;
}
