"""Writes a style sheet that has the site's fonts in it: IBM Plex Sans and Mono, and STIX Two Math for
equations, each cut down to the characters that the pages use. All are under the SIL Open Font License. In:
the path to write. They stand in the sheet itself, since browsers read no font files for pages that are
files."""

import base64
import importlib.util
import io
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

LATIN = set(range(0x20, 0x17F)) | {
    0x2010,
    0x2011,
    0x2012,
    0x2013,
    0x2014,
    0x2018,
    0x2019,
    0x201C,
    0x201D,
    0x2022,
    0x2026,
    0x2032,
    0x2190,
    0x2192,
    0x2212,
    0x2260,
    0x2264,
    0x2265,
    0x00D7,
    0x00B7,
}
GREEK = set(range(0x391, 0x3CA))
BOX = (
    set(range(0x2500, 0x2580))
    | set(range(0x2070, 0x209D))
    | {0x2032, 0x221A, 0x2211, 0x220F, 0x2202, 0x1D62, 0x2C7C, 0x221E}
)
MATH = (
    set(range(0x20, 0x7F))
    | {0xAC, 0xB7, 0x2032, 0x2061, 0x2062}
    | set(range(0x2190, 0x2194))
    | set(range(0x2200, 0x2300))
    | set(range(0x1D434, 0x1D468))
    | set(range(0x1D6A4, 0x1D6E2))
    | {0x210E, 0x7C, 0x2016}
)


def folder(package):
    return Path(importlib.util.find_spec(package).origin).parent


def cut(path, characters, axes=None):
    font = TTFont(path)
    options = subset.Options(
        flavor="woff2", layout_features=["*"], notdef_outline=True, glyph_names=False, hinting=False
    )
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    if axes:
        font = instancer.instantiateVariableFont(font, axes)
    font.flavor = "woff2"
    to = io.BytesIO()
    font.save(to)
    return base64.b64encode(to.getvalue()).decode()


def face(family, weight, style, data):
    return (
        f'@font-face{{font-family:"{family}";font-style:{style};font-weight:{weight};font-display:block;'
        f'src:url(data:font/woff2;base64,{data}) format("woff2")}}\n'
    )


def sheet():
    sans, mono = folder("fontpkg_ibm_plex_sans") / "files", folder("fontpkg_ibm_plex_mono") / "files"
    text = LATIN | GREEK
    yield face(
        "Plex Sans",
        "400 700",
        "normal",
        cut(sans / "IBMPlexSans[wdth,wght].ttf", text, {"wdth": 100, "wght": (400, 700)}),
    )
    yield face(
        "Plex Sans",
        "400",
        "italic",
        cut(sans / "IBMPlexSans-Italic[wdth,wght].ttf", text, {"wdth": 100, "wght": 400}),
    )
    yield face("Plex Mono", "400", "normal", cut(mono / "IBMPlexMono-Regular.ttf", text | BOX))
    yield face("Plex Mono", "600 700", "normal", cut(mono / "IBMPlexMono-SemiBold.ttf", text | BOX))
    yield face(
        "STIX Two Math",
        "400",
        "normal",
        cut(folder("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf", MATH | GREEK),
    )


def main(path):
    path = Path(path)
    made_from = Path(__file__).read_text()
    stamp = path.with_suffix(".from")
    if path.exists() and stamp.exists() and stamp.read_text() == made_from:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(sheet()))
    stamp.write_text(made_from)


main(sys.argv[1])
