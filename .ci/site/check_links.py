"""`check_links.py FOLDER`, a built site: every link and anchor leads somewhere, and nothing is loaded from outside."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if "href" in found:
            (self.links if tag == "a" else self.loads).append(found["href"])
        if "src" in found:
            self.loads.append(found["src"])


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    pages = {page: Links(page) for page in folder.rglob("*.html")}
    problems, outside = [], set()
    for page, found in pages.items():
        for link in found.links + found.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside.add(link)
                if link in found.loads:
                    problems.append(f"{page.relative_to(folder)} loads {link}")
                continue
            path = unquote(parts.path)
            base = folder if path.startswith("/") else page.parent  # on the page of what is not found alone
            target = (base / path.lstrip("/")).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                problems.append(f"{page.relative_to(folder)} links to {link}")
    print(*sorted(outside), sep="\n")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(pages)} pages, {sum(len(each.links) for each in pages.values())} links, {len(problems)} problems")
    if problems or not pages:
        sys.exit(1)


main()
