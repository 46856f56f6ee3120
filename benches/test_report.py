"""Tests the benchmark report with sample data, and checks that the committed report matches the committed data."""

import json
import shutil
import xml.etree.ElementTree
from pathlib import Path

import bounds
import chart
import report
import rows

HERE = Path(__file__).resolve().parent
SVG = "{http://www.w3.org/2000/svg}"


def sample(**sections):
    calls, errors = rows.PYTHON_SECTIONS[0], "Errors in Python"
    return {
        "date": "2026-01-02", "commit": "abc1234", "machine": "x86_64", "python": "3.11.7", "rounds": 5,
        "versions": {"peer": "0.1.15", "nanobind": "3.1.0", "pyo3": "0.30.1"},
        "sections": {
            calls: {
                "call_0": {"anyfn": 10.0, "peer": 100.0},
                "library_call_0": {"anyfn": 20.0, "peer": 100.0, "nanobind": 12.0, "pyo3": 16.0},
                "library_call_3_ints": {"anyfn": 90.0, "peer": 100.0},
                "library_call_3_numpy": {"anyfn": 50.0},
            },
            errors: {"native_error_caught": {"anyfn": 1200.0, "peer": 30000.0}},
            "Threads, async, import": {"import_over_numpy": {"anyfn": 4.5e6, "peer": 57e6}},
        },
        "instructions": {"call_3_ints": {"anyfn": 600, "peer": 1900}},
        "missing": {"pyo3": "cargo: no network"},
    }  # fmt: skip


def line_of(text, name):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_budget_is_met_or_missed_by_the_ratio():
    data = sample()
    del data["instructions"]
    text = report.markdown(data)
    assert line_of(text, "library_call_0") == ["library_call_0", "20.0", "100.0", "0.20", "0.40", "met", "12.0", "16.0"]
    assert line_of(text, "library_call_3_ints")[3:6] == ["0.90", "0.40", "**missed**"]
    # Without the peer there is no ratio and no verdict.
    assert line_of(text, "library_call_3_numpy")[2:6] == ["", "", "0.25", ""]
    assert line_of(text, "library_call_1_int")[1:6] == ["", "", "", "", "missing"]
    assert line_of(text, "import_over_numpy")[4:6] == ["15 ms", "met"]


def test_what_bounds_a_row_is_stated_where_it_misses_its_budget():
    budgets = {row.name for section in rows.SECTIONS.values() for row in section if row.budget is not None or row.limit_ns is not None}
    assert set(bounds.BOUNDS) <= budgets
    data, bound = sample(), bounds.BOUNDS["library_call_0"]
    assert f"- `library_call_3_ints`: {bound}" in report.markdown(data).splitlines()
    data["sections"][rows.PYTHON_SECTIONS[0]]["library_call_0"]["anyfn"] = 50.0
    assert f"- `library_call_0`, `library_call_3_ints`: {bound}" in report.markdown(data).splitlines()
    del data["sections"][rows.PYTHON_SECTIONS[0]]
    assert "What bounds" not in report.markdown(data)


def test_the_limit_of_a_duration_is_absolute():
    data = sample()
    data["sections"]["Threads, async, import"]["import_over_numpy"]["anyfn"] = 16e6
    assert line_of(report.markdown(data), "import_over_numpy")[4:6] == ["15 ms", "**missed**"]


def test_kernels_are_compared_with_numpy_or_with_one_core():
    data = sample()
    data["sections"][rows.KERNELS] = {
        "matmul_f32_1024": {"anyfn": 15e6, "numpy": 16e6, "peer": 17e6},
        "matmul_f32_1024_2_cores": {"anyfn": 9e6, "numpy": 8.5e6},
        "add_16m": {"anyfn": 12e6},
    }
    text = report.markdown(data)
    expected = ["matmul_f32_1024", "15,000", "16,000", "17,000", "0.94", "NumPy", "1.00", "met"]
    assert line_of(text, "matmul_f32_1024") == expected
    assert line_of(text, "matmul_f32_1024_2_cores")[4:] == ["0.60", "matmul_f32_1024", "0.56", "**missed**"]
    assert line_of(text, "add_16m")[4:] == ["", "NumPy", "1.00", ""]
    assert line_of(text, "softmax_4096_1024")[7] == "missing"


def test_sessions_are_compared_with_plain_sockets_that_block_or_poll():
    data = sample()
    data["sections"][rows.SESSIONS] = {
        "session_call_0": {"anyfn": 7500.0, "raw": 12800.0, "polled": 6400.0, "peer": 8400.0},
        "session_up_64mib": {"anyfn": 90e6, "raw": 40e6},
        "session_connect_key": {"anyfn": 3e6, "raw": 80e3},
    }
    text = report.markdown(data)
    assert line_of(text, "session_call_0") == ["session_call_0", "7.5", "12.8", "6.4", "8.4", "1.17", "polling", "1.20", "met"]
    expected = ["session_up_64mib", "90,000", "40,000", "", "", "2.25", "raw", "2.00", "**missed**"]
    assert line_of(text, "session_up_64mib") == expected
    assert line_of(text, "session_connect_key")[5:] == ["37.50 ≠", "raw", "", ""]


def test_rows_whose_sides_do_different_work_say_so_and_name_their_twins():
    text = report.markdown(sample())
    assert line_of(text, "call_0")[3:6] == ["0.10 ≠", "", ""]
    assert f"≠ {rows.UNLIKE['lock']}" in text
    assert "- `call_0`; like for like: `library_call_0`, `library_call_0_gil_kept`" in text


def test_budgets_are_on_rows_whose_sides_do_the_same_work():
    every = [row for section in rows.SECTIONS.values() for row in section]
    names = {row.name for row in every}
    assert {row.unlike for row in every if row.unlike} == set(rows.UNLIKE)
    for row in every:
        assert not row.unlike or (row.budget is None and row.limit_ns is None), row.name
        assert bool(row.unlike) or not row.twins, row.name
        for twin in filter(None, row.twins.split(", ")):
            assert twin in names and not next(r for r in every if r.name == twin).unlike, (row.name, twin)


def test_two_threads_are_compared_with_the_peer_or_with_one_thread():
    data = sample()
    data["sections"][rows.THREADS] = {
        "two_threads_registry_get": {"anyfn": 8.0, "peer": 90.0},
        "one_thread_own_function": {"anyfn": 5.0, "peer": 2.0},
        "two_threads_own_function": {"anyfn": 5.25, "peer": 2.0},
    }
    text = report.markdown(data)
    assert line_of(text, "two_threads_registry_get")[3:] == ["0.09", "peer", "1.00", "met"]
    assert line_of(text, "two_threads_own_function")[3:] == ["1.05", "one_thread_own_function", "1.11", "met"]


def test_memory_is_in_bytes():
    data = sample()
    data["sections"][rows.MEMORY] = {"memory_object": {"anyfn": 96.0, "peer": 144.0}}
    text = report.markdown(data)
    assert "| row | anyfn bytes | peer bytes | ratio | budget |  |" in text
    assert line_of(text, "memory_object") == ["memory_object", "96.0", "144.0", "0.67", "1.00", "met"]


def test_compile_times_are_in_milliseconds_and_sizes_in_bytes():
    data = sample()
    data["sections"][rows.CPP_COMPILE] = {"cpp_compile_empty": {"anyfn": 250e6, "peer": 1000e6}}
    data["sections"][rows.CPP_SIZE] = {"cpp_size_include": {"anyfn": 0.0, "peer": 1766.0}}
    text = report.markdown(data)
    assert "| row | anyfn ms | peer ms | ratio | budget |  |" in text
    assert line_of(text, "cpp_compile_empty") == ["cpp_compile_empty", "250.0", "1,000", "0.25", "0.50", "met"]
    assert line_of(text, "cpp_size_include") == ["cpp_size_include", "0.0", "1,766", "0.00", "1.00", "met"]


def test_the_program_of_a_row_is_known():
    import run

    for section, found in rows.SECTIONS.items():
        assert {row.name for row in found} <= run.names_of(run.part_of(section))
        assert run.part_of(section) in run.PARTS


def test_copies_are_compared_with_numpy():
    data = sample()
    data["sections"][rows.COPIES] = {"copy_reversed_f32": {"anyfn": 500e3, "numpy": 400e3}}
    assert line_of(report.markdown(data), "copy_reversed_f32")[1:] == ["500.0", "400.0", "1.25", "1.00", "**missed**"]


def test_the_page_opens_with_how_to_read_it_and_the_lines_that_matter():
    text = report.markdown(sample())
    parts = ["## How to read", "## What is like with like", "## Ten lines that matter", "![", "## Python calls"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    line = "| Python calls a C function with 3 ints (`library_call_3_ints`) | 90 ns | tvm_ffi: 100 ns | 0.90 |"
    assert line in text.splitlines()
    # Of the budgets whose rows were measured: `library_call_0` and the import are met.
    assert "2 of 3 budgets are met. Missed: `library_call_3_ints` (0.90 of 0.40)." in text
    assert len(report.LINES) == 10
    for section, name, _ in report.LINES:
        (row,) = [row for row in rows.SECTIONS[section] if row.name == name]
        assert not row.unlike


def test_what_is_not_measured_is_said():
    assert "- pyo3: cargo: no network" in report.markdown(sample())
    assert "## Not measured" not in report.markdown(dict(sample(), missing={}))


def test_the_chart_has_a_bar_for_each_figure_and_longer_ones_for_more():
    root = xml.etree.ElementTree.fromstring(chart.chart(sample()))
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    # The row of the import in the sample data has no label.
    assert len(bars) == 2 + 4 + 2 + 1 + 2
    width = {bar.find(f"{SVG}title").text: float(bar.get("width")) for bar in bars}
    assert width["anyfn: 10 ns"] < width["anyfn: 20 ns"] < width["anyfn: 90 ns"] < width["anyfn: 1.2 µs"] < width["tvm_ffi: 30.0 µs"]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "C library, 3 NumPy arrays" in texts and "PyO3" in texts
    right = float(root.get("width"))
    assert all(float(text.get("x")) < right for text in root.iter(f"{SVG}text"))


def test_the_chart_has_panels_for_calls_kernels_and_sessions():
    data = sample()
    data["sections"][rows.KERNELS] = {"add_16m": {"anyfn": 12e6, "numpy": 13e6, "peer": 14e6}}
    data["sections"][rows.SESSIONS] = {"session_call_0": {"anyfn": 7500.0, "raw": 12800.0, "polled": 6400.0}}
    root = xml.etree.ElementTree.fromstring(chart.chart(data))
    titles = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "title"]
    assert [title.split()[0] for title in titles] == ["Costs", "Kernels,", "Sessions"]
    bars = {bar.find(f"{SVG}title").text: bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None}
    tops = [float(bars[name].get("y")) for name in ("anyfn: 10 ns", "NumPy: 13.0 ms", "polling sockets: 6.4 µs")]
    assert tops == sorted(tops) and tops[-1] < float(root.get("height"))


def test_a_chart_of_nothing_is_still_one():
    xml.etree.ElementTree.fromstring(chart.chart(dict(sample(), sections={})))


def test_names_of_rows_and_labels_are_unique():
    for sections in (rows.PYTHON_SECTIONS, list(rows.SECTIONS)[:1], list(rows.SECTIONS)[1:2]):
        names = [row.name for section in sections for row in rows.SECTIONS[section]]
        assert len(names) == len(set(names))
    for _, sections, _ in chart.PANELS:
        labels = [row.label for section in sections for row in rows.SECTIONS[section] if row.label]
        assert len(labels) == len(set(labels))


def test_the_committed_report_is_what_the_committed_data_gives(tmp_path):
    shutil.copy(report.DOCS / "benchmarks.json", tmp_path)
    report.write(tmp_path)
    for name in ("benchmarks.md", "benchmarks.svg"):
        assert (tmp_path / name).read_bytes() == (report.DOCS / name).read_bytes(), f"run benches/report.py: {name}"


def test_the_committed_data_has_no_row_that_does_not_exist():
    data = json.loads((report.DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    for section, found in data["sections"].items():
        assert set(found) <= {row.name for row in rows.SECTIONS[section]}
