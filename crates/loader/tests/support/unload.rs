//! Functions that report the mappings and leases of libraries.

use std::path::Path;
use std::sync::Mutex;

use anyfn::{Any, Array, Map, Result, String as Text, registry};

/// Lock that serialises the tests, because unmapping concerns the whole process.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> std::sync::MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    reap();
    turn
}

/// Returns the number of mappings of a file in this process.
pub(crate) fn mappings(path: &Path) -> usize {
    let path = path.canonicalize().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

pub(crate) fn call(name: &str, args: impl anyfn::IntoArgs) -> Result<Any> {
    registry::get(name)?.call(args)
}

pub(crate) fn reap() -> Vec<String> {
    let paths = call("ffi.ModuleReap", ()).unwrap().get::<Array<Text>>().unwrap();
    paths.iter().map(|path| path.to_string()).collect()
}

/// Returns the leases of a library as strings of the form `kind: number`, or `None` if the library
/// is not mapped.
pub(crate) fn leases(path: &Path) -> Option<Vec<String>> {
    let path = path.canonicalize().unwrap();
    let all = call("ffi.ModuleMapped", ()).unwrap().get::<Array<Map<Text, Any>>>().unwrap();
    let fields = all
        .iter()
        .find(|fields| fields.at("file").unwrap().get::<&str>().unwrap() == path.to_str().unwrap())?;
    let leases = fields.at("leases").unwrap().get::<Map<Text, i64>>().unwrap();
    Some(leases.iter().map(|(what, number)| format!("{what}: {number}")).collect())
}
