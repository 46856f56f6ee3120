"""Parser of the HTML that notebooks show, for tests."""

from html.parser import HTMLParser

# Tags and attributes that the HTML of objects may contain: nothing that runs, loads or leaves the page.
TAGS = {"code", "details", "div", "li", "pre", "span", "style", "summary", "table", "td", "th", "tr", "ul"}
ATTRIBUTES = {"class", "colspan", "open", "title"}
PAGE_TAGS = {"html", "meta", "title", "body"}
NO_END = {"meta", "html"}


class Line:
    """A line of a tree: the text of a summary or list item, and the lines inside of it."""

    def __init__(self, depth):
        self.depth, self.text, self.children, self.is_open = depth, "", [], None

    def __getitem__(self, label):
        """Returns the only child whose text begins with a label and a colon."""
        [child] = [child for child in self.children if child.text.startswith(f"{label}: ")]
        return child

    @property
    def value(self):
        return self.text.partition(": ")[2]

    def all(self):
        yield self
        for child in self.children:
            yield from child.all()


class Parsed(HTMLParser):
    """HTML whose tags must be balanced and harmless.

    ``text`` is the visible text, ``source`` the part of it that is preformatted, ``root`` the tree of the lines that fold,
    ``cells`` the rows of tables, ``titles`` the texts of tooltips, and ``classes`` the number of elements by class.
    """

    def __init__(self, html, is_page=False):
        super().__init__(convert_charrefs=True)
        self.stack, self.text, self.source, self.cells, self.titles, self.classes = [], "", "", [], [], {}
        self.root = Line(0)
        self.lines = [self.root]
        self.allowed = TAGS | (PAGE_TAGS if is_page else set())
        html.encode("utf-8")
        self.feed(html)
        self.close()
        assert not self.stack, f"elements without an end: {self.stack}"

    def handle_starttag(self, tag, attrs):
        assert tag in self.allowed, f"<{tag}>"
        names = dict(attrs)
        if tag not in PAGE_TAGS:
            assert set(names) <= ATTRIBUTES, f"<{tag}> has the attributes {sorted(names)}"
        for name in (names.get("class") or "").split():
            self.classes[name] = self.classes.get(name, 0) + 1
        if tag in NO_END:
            return
        self.stack.append(tag)
        if tag == "li" or tag == "details" and (len(self.stack) < 2 or self.stack[-2] != "li"):
            line = Line(len(self.lines))
            self.lines[-1].children.append(line)
            self.lines.append(line)
        if tag == "details":
            self.lines[-1].is_open = "open" in names
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if "title" in names:
            self.titles.append(names["title"])

    def handle_endtag(self, tag):
        if tag in NO_END:
            return
        assert self.stack.pop() == tag, f"</{tag}>"
        if tag == "li" or tag == "details" and (not self.stack or self.stack[-1] != "li"):
            self.lines.pop()

    def handle_data(self, data):
        if "style" in self.stack or "title" in self.stack:
            for outside in ("url(", "@import", "http"):
                assert outside not in data
            return
        self.text += data
        if "pre" in self.stack:
            self.source += data
        if "tr" in self.stack and self.cells and self.cells[-1]:
            self.cells[-1][-1] += data
        # The text of a line is that of its summary, or of the item itself.
        if "summary" in self.stack or "pre" not in self.stack:
            self.lines[-1].text += data


def tree(html):
    """Returns the root of the tree that an object is shown as."""
    [root] = Parsed(html).root.children
    return root
