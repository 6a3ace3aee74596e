"""Mathematics as MathML, which browsers draw themselves: no script and no network; with a font, as phones have none."""

import html
import re
import string
import unicodedata
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# Where browsers and latex2mathml differ from TeX.
CORRECTIONS = {
    "<mover>": '<mover accent="true">',
    r"&#x0005E;</mo></mover>": "&#x00302;</mo></mover>",  # hats and tildes that stretch
    r"&#x0007E;</mo></mover>": "&#x00303;</mo></mover>",
    r"<mi>(′+)</mi>": r'<mo lspace="0" rspace="0">\1</mo>',  # primes
    r"<mi>(&#x0007E;|&#x000B1;|&#x027C2;|&#x02AAF;)</mi>": r"<mo>\1</mo>",  # ~, plus-minus, perpendicular, precedes
    r"<mo>&#x0007E;</mo>": "<mo>&#x0223C;</mo>",
    r"<mo(?: stretchy=.false.)?>(&#x0002F;|&#x0007C;|&#x0221E;|&#x022A4;)</mo>": (
        r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>'  # slash, bar, infinity, transposed
    ),
    r"(<mo[^>]*>(?:=|&#x0003D;|&#x0002C;|&#x00028;|\[|&#x0005B;|&#x0226[45];)</mo><mo)(>&#x0(?:2212|00B1);)": (
        r'\1 form="prefix"\2'  # a sign
    ),
    r"<mi>(&#x003[9A][0-9A-F];)</mi>": r'<mi mathvariant="normal">\1</mi>',  # Greek capitals are upright
    r"<m[io]>([a-z]{2,})</m[io]>": r'<mo lspace="0.167em" rspace="0.167em">\1</mo>',  # functions
    r' rspace="0.167em"(>[a-z]+</mo><mo stretchy="false">&#x00028;)': r' rspace="0"\1',  # and their brackets
}
STYLED = re.compile(r'<(m[in]) mathvariant="(double-struck|bold|sans-serif)">(\w)</\1>')
FONT = Path(*find_spec("ziamath").submodule_search_locations) / "fonts" / "STIXTwoMath-Regular.ttf"
# Browsers draw identifiers of one letter in these.
ITALIC = {"h": "\u210e"} | {
    unicodedata.normalize("NFKC", letter): letter
    for letter in map(chr, [*range(0x1D434, 0x1D455), *range(0x1D456, 0x1D468), *range(0x1D6E2, 0x1D71C)])
}
used = set(string.printable + "√")
MATHML = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", MATHML)
RELATIONS = set("=<>≤≥≠≈∈∼→←")
LONG = 25


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as Arithmatex leaves them, between TeX's brackets, become MathML."""
    return ARITHMATEX.sub(lambda found: mathml(found[1], html.unescape(found[2])), content)


def mathml(tag: str, tex: str) -> str:
    tex, *numbers = re.split(r"\\tag\{(.*?)\}", tex)
    converted = convert(tex.replace("'", "′"), display="block" if tag == "div" else "inline")
    for pattern, correction in CORRECTIONS.items():
        converted = re.sub(pattern, correction, converted, flags=re.IGNORECASE)
    converted = STYLED.sub(lambda found: f"<{found[1]}>{styled(found[2], found[3])}</{found[1]}>", converted)
    used.update(html.unescape(converted))
    if tag == "span" and len(tex) > LONG:
        converted = "<wbr>".join(lines(ElementTree.fromstring(converted)))
    number = f'<span class="number">({numbers[0]})</span>' if numbers else ""
    return f'<{tag} class="arithmatex">{converted}{number}</{tag}>'


def lines(formula: ElementTree.Element) -> Iterator[str]:
    """A formula in pieces that end with a relation: browsers break lines between formulas only, TeX after relations."""
    row = formula[0]
    symbols = list(row)
    row[:] = []
    for symbol in symbols:
        row.append(symbol)
        if symbol.text in RELATIONS and symbol is not symbols[-1]:
            symbol.attrib |= {"form": "infix", "lspace": "0.278em", "rspace": "0.278em"}
            yield ElementTree.tostring(formula, encoding="unicode")
            row[:] = []
    yield ElementTree.tostring(formula, encoding="unicode")


def styled(style: str, letter: str) -> str:
    """The letter that Unicode has for it: browsers know no other styles than italic."""
    name = f"{style} {unicodedata.name(letter).removeprefix('LATIN ')}".upper().replace("LETTER ", "")
    try:
        return unicodedata.lookup(name)  # the older ones, like those for real and whole numbers
    except KeyError:
        return unicodedata.lookup(f"MATHEMATICAL {name}")


def on_post_build(config: MkDocsConfig) -> None:
    """STIX Two Math, cut to the letters in use."""
    text = "".join(used | {ITALIC[letter] for letter in used & ITALIC.keys()})
    font = subset.load_font(str(FONT), options := subset.Options(layout_features=["ssty"], flavor="woff"))
    make_roots_equally_wide(font)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=text)
    subsetter.subset(font)
    subset.save_font(font, str(Path(config.site_dir) / "mathematics.woff"), options)


def make_roots_equally_wide(font: TTFont) -> None:
    """Chromium leaves as much room to the right of a square root as the widest of its signs would have needed."""
    root = font.getBestCmap()[ord("√")]
    variants = font["MATH"].table.MathVariants
    signs = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(root)]
    names = [record.VariantGlyph for record in signs.MathGlyphVariantRecord]
    names += [part.glyph for part in signs.GlyphAssembly.PartRecords]
    width, _ = font["hmtx"][root]
    for name in set(names) - {root}:
        sign = font["glyf"][name]
        sign.coordinates.scale((width / font["hmtx"][name][0], 1))
        sign.recalcBounds(font["glyf"])
        font["hmtx"][name] = width, sign.xMin
