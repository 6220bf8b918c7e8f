"""A chart of latencies as SVG: one row a contender, on a logarithmic axis, with p50 as a dot, a bar to p99 and a tick
at the maximum."""
import math
from xml.sax.saxutils import escape

LEFT, WIDTH, ROW, TOP, BOTTOM, RIGHT = 290, 620, 26, 64, 46, 90
COLOURS = {"floor": "#555555", "hutch": "#c2410c", "bare": "#2563eb", "peer": "#64748b"}
WORDS = {"floor": "the kernel alone", "hutch": "hutch", "bare": "warm interpreter, no sandbox", "peer": "others"}


def number(value):
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def draw(rows, title, subtitle):
    """@rows: (kind, label, {"p50", "p99", "max"} in milliseconds). The SVG's text."""
    low = 10 ** math.floor(math.log10(min(times["p50"] for _, _, times in rows)))
    high = 10 ** math.ceil(math.log10(max(times["max"] for _, _, times in rows)))

    def x(value):
        share = math.log10(max(value, low) / low) / math.log10(high / low)
        return LEFT + share * WIDTH

    height = TOP + ROW * len(rows) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
           f'viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" font-family="sans-serif" font-size="13">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="16" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
           f'<text x="16" y="43" fill="#555">{escape(subtitle)}</text>']
    decade = low
    while decade <= high * 1.001:
        for step in range(1, 10):
            if decade * step > high * 1.001:
                break
            at = x(decade * step)
            out.append(f'<line x1="{at:.1f}" y1="{TOP - 6}" x2="{at:.1f}" y2="{height - BOTTOM}" '
                       f'stroke="{"#bbb" if step == 1 else "#eee"}"/>')
        label = f"{decade:g} ms" if decade < 1000 else f"{decade / 1000:g} s"
        out.append(f'<text x="{x(decade):.1f}" y="{height - BOTTOM + 17}" text-anchor="middle" '
                   f'fill="#555">{label}</text>')
        decade *= 10
    for i, (kind, label, times) in enumerate(rows):
        y = TOP + ROW * i + ROW / 2
        colour = COLOURS[kind]
        out += [f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>',
                f'<line x1="{x(times["p50"]):.1f}" y1="{y}" x2="{x(times["p99"]):.1f}" y2="{y}" stroke="{colour}" '
                'stroke-width="7" stroke-opacity="0.35"/>',
                f'<line x1="{x(times["max"]):.1f}" y1="{y - 5}" x2="{x(times["max"]):.1f}" y2="{y + 5}" '
                f'stroke="{colour}"/>',
                f'<circle cx="{x(times["p50"]):.1f}" cy="{y}" r="5" fill="{colour}"/>',
                f'<text x="{x(times["max"]) + 8:.1f}" y="{y + 4}" fill="{colour}" '
                f'font-size="12">{number(times["p50"])}</text>']
    at = LEFT
    for kind in dict.fromkeys(kind for kind, _, _ in rows):
        out += [f'<circle cx="{at}" cy="{height - 10}" r="5" fill="{COLOURS[kind]}"/>',
                f'<text x="{at + 10}" y="{height - 6}" fill="#333">{WORDS[kind]}</text>']
        at += 30 + 7 * len(WORDS[kind])
    out.append(f'<text x="16" y="{height - 6}" fill="#555" font-size="12">'
               'dot p50 (number), bar to p99, tick max</text>')
    return "\n".join(out + ["</svg>", ""])
