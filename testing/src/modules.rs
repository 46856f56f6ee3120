//! Sample module kind `testing_table`, whose loader this library registers.

use std::sync::Arc;

use anyfn::{Bytes, Module, ModuleKind, PackedFunc, Result, TypedPackedFunc, register};

/// A module whose content is a sequence of bytes.
struct Table(Bytes);

impl ModuleKind for Table {
    fn kind(&self) -> &str {
        "testing_table"
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let this = self.clone();
        Ok(match name {
            "len" => Some(TypedPackedFunc::from_fn(move || this.0.len()).into()),
            "at" => {
                let at = move |index: usize| match this.0.get(index) {
                    Some(byte) => Ok(i64::from(*byte)),
                    None => {
                        anyfn::bail!("IndexError", "index {index} is out of range for {} bytes", this.0.len())
                    }
                };
                Some(TypedPackedFunc::from_fn(at).into())
            }
            _ => None,
        })
    }

    fn functions(&self) -> Vec<String> {
        vec!["len".to_owned(), "at".to_owned()]
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }
}

/// Creates a module whose functions `len()` and `at(i)` return the number of bytes and the byte at index `i`.
#[register("testing.make_table")]
fn make_table(data: Bytes) -> Result<Module> {
    Module::new(Table(data))
}

/// Creates a module of kind `testing_table` from its serialised form. It is called when a bundle that
/// contains such a module is loaded.
#[register("ffi.Module.load_from_bytes.testing_table")]
fn load_table(data: Bytes) -> Result<Module> {
    make_table(data)
}
