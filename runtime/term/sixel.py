# sixel.py - prints an image as sixels, the graphics of DEC's VT340 and of terminals today, without what stands before and behind
# them. Runs inside the sandbox, in a context of its own; term/image.c adds the call, and checks what comes.
def convert(name, max_side):
    import re
    import sys
    from PIL import Image

    image = Image.open(name).convert("RGBA")
    image.thumbnail((max_side, max_side))
    paper = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(paper, image).convert("RGB").quantize(64)
    width, height = image.size
    palette, pixels = image.getpalette(), image.tobytes()
    out = ["#%d;2;%d;%d;%d" % (c, *(palette[3 * c + i] * 100 // 255 for i in range(3))) for c in sorted(set(pixels))]
    for top in range(0, height, 6):
        colours = {}
        for row in range(top, min(top + 6, height)):
            for x, colour in enumerate(pixels[row * width:(row + 1) * width]):
                line = colours.get(colour)
                if line is None:
                    line = colours[colour] = bytearray(b"?" * width)
                line[x] += 1 << (row - top)
        out.append("$".join("#%d%s" % (c, re.sub(r"(.)\1{3,}", lambda m: "!%d%s" % (len(m[0]), m[1]), line.decode().rstrip("?")))
                            for c, line in sorted(colours.items())))
        out.append("-")
    sys.stdout.write("".join(out[:-1]))
