//! Extension module in idiomatic PyO3, which `python_calls.py` measures for comparison.
//! `extensions.py` builds it.

use std::collections::HashMap;
use std::time::Instant;

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// Calls `body` `n` times and returns the average time per call in nanoseconds.
fn per_call(n: u64, mut body: impl FnMut() -> PyResult<()>) -> PyResult<f64> {
    let start = Instant::now();
    for _ in 0..n {
        body()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / n as f64)
}

#[pyclass]
struct IntPair {
    #[pyo3(get, set)]
    a: i64,
    #[pyo3(get, set)]
    b: i64,
}

#[pymethods]
impl IntPair {
    #[new]
    fn new(a: i64, b: i64) -> IntPair {
        IntPair { a, b }
    }

    fn sum(&self) -> i64 {
        self.a + self.b
    }
}

#[pymodule]
mod bench_pyo3 {
    use super::*;

    #[pymodule_export]
    use super::IntPair;

    #[pyfunction]
    fn nop0() {}

    #[pyfunction]
    fn nop1(_a: i64) {}

    #[pyfunction]
    fn nop3(_a: i64, _b: i64, _c: i64) {}

    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the row has eight")]
    fn nop8(_a: i64, _b: i64, _c: i64, _d: i64, _e: i64, _f: i64, _g: i64, _h: i64) {}

    #[pyfunction]
    fn nop_float(_x: f64) {}

    #[pyfunction]
    fn nop_bool(_x: bool) {}

    #[pyfunction]
    fn nop_str(_text: &str) {}

    #[pyfunction]
    fn nop_bytes(_data: &[u8]) {}

    #[pyfunction]
    fn nop_list(_items: Vec<i64>) {}

    #[pyfunction]
    fn nop_dict(_items: HashMap<String, i64>) {}

    #[pyfunction]
    fn nop_object(_pair: &IntPair) {}

    #[pyfunction]
    fn nop_arrays(
        _a: PyReadonlyArray1<'_, f32>,
        _b: PyReadonlyArray1<'_, f32>,
        _c: PyReadwriteArray1<'_, f32>,
    ) {
    }

    #[pyfunction]
    fn nop_callable(_f: Bound<'_, PyAny>) {}

    #[pyfunction]
    fn add(
        a: PyReadonlyArray1<'_, f32>,
        b: PyReadonlyArray1<'_, f32>,
        mut out: PyReadwriteArray1<'_, f32>,
    ) -> PyResult<()> {
        let (a, b, out) = (a.as_slice()?, b.as_slice()?, out.as_slice_mut()?);
        if a.len() != b.len() || a.len() != out.len() {
            return Err(PyValueError::new_err("sizes differ"));
        }
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = a + b;
        }
        Ok(())
    }

    #[pyfunction]
    fn add3(a: i64, b: i64, c: i64) -> i64 {
        a + b + c
    }

    #[pyfunction]
    fn concat(a: &str, b: &str) -> String {
        a.to_owned() + b
    }

    #[pyfunction]
    fn echo_int(x: i64) -> i64 {
        x
    }

    #[pyfunction]
    fn echo_float(x: f64) -> f64 {
        x
    }

    #[pyfunction]
    fn echo_str(x: &str) -> String {
        x.to_owned()
    }

    #[pyfunction]
    fn echo_bytes<'py>(py: Python<'py>, x: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, x)
    }

    #[pyfunction]
    #[pyo3(signature = (f, *args))]
    fn apply<'py>(f: Bound<'py, PyAny>, args: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        f.call1(args)
    }

    #[pyfunction]
    fn loop0(f: Bound<'_, PyAny>, n: u64) -> PyResult<f64> {
        per_call(n, || f.call0().map(drop))
    }

    #[pyfunction]
    fn loop1(f: Bound<'_, PyAny>, n: u64, a: i64) -> PyResult<f64> {
        per_call(n, || f.call1((a,))?.extract::<i64>().map(drop).map_err(Into::into))
    }

    #[pyfunction]
    fn loop3(f: Bound<'_, PyAny>, n: u64, a: i64, b: i64, c: i64) -> PyResult<f64> {
        per_call(n, || f.call1((a, b, c)).map(drop))
    }

    #[pyfunction]
    fn loop_str(f: Bound<'_, PyAny>, n: u64, text: &str) -> PyResult<f64> {
        per_call(n, || f.call1((text,)).map(drop))
    }

    #[pyfunction]
    fn raise_error(_kind: &str, message: String) -> PyResult<()> {
        Err(PyValueError::new_err(message))
    }
}
