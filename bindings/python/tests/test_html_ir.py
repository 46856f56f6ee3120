"""Tests of the HTML of IR and of schedules, and a notebook that shows it."""

import functools
import importlib.util
import json
import os
import sys
from pathlib import Path

import anyfn
import pytest
from anyfn import _html_ir, te, tir
from html_page import Parsed
from matmul import line, matmul
from samples import ROOT, run_page

HERE = Path(__file__).name


@pytest.fixture
def func():
    return matmul()[0]


# ---- source


@pytest.mark.parametrize("colours", [True, False])
def test_source(func, monkeypatch, colours):
    if not colours:
        monkeypatch.setattr(_html_ir, "_lexer", None)
    elif importlib.util.find_spec("pygments") is None:
        pytest.skip("Pygments is not installed")
    module = tir.IRModule({"f": func})
    lowered = anyfn.lower(tir.default_schedule(func).func())
    statement, expression = func.body, tir.var("x") + 1
    for value in (func, module, lowered, statement, expression):
        parsed = Parsed(value._repr_html_())
        # Each line of the source is there once, in summaries or other lines.
        assert parsed.source.replace("\n", "").replace(" ", "") == str(value).replace("\n", "").replace(" ", "")
        folds = [one for one in parsed.root.all() if one.is_open]
        assert len(folds) == sum(text.endswith(":") for text in str(value).splitlines())
        assert not [one for one in folds if not one.text.strip().endswith(":")]
    words = Parsed(func._repr_html_()).classes.get("anyfn-word", 0)
    assert words > 3 if colours else words == 0


def test_nested_blocks_fold(func):
    [function] = Parsed(func._repr_html_()).root.children
    assert function.text.startswith("def matmul(A: Buffer(")
    [block] = function.children
    [loops] = block.children
    assert (block.text.strip(), loops.text.strip()) == ('with block("root"):', "for i0, i1, k in grid(64, 64, 64):")


def test_names_are_escaped():
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i], name="y")], name="f")
    func = func.with_attr("note", "<script>alert('&')</script>")
    parsed = Parsed(func._repr_html_())
    assert "<script>" in parsed.text and "script" not in parsed.classes


def test_long_source_is_cut():
    buffer = tir.decl_buffer((4,), name="b")
    many = tir.seq(*[buffer.store(float(i), 0) for i in range(5000)])
    html = many._repr_html_()
    assert len(html) < 300_000
    assert "… 3,000 more lines, which print shows" in Parsed(html).text
    assert len(anyfn.save_html(many, size=10_000)) < 20_000
    wide = functools.reduce(lambda a, i: a + buffer[i % 4], range(50_000), buffer[0])
    html = wide._repr_html_()
    assert len(html) < 300_000 and Parsed(html).source.startswith("b[0] + b[0] + b[1] + ") and "…" in html


def test_functions_in_containers(func):
    root = Parsed(anyfn.Map({"f": func, "x": tir.var("x") + 1})._repr_html_()).root.children[0]
    assert root["'f'"].value.startswith("tir.PrimFunc def matmul(A: Buffer(") and root["'x'"].value == "x + 1"


def test_a_tensor_is_a_tree():
    _, c = matmul()
    [root] = Parsed(c._repr_html_()).root.children
    assert root.text.startswith("te.Tensor Tensor(shape=[64, 64], dtype=float32, op.name=C)")
    assert root["shape"].text == "shape: Array (2) [64, 64]" and root.is_open
    assert "[Tensor(shape=[64, 64], dtype=float32, op.name=C)]" in Parsed(anyfn.Array([c])._repr_html_()).text
    assert root["op"]["name"].value == "'C'" and root["dtype"].value.endswith("'float32')")


# ---- schedules as HTML


def test_the_html_of_a_schedule(func):
    schedule = tir.Schedule(func)
    i, *_ = schedule.get_loops("C")
    number = line() - 1
    schedule.split(i, [None, 8])
    parsed = Parsed(schedule._repr_html_())
    assert parsed.text.count("def matmul(") == 1 and "2 steps" in parsed.text
    assert parsed.cells == [
        ["", "step", "applied by", "code"],
        ["0", 'l0, l1, l2 = sch.get_loops("C")', f"{HERE}:{number}", 'i, *_ = schedule.get_loops("C")'],
        ["1", "l3, l4 = sch.split(l0, [None, 8])", f"{HERE}:{number + 2}", "schedule.split(i, [None, 8])"],
    ]
    assert parsed.titles == [f"{__file__}:{number}", f"{__file__}:{number + 2}"]
    assert Parsed(schedule.trace()._repr_html_()).cells == parsed.cells
    assert "0 steps" in Parsed(tir.Schedule(func)._repr_html_()).text


def test_the_html_names_the_origin(func):
    schedule = tir.default_schedule(func)
    place = f"{HERE}:{line() - 1}"
    replayed = tir.Schedule.replay(func, schedule.trace())
    for shown, origin in ((schedule, "default schedule"), (replayed, "replay of default schedule")):
        assert {row[2] for row in Parsed(shown._repr_html_()).cells[1:]} == {f"{origin}, {place}"}


def test_a_trace_without_sources(func):
    schedule = tir.Schedule(func)
    schedule.get_loops("C")
    trace = anyfn.replace(schedule.trace(), steps=[anyfn.replace(schedule.trace().steps[0], source=None, code=None)])
    assert [row[1:] for row in Parsed(trace._repr_html_()).cells[1:]] == [['l0, l1, l2 = sch.get_loops("C")', "", ""]]


def test_a_hostile_trace(func):
    schedule = tir.Schedule(func)
    schedule.get_loops("C")
    schedule.get_loops("C")
    [step, *_] = schedule.trace().steps
    bad = "<script>alert(1)</script>\n\r\"'&\0" + "x" * 10**5
    step = anyfn.replace(step, source=bad, code=bad, origin=bad)
    trace = anyfn.load_json(anyfn.save_json(anyfn.replace(schedule.trace(), steps=[step, step])))
    html = trace._repr_html_()
    assert "<script" not in html and len(html) < 20_000
    assert "<script>alert(1)</script>" in Parsed(html).text
    # Each step remains one line, so the text remains a program.
    assert len(trace.text(True).splitlines()) == 2
    # A trace that cannot be printed is shown by the names of its steps.
    invalid = anyfn.replace(trace, steps=[anyfn.replace(step, results=-1, name="<odd>")])
    assert [row[1] for row in Parsed(invalid._repr_html_()).cells[1:]] == ["<odd>"]


def test_a_long_trace_is_cut(func):
    schedule = tir.Schedule(func)
    for _ in range(3000):
        schedule.get_loops("C")
    html = schedule._repr_html_()
    parsed = Parsed(html)
    assert len(html) < 600_000 and "3,000 steps" in parsed.text and "more steps" in parsed.text
    small = Parsed(anyfn.save_html(schedule, size=10_000), is_page=True)
    assert len(small.cells) < 100


# ---- notebooks


CELLS = [
    """import anyfn
from anyfn import te, tir
a = te.placeholder((64, 64), name="A")
func = te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1, name="B")])""",
    """schedule = tir.Schedule(func)
i, j = schedule.get_loops("B")
schedule.parallel(i)
schedule""",
    "anyfn.Array([1, [2]])",
    "anyfn.Shape([1])",
]


def check_cells(schedule, array, shape):
    """Checks the MIME bundles of the results of ``CELLS``."""
    assert [row[-2:] for row in Parsed(schedule["text/html"]).cells[1:]] == [
        ["In[2]:2", 'i, j = schedule.get_loops("B")'],
        ["In[2]:3", "schedule.parallel(i)"],
    ]
    assert Parsed(array["text/html"]).root.children[0].text == "Array (2) [1, [2]]"
    assert array["text/plain"] == "anyfn.Array([1, anyfn.Array([2])])" and set(shape) == {"text/plain"}


SHELL = """
import json
from IPython.core.interactiveshell import InteractiveShell
shell, results = InteractiveShell.instance(), []
shell.history_manager.enabled = False
shell.display_formatter.active_types = ["text/plain", "text/html"]
for cell in {cells!r}:
    done = shell.run_cell(cell, store_history=True, silent=False)
    done.raise_error()
    results.append(shell.display_formatter.format(done.result)[0])
print("results:" + json.dumps(results[1:]))
"""


def test_cells_in_ipython(run_python, tmp_path):
    pytest.importorskip("IPython", minversion="8.0", reason="IPython is not installed")
    out = run_python(SHELL.format(cells=CELLS), env={"IPYTHONDIR": str(tmp_path)})
    check_cells(*json.loads(out.rpartition("results:")[2]))


def test_a_notebook(tmp_path, monkeypatch):
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, *outputs = (cell.outputs for cell in notebook.cells)
    check_cells(*(output["data"] for [output] in outputs))


@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_page(tmp_path, monkeypatch):
    assert (ROOT / "docs/notebooks.md").exists()
    monkeypatch.chdir(tmp_path)
    run_page("docs/notebooks.md", {"__name__": "notebooks"}, 3)
    for path in tmp_path.glob("*.html"):
        Parsed(path.read_text(encoding="utf-8"), is_page=True)
