"""Tests of the HTML that notebooks show for objects and containers: content, limits, escaping, sharing."""

import threading
import time
from typing import Any, Optional

import anyfn
import anyfn.testing
import anyfn.types
import numpy as np
import pytest
from html_page import Parsed, tree


@anyfn.object("html.Node")
class Node(anyfn.Object):
    name: str
    children: list = anyfn.field(default_factory=list)
    extra: Any = None
    secret: str = anyfn.field(default="hidden", repr=False)


@anyfn.object("html.Celsius")
class Celsius(anyfn.Object):
    degrees: float

    def __ffi_repr__(self, show):
        if self.degrees < -300:
            raise ValueError("colder than cold")
        return show(self.degrees) + " <b>°C</b>"


@anyfn.object("html.Password")
class Password(anyfn.Object):
    text: str

    def __repr__(self):
        return "Password(***)"


@anyfn.object("html.Empty")
class Empty(anyfn.Object):
    pass


def shown(value):
    return tree(value._repr_html_())


class Secrets(anyfn.List):
    def __repr__(self):
        return "Secrets(***)"


def test_fields_and_elements():
    root = shown(Node("top", [Node("left"), 2, None], {"x": [1.5], 7: b"\0"}))
    assert root.is_open and root.text.startswith("html.Node ")
    assert root["name"].value == "'top'" and root["name"].is_open is None
    assert root["children"].is_open is False
    assert root["children"].text == "children: List (3) [html.Node(name='left', children=[], extra=None), 2, None]"
    assert [child.text for child in root["children"]["0"].children] == ["name: 'left'", "children: List (0)", "extra: None"]
    assert (root["children"]["1"].value, root["children"]["2"].value) == ("2", "None")
    assert root["extra"].value == "Map (2) {'x': [1.5], 7: b'\\x00'}"
    assert root["extra"]["'x'"]["0"].value == "1.5" and root["extra"]["7"].value == "b'\\x00'"


def test_a_field_without_repr_is_not_shown():
    html = Node("x", secret="topsecret")._repr_html_()
    assert "secret" not in html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (anyfn.Array([1, "a"]), "Array (2) [1, 'a']"),
        (anyfn.List([True, [None]]), "List (2) [True, [None]]"),
        (anyfn.Map({"k": 1.5}), "Map (1) {'k': 1.5}"),
        (anyfn.Dict({2: "v"}), "Dict (1) {2: 'v'}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_small_container_is_one_line_that_unfolds(value, text):
    root = shown(value)
    assert (root.text, root.is_open, len(root.children)) == (text, False, len(value))


def test_empty_values():
    for value, text in ((anyfn.Array(), "Array (0)"), (anyfn.Dict(), "Dict (0)")):
        parsed = Parsed(value._repr_html_())
        assert parsed.text == text and not parsed.root.children
    assert Empty()._repr_html_() is None


@pytest.mark.parametrize(
    "value",
    [
        anyfn.Shape([1, 2]),
        anyfn.testing.echo,
        anyfn.zeros((2, 2), "float32"),
        Celsius(1.0),
        Password("x"),
        Secrets(["x"]),
        anyfn.system_lib(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_are_only_text_have_no_html(value):
    assert value._repr_html_() is None
    assert repr(value) in Parsed(anyfn.save_html(value), is_page=True).text


def test_hooks_and_reprs_are_respected():
    values = anyfn.Array([Celsius(21.5), Password("topsecret"), Celsius(-400.0)])
    html = values._repr_html_()
    assert "topsecret" not in html and "degrees" not in html
    root = tree(html)
    assert root["0"].value == "21.5 <b>°C</b>" and root["1"].value == "Password(***)"
    assert root["2"].value == "<html.Celsius: its __ffi_repr__ raised ValueError>"
    assert "[21.5 <b>°C</b>, Password(***), <html.Celsius" in root.text


class Raises:
    def __repr__(self):
        raise KeyError("x")


class Long:
    def __repr__(self):
        return "first\n" + "y" * 10**6


def test_python_objects():
    root = shown(anyfn.Array([Raises(), Long(), {"plain": 1}.keys(), 10**30]))
    assert root["0"].value == "<Raises: its repr raised KeyError>"
    assert root["1"].text == "1: first…"
    assert root["3"].value == str(10**30)
    assert len(anyfn.Array([Long()])._repr_html_()) < 20_000


def test_a_field_that_cannot_be_read():
    class Broken(Node):
        @property
        def extra(self):
            raise LookupError("no <value>")

    assert shown(Broken("x"))["extra"].value == "<LookupError: no <value>>"


def test_tensors_show_few_elements():
    small, large = anyfn.tensor(np.arange(4, dtype="float32")), anyfn.zeros((100, 100), "float32")
    html = anyfn.Array([small, large])._repr_html_()
    root = tree(html)
    assert root["1"].value == "Tensor float32[100, 100] on cpu:0"
    assert repr(small) in Parsed(html).text
    assert len(html) < 6000


def test_everything_is_escaped():
    bad = "<script>alert(1)</script>&amp;\"'"
    node = Node(bad, [bad.encode(), Celsius(1.0)], {bad: {bad: bad}, Node(bad): bad})
    html = node._repr_html_()
    # The parser refuses other elements and attributes.
    parsed = Parsed(html)
    assert "<script" not in html and "<b>" not in html
    assert repr(bad) in parsed.text
    assert Parsed(anyfn.save_html(node), is_page=True).text.strip() == parsed.text.strip()


def test_characters_that_cannot_be_displayed():
    class Odd:
        def __repr__(self):
            return "\0 \x1b[31m \ud800 \u202e \u2028 é"

    assert shown(anyfn.Array([Odd()]))["0"].value == r"\x00 \x1b[31m \ud800 \u202e \u2028 é"


def test_a_shared_object_is_expanded_once_and_named():
    leaf, other = Node("leaf"), Node("leaf")
    root = shown(Node("top", [Node("a", [leaf]), Node("b", [leaf, other])], leaf))
    # The occurrence that is nearest to the root is expanded.
    assert root["extra"].text.startswith("extra: html.Node #1 (name='leaf'") and root["extra"].children
    for line in (root["children"]["0"]["children"]["0"], root["children"]["1"]["children"]["0"]):
        assert line.text == "0: html.Node → #1" and not line.children
    assert root["children"]["1"]["children"]["1"]["name"].value == "'leaf'"


def test_cycles():
    top = Node("top")
    top.children.append(Node("below", extra=top))
    root = shown(top)
    assert root.text.startswith("html.Node #1 ") and root["children"]["0"]["extra"].value == "html.Node → #1"
    own, mutual = anyfn.List(), anyfn.Dict()
    own.append(own)
    mutual["list"] = own
    own.append(mutual)
    root = shown(own)
    assert root["0"].value == "List (2) → #1" and root["1"]["'list'"].value == "List (2) → #1"


@pytest.mark.parametrize("make", [anyfn.Array, anyfn.List, anyfn.Map, anyfn.Dict], ids=lambda make: make.__name__)
def test_a_million_elements(make):
    count = 10**6
    value = make({i: i for i in range(count)} if make in (anyfn.Map, anyfn.Dict) else range(count))
    begin = time.process_time()
    html = value._repr_html_()
    assert time.process_time() - begin < 0.5
    root = tree(html)
    assert len(html) < 20_000 and root.text.startswith(f"{make.__name__} (1,000,000) ") and root.is_open
    assert len(root.children) == 101 and root.children[-1].text == "… 999,900 more"
    assert "anyfn.save_html" in Parsed(html).text


def test_a_graph_with_exponentially_many_paths():
    node = Node("0")
    for i in range(1, 60):
        node = Node(str(i), [node, node])
    html = node._repr_html_()
    assert len(html) < 20_000
    assert html.count("→ #") > 5


def test_a_chain_is_cut_at_the_depth():
    node = None
    for i in range(5000):
        node = Node(str(i), extra=node)
    parsed = Parsed(node._repr_html_())
    assert max(line.depth for line in parsed.root.all()) == 21
    assert "(3 not shown)" in parsed.text
    deep = Parsed(anyfn.save_html(node, depth=150), is_page=True)
    assert max(line.depth for line in deep.root.all()) == 151


def test_the_size_is_bounded_and_all_fields_of_the_root_are_shown():
    wide = [Node(str(i), [Node(str(j)) for j in range(100)]) for i in range(200)]
    node = Node("top", [wide, wide], extra="the last")
    html = node._repr_html_()
    assert 200_000 < len(html) < 320_000
    root = tree(html)
    assert root["extra"].value == "'the last'"
    # Level by level: the elements of the list are shown, those further below are not.
    assert len(root["children"]["0"].children) == 101
    small = anyfn.save_html(node, size=5000)
    assert len(small) < 15_000 and "'the last'" in Parsed(small, is_page=True).text


def test_long_strings():
    html = anyfn.Array(["x" * 10**6, b"y" * 10**6, "a\nb"])._repr_html_()
    root = tree(html)
    assert root["0"].value == f"'{'x' * 300}'… (1,000,000 characters)"
    assert root["1"].value.endswith("(1,000,000 bytes)") and root["2"].value == "'a\\nb'"
    assert len(html) < 10_000


def test_containers_that_change_meanwhile():
    values, stop = anyfn.List(range(50)), False

    def change():
        while not stop:
            values.append(1)
            del values[10:]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            Parsed(values._repr_html_())
    finally:
        stop = True
        thread.join()


def test_html_of_a_users_class():
    class Custom(Node):
        def _repr_html_(self) -> Optional[str]:
            return "<div>custom</div>"

    assert Custom("x")._repr_html_() == "<div>custom</div>"
    assert "<div>custom</div>" in anyfn.save_html(Custom("x"))


def test_native_types():
    root = shown(anyfn.types.testing.Account("Ada"))
    assert root.text.startswith("testing.Account") and root["owner"].value == "'Ada'"


# ---- pages


def test_save_html(tmp_path):
    path = tmp_path / "graph.html"
    assert anyfn.save_html({"a": [1, (2, 3)]}, path) is None
    page = path.read_text(encoding="utf-8")
    assert page == anyfn.save_html({"a": [1, (2, 3)]}) and page.startswith("<!DOCTYPE html>")
    assert "Map (1) {'a': [1, [2, 3]]}" in Parsed(page, is_page=True).text
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.html"]
    assert Parsed(anyfn.save_html("<script>"), is_page=True).text.strip() == "'<script>'"
    rows = Parsed(anyfn.save_html(list(range(1000)), children=500), is_page=True).root.children[0].children
    assert len(rows) == 501
    with anyfn.profile() as profile:
        pass
    assert "<iframe" in anyfn.save_html(profile)


@pytest.mark.parametrize("limit", [{"depth": 0}, {"children": -1}, {"size": 1.5}, {"depth": "deep"}])
def test_limits_are_checked(limit):
    [(name, value)] = limit.items()
    with pytest.raises(ValueError, match=f"^expected a positive int as {name}, got {value!r}$"):
        anyfn.save_html([1], **limit)
    with pytest.raises(ValueError, match="^expected at most 150 as depth, got 151; show a part of the value instead$"):
        anyfn.save_html([1], depth=151)


# ---- plain Python and IPython


def test_plain_python_imports_nothing(run_python):
    run_python("""
import sys
before = set(sys.modules)
import anyfn
print(anyfn.Array([1]), repr(anyfn.Dict({1: [2]})))
for name in ("html", "IPython", "pygments", "linecache", "anyfn._html", "anyfn._html_ir"):
    assert name in before or name not in sys.modules, name
anyfn.Array([1])._repr_html_()
assert "anyfn._html_ir" not in sys.modules and "pygments" not in sys.modules
""")


class Printer:
    """The part of IPython's printer that the package uses."""

    def __init__(self):
        self.lines = [""]

    def group(self):
        import contextlib

        return contextlib.nullcontext()

    def break_(self):
        self.lines.append("")

    def text(self, text):
        self.lines[-1] += text


def plain(value):
    printer = Printer()
    value._repr_pretty_(printer, False)
    return "\n".join(printer.lines)


def test_long_plain_text_is_cut():
    assert plain(anyfn.Array([1])) == "anyfn.Array([1])" and plain(Node("x")) == repr(Node("x"))
    text = plain(anyfn.List(range(10**6)))
    assert len(text) < 101_000 and text.endswith(" characters; print(repr(x)) shows all of them)")


def test_formatters_of_ipython():
    pytest.importorskip("IPython", reason="IPython is not installed")
    from IPython.core.formatters import DisplayFormatter

    def formats(value):
        formatter = DisplayFormatter()
        formatter.active_types = ["text/plain", "text/html"]
        return formatter.format(value)[0]

    for value in (Node("x", [1]), anyfn.Array([1]), anyfn.Map({1: 2})):
        data = formats(value)
        assert data == {"text/plain": repr(value), "text/html": value._repr_html_()}
    for value in (Celsius(1.0), anyfn.Shape([1]), anyfn.testing.echo, anyfn.zeros((2, 2))):
        assert formats(value) == {"text/plain": repr(value)}
    assert len(formats(anyfn.Array(range(10**6)))["text/plain"]) < 101_000
