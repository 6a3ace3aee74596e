"""Pages are written for the repository: links lead to files, and names are code. Here they become links of the site."""

import posixpath
import re
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Pages of the site that are files outside docs/.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")
FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^::: (\S+)", re.MULTILINE)
# HTML in which a name or a path is no link of its own.
CLOSED = re.compile(r"(<(a|h\d|pre|autoref|nav)\b.*?</\2>)", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages outside docs/, and a page for every other file that a page links to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for file in list(files.documentation_pages()):
        for target in LINK.findall(FENCED.sub("", file.content_string)):
            linked = site_path(file.src_uri, target)
            path = linked[len("files/") : -len(".md")]
            if linked.startswith("files/") and linked not in files.src_uris and (ROOT / path).is_file():
                files.append(File.generated(config, linked, content=listing(path)))
    return files


def site_path(page: str, target: str) -> str:
    """Where on the site the file is that a page of the site, as a file of the repository, links to."""
    here = SOURCES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if path.startswith("docs/"):
        return path[len("docs/") :]
    return PAGES.get(path, f"files/{path}.md")


def listing(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    language = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".toml": "toml"}.get(Path(path).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\nhide: [navigation]\n---\n\n# {path}\n\n`````{language}\n{text}`````\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository become links within the site; the reference begins with a list of its names."""
    uri = page.file.src_uri
    if uri == "reference/index.md":
        markdown += contents_of_reference(markdown, files)
    if uri.startswith("files/"):
        return markdown

    def moved(link: re.Match[str]) -> str:
        return posixpath.relpath(site_path(uri, link[0]), posixpath.dirname(uri) or ".")

    parts = re.split(r"(^`{3,}.*?^`{3,}$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def contents_of_reference(index: str, files: Files) -> str:
    """The names that each page shows, with the first lines of their docstrings."""
    extensions = griffe.load_extensions(str(Path(__file__).with_name("public_names.py")))
    package = griffe.load("dpgep", search_paths=[ROOT / "python"], extensions=extensions)
    contents = ""
    for target in LINK.findall(index):
        if page := files.get_file_from_path(f"reference/{target}"):
            contents += f"\n## {page.content_string.splitlines()[0][2:]}\n\n"
            for name in DIRECTIVE.findall(page.content_string):
                docstring = package[name.removeprefix("dpgep.")].docstring.value
                contents += f"* `{name}`: {docstring.splitlines()[0]}\n"
    return contents


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Names of the package lead to the reference, and the reference to the pages that docstrings name."""
    pieces = CLOSED.split(content)
    pieces[::3] = [with_links(piece, page, files) for piece in pieces[::3]]
    del pieces[2::3]  # the names of the tags
    return "".join(pieces)


def with_links(content: str, page: Page, files: Files) -> str:
    content = re.sub(r"(?<=<code>)[^<]*`[^<]*(?=</code>)", lambda code: code[0].replace("`", ""), content)  # types
    content = re.sub(r"–\s*(?=<div class=\"doc-md-description\">\s*</div>)", "", content)  # said by the name alone
    content = re.sub(r"<code>((?:dpgep\.|[A-Z])[\w.]*)(\(\))?</code>", name_link, content)

    def page_link(path: re.Match[str]) -> str:  # as docstrings and the changelog name pages
        linked = files.get_file_from_path(path[1])
        return f'<a href="{linked.url_relative_to(page.file)}">{path[0]}</a>' if linked else path[0]

    return re.sub(r"\bdocs/([\w/-]+\.md)\b", page_link, content)


def name_link(found: re.Match[str]) -> str:
    name, call = found[1], found[2] or ""
    identifier = name if name.startswith("dpgep.") else f"dpgep.{name}"
    shown = name.rpartition(".")[2] if name.startswith("dpgep.methods.") else name
    return f'<autoref optional identifier="{identifier}"><code>{shown}{call}</code></autoref>'
