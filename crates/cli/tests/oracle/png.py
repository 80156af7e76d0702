"""Compares a figure as PNG with the same figure as SVG: png.py F.png F.svg. Decodes the PNG with zlib alone. Prints each
difference; exit status 1 if there is one."""

import struct
import sys
import xml.etree.ElementTree as ElementTree
import zlib

SCALE = 2


def decoded(path):
    """Width, height and the lines of RGB bytes. Checks signature, checksums and format."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    chunks, at = [], 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body, (checksum,) = data[at + 8 : at + 8 + length], struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert zlib.crc32(kind + body) == checksum, f"checksum of {kind}"
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"], "chunks"
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    assert form == [8, 2, 0, 0, 0], f"8-bit RGB: {form}"
    pixels, line = zlib.decompress(chunks[1][1]), 1 + 3 * width
    assert len(pixels) == height * line, "size of the pixels"
    lines = [pixels[row * line : (row + 1) * line] for row in range(height)]
    assert all(one[0] == 0 for one in lines), "no filter"
    return width, height, [one[1:] for one in lines]


def rgb(colour):
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b))


def box(element, text):
    """Where a text is in the SVG: left, top, right, bottom. As wide as a narrow font makes it."""
    x, y, px = (float(element.get(name)) for name in ("x", "y", "font-size"))
    width = 0.4 * px * len(text)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[element.get("text-anchor")]
    top = {"0.76em": y, "0.5ex": y - px / 2, "-0.5ex": y - px}[element.get("dy")]
    if element.get("transform"):
        # Rotated by 270 degrees about (x, y): the text runs upwards.
        return (x + top - y, y - (left - x) - width, x + top - y + px, y - (left - x))
    return (left, top, left + width, top + px)


def differences(png, svg):
    width, height, lines = decoded(png)
    root = ElementTree.parse(svg).getroot()
    size = [SCALE * int(root.get(name)) for name in ("width", "height")]
    if [width, height] != size:
        yield f"size {width} x {height}, not {size}"
    pixel = lambda x, y: tuple(lines[y][3 * x : 3 * x + 3])
    edges = [pixel(x, y) for x in range(width) for y in (0, height - 1)] + [pixel(x, y) for y in range(height) for x in (0, width - 1)]
    if set(edges) != {(255, 255, 255)}:
        yield "the edges are not white"
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    if len(texts) < 5:
        yield f"only {len(texts)} texts"
    for element in texts:
        text, ink = "".join(element.itertext()).strip(), rgb(element.get("fill"))
        left, top, right, bottom = (int(SCALE * edge) for edge in box(element, text))
        inside = [pixel(x, y) for y in range(max(top, 0), min(bottom, height)) for x in range(max(left, 0), min(right, width))]
        if not inside:
            yield f"`{text}` is outside"
            continue
        paper = max(set(inside), key=inside.count)
        inked = sum(1 for one in inside if distance(one, ink) < distance(one, paper))
        if not 2 * len(text) <= inked <= len(inside) / 2:
            yield f"`{text}` at {left}, {top}: {inked} of {len(inside)} pixels are in its colour"
    for element in root.iter():
        if element.tag.endswith("circle") and element.get("stroke") == "none":
            x, y = (SCALE * int(element.get(name)) for name in ("cx", "cy"))
            if pixel(x, y) == (255, 255, 255):
                yield f"nothing at the point {x}, {y}"


if __name__ == "__main__":
    found = list(differences(*sys.argv[1:]))
    print("\n".join(found))
    sys.exit(1 if found else 0)
