"""The site of docs/: the strict build passes, its links exist, and it loads nothing from another host."""

import re
import shutil
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT, finished

pytestmark = pytest.mark.skipif(
    not (find_spec("zensical") and find_spec("mkdocstrings")), reason="no site generator: pip install -e '.[docs]'"
)


def build(folder):
    return finished([sys.executable, "-m", "zensical", "build", "--strict"], folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("zensical.toml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    (folder / "evolve").symlink_to(ROOT / "evolve")
    done = build(folder)
    assert done.code == 0, done.out + done.err
    return folder / "site"


class Page(HTMLParser):
    """The links (href), loaded files and anchors of a page, and the names of its pictures and videos."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.names, self.anchors, self.text = [], [], [], set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag in ("img", "video"):
            self.names.append(given.get("alt") or given.get("aria-label"))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag != "link" or given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads += [given[name] for name in ("src", "href", "poster") if given.get(name)]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_page_is_there(site, pages):
    docs = ROOT / "docs"
    built = {path.relative_to(site).with_suffix("") for path in pages}
    assert built == {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")}


def test_links_exist(site, pages):
    for path, page in pages.items():
        for target in page.links + page.loads:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_relative_to(site), f"{path.name}: {target}"
            assert found.exists(), f"{path.name}: {target}"
            if parts.fragment and found in pages:
                assert unquote(parts.fragment) in pages[found].anchors | {"__top"}, f"{path.name}: {target}"


def test_each_picture_and_video_of_a_page_has_its_own_name(pages):
    for path, page in pages.items():
        assert None not in page.names, path.name
        assert len(set(page.names)) == len(page.names), path.name


def test_nothing_comes_from_another_host(site, pages):
    for path, page in pages.items():
        assert not [target for target in page.loads if re.match("(https?:)?//", target)], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text()), path.name


def test_code_leaves_no_markdown_behind(pages):
    """A snippet that was not found, a reference that was not resolved, a block that was not closed."""
    for path, page in pages.items():
        for remnant in ("--8<--", "\n::: ", "```"):
            assert remnant not in page.text, path.name


LINKS = "[a page](nowhere.md) and [a part](promise.md#nowhere)"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        pytest.param(LINKS, ["page does not exist", "anchor does not exist"], id="links"),
        pytest.param("::: evolve.api.nothing", ["Could not collect"], id="code", marks=pytest.mark.slow),
        pytest.param('--8<-- "nowhere.md"', ["nowhere.md' could not be found"], id="snippet", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_page_is_refused(tmp_path, text, messages):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    (tmp_path / "docs" / "promise.md").write_text("# A page\n")
    (tmp_path / "evolve").symlink_to(ROOT / "evolve")
    settings = (ROOT / "zensical.toml").read_text().replace('["assets/extra.css"]', "[]")
    settings = re.sub(r"nav = \[.*?\n\]\n", 'nav = ["index.md", "promise.md"]\n', settings, flags=re.S)
    (tmp_path / "zensical.toml").write_text(settings)
    done = build(tmp_path)
    assert done.code != 0
    assert all(message in done.err for message in messages), done.err
