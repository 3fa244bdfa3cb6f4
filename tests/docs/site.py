#!/usr/bin/env python3
"""Checks a site made by tools/packaging/site: internal links lead to existing pages and anchors, nothing is fetched from other sites, and the search index has the expected words.

    tests/docs/site.py SITE
"""
import html.parser
import json
import pathlib
import re
import sys
import urllib.parse

# Searched words, stemmed as in the index, and the page that must contain each; one of each kind of page.
SEARCHED = {"label_smooth": "man-trainer.1", "lifelin": "man-loaderd.1", "state_dict": "reference", "feed_open": "example-c", "checksum": "format"}
# Allowed prefixes of names in the Python reference.
FIRST = {"loaderd.Feed", "loaderd.DataLoader"}
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places.update(found[name] for name in ("id", "name") if found.get(name))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get(FETCHED.get(tag)) and found.get("rel") not in ("canonical", "index", "search", "next", "prev"):
            self.fetched.append(found[FETCHED[tag]])


def faults(site, pages):
    for name, page in pages.items():
        for target in page.links + page.fetched:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme in ("http", "https", "mailto"):
                if target in page.fetched:
                    yield f"{name} fetches {target}"
                continue
            path = (site / name).parent / urllib.parse.unquote(parts.path) if parts.path else site / name
            if not path.is_file():
                yield f"{name}: the link to {target} leads nowhere"
            elif parts.fragment and path.suffix == ".html":
                to = pages[str(path.resolve().relative_to(site))]
                if urllib.parse.unquote(parts.fragment) not in to.places and parts.fragment != "":
                    yield f"{name}: there is no place {target}"
    described = re.findall(r'<dt class="sig sig-object py" id="([^"]+)"', (site / "reference.html").read_text())
    if described[:1] == [] or described[0] not in FIRST:
        yield f"reference.html begins with {described[:1]}, not with one of {', '.join(sorted(FIRST))}"
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for word, page in SEARCHED.items():
        found = [index["terms"].get(term) for term in index["terms"] if term.startswith(word)]
        documents = {index["docnames"][i] for where in found for i in (where if isinstance(where, list) else [where])}
        if page not in documents:
            yield f"search does not find {word} on {page}"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {str(path.relative_to(site)): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = sorted(set(faults(site, pages)))
    print(*found, f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(found)} faults", sep="\n")
    sys.exit(bool(found) or len(pages) < 20)


if __name__ == "__main__":
    main()
