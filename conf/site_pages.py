"""What MkDocs does not do by itself: README is the first page, and links to other files lead to the repository."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FIRST_PAGE = "index.md"
_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README as the first page."""
    files.append(File.generated(config, FIRST_PAGE, content=(ROOT / "README.md").read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of README are relative to the repository, those of other pages to docs/."""
    folder = ROOT if page.file.src_uri == FIRST_PAGE else ROOT / "docs"

    def link(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match[1].partition("#")
        target = (folder / path).resolve()
        if target == ROOT / "README.md":
            return f"]({FIRST_PAGE}{hash_sign}{anchor})"
        if target.parent in (ROOT / "docs", ROOT / "docs" / "images") and target.suffix in (".md", ".png"):
            return f"]({target.relative_to(ROOT / 'docs')}{hash_sign}{anchor})"
        return f"]({config.repo_url.rstrip('/')}/blob/main/{target.relative_to(ROOT)}{hash_sign}{anchor})"

    return _LINK.sub(link, markdown)


def slug(title: str, separator: str) -> str:
    """The anchor of a heading, as GitHub has it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)
