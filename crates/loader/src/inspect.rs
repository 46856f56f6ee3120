//! Describes a library file without loading it: its contents, the libraries and symbols that it needs, and the
//! versions for which it was built.

use std::path::{Path, PathBuf};
use std::string::String as StdString;

use anyfn::__private::{FunctionDef, functions};
use anyfn::{Any, Array, IntoAny, Map, Result, String};

use crate::classic;
use crate::dl::runtime::is_runtime_symbol;
use crate::elf::{self, Facts, Symbol};
use crate::file::find;
use crate::import_tree;
use crate::names::{self, function_names};

pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.ModuleInspectFile" [] => |path: &str| inspect(path),
    "ffi.ModuleFileSymbols" [] => |path: &str| symbols(path),
};

/// Description of a library file as a map. Its entries are in the order in which they are displayed.
struct Fields(Map<String, Any>);

impl Fields {
    fn set(&mut self, key: &str, value: impl IntoAny) -> Result<()> {
        self.0.insert(String::from(key), Any::new(value)?)
    }

    fn list<T: AsRef<str>>(&mut self, key: &str, items: impl IntoIterator<Item = T>) -> Result<()> {
        let items = items.into_iter().map(|item| String::from(item.as_ref()));
        self.set(key, Array::<String>::try_from_iter(items)?)
    }
}

/// Reads the library file at `path`. Returns its absolute path and its properties.
fn read(path: &str) -> Result<(PathBuf, Facts)> {
    let fail = |path: &Path, reason: StdString| {
        anyfn::error!("RuntimeError", "Cannot inspect {}: {reason}", path.display())
    };
    let (path, file, metadata) = find(path).map_err(|reason| fail(Path::new(path), reason))?;
    let facts = elf::inspect(file, metadata.len()).map_err(|reason| fail(&path, reason))?;
    Ok((path, facts))
}

/// Returns the name of the library file at `path`, the names of the libraries that it needs, and the names of its symbols: those
/// that it defines, and those that others must define. Weak undefined symbols are left out.
///
/// # Errors
/// Returns `RuntimeError` with the reason if the file is not a shared library for this machine, or is damaged.
fn symbols(path: &str) -> Result<Map<String, Any>> {
    let (_, facts) = read(path)?;
    let mut fields = Fields(Map::new());
    fields.set("soname", facts.soname.clone())?;
    fields.list("needed", &facts.needed)?;
    fields.list("defined", facts.defined.iter().map(|symbol| &symbol.name))?;
    fields.list("undefined", facts.undefined_names())?;
    Ok(fields.0)
}

/// Returns a description of the library file at `path`.
///
/// # Errors
/// Returns `RuntimeError` with the reason if the file is not a shared library for this machine, or is damaged.
fn inspect(path: &str) -> Result<Map<String, Any>> {
    let (path, facts) = read(path)?;
    let mut fields = Fields(Map::new());
    fields.set("file", path.display().to_string())?;
    fields.set("size", facts.size as i64)?;
    fields.set("format", "ELF shared library")?;
    fields.set("machine", elf::machine_name(elf::MACHINE))?;
    fields.set("soname", facts.soname.clone())?;
    fields.set("build_id", facts.build_id.as_deref().map(hexadecimal))?;
    let dotted = |[a, b, c]: [u32; 3]| format!("{a}.{b}.{c}");
    let built_for = facts.built_for.map(|[a, b, c, core @ ..]| (dotted([a, b, c]), dotted(core)));
    fields.set("abi", built_for.as_ref().map(|(abi, _)| abi.clone()))?;
    fields.set("runtime", built_for.map(|(_, runtime)| runtime))?;
    fields.set("problem", facts.built_for.and_then(|version| elf::check_version(version).err()))?;
    let functions = match facts.classic {
        true => classic::functions(facts.code()),
        false => function_names(facts.functions(), ""),
    };
    fields.list("functions", functions)?;
    fields.set("registers_functions", defines(&facts, "__anyfn_registrations"))?;
    let is_slot = |symbol: &&Symbol| symbol.name.starts_with("__TVM") || names::is_slot(&symbol.name);
    fields.list("context_slots", sorted(facts.defined.iter().filter(is_slot)))?;
    fields.list("needed", &facts.needed)?;
    fields.set("search_path", facts.search_path.clone())?;
    let (runtime, other): (Vec<&Symbol>, Vec<_>) = facts
        .undefined
        .iter()
        .filter(|symbol| !symbol.is_weak)
        .partition(|symbol| is_runtime_symbol(&symbol.name));
    fields.list("runtime_symbols", sorted(runtime.into_iter()))?;
    fields.list("other_symbols", sorted(other.into_iter()))?;
    fields.set("requires", versions(&facts)?)?;
    fields.set("imports", imports(&facts)?)?;
    fields.list("unique_symbols", sorted(facts.defined.iter().filter(|symbol| symbol.is_unique)))?;
    let flags = [
        (facts.has_thread_locals, "thread-local data"),
        (facts.static_tls, "static thread-local data"),
        (facts.executable_stack, "executable stack"),
        (facts.bound_at_once, "bound at once"),
    ];
    fields.list("traits", flags.iter().filter(|(is, _)| *is).map(|(_, name)| name))?;
    Ok(fields.0)
}

fn defines(facts: &Facts, name: &str) -> bool {
    facts.defined.iter().any(|symbol| symbol.name == name)
}

/// Returns the names of the symbols, each with its version, sorted and without duplicates.
fn sorted<'a>(symbols: impl Iterator<Item = &'a Symbol>) -> Vec<StdString> {
    let shown = |symbol: &Symbol| match symbol.version.as_str() {
        "" => symbol.name.clone(),
        version => format!("{}@{version}", symbol.name),
    };
    let mut names: Vec<_> = symbols.map(shown).collect();
    anyfn::__private::sort(&mut names);
    names.dedup();
    names
}

fn hexadecimal(bytes: &[u8]) -> StdString {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns, for each family of symbol versions, the highest version that an undefined symbol requires, such
/// as `2.34` for `GLIBC`.
fn versions(facts: &Facts) -> Result<Map<String, String>> {
    let mut highest: std::collections::BTreeMap<&str, (Vec<u32>, &str)> = std::collections::BTreeMap::new();
    for symbol in &facts.undefined {
        let Some((family, version)) = symbol.version.rsplit_once('_') else { continue };
        let numbers = version.split('.').map(str::parse).collect::<core::result::Result<Vec<u32>, _>>();
        let Ok(numbers) = numbers else { continue };
        let known = highest.entry(family).or_default();
        if numbers > known.0 {
            *known = (numbers, version);
        }
    }
    Map::try_from_iter(
        highest.into_iter().map(|(family, (_, version))| (String::from(family), String::from(version))),
    )
}

/// Returns the kind, the size and the imports of each module in the import tree, or `None` if the library has no import
/// tree.
fn imports(facts: &Facts) -> Result<Option<Array<Any>>> {
    let Some(blob) = &facts.import_tree else { return Ok(None) };
    let parsed = match blob.bytes.as_deref().and_then(|bytes| bytes.split_first_chunk::<8>()) {
        None => Err("its content is not in the file".to_owned()),
        Some((size, rest)) => {
            let size = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX);
            rest.get(..size)
                .ok_or_else(|| "it is shorter than its declared size".to_owned())
                .and_then(if facts.classic { classic::parse } else { import_tree::parse })
        }
    };
    let tree = parsed
        .map_err(|reason| anyfn::error!("RuntimeError", "the library's import tree is damaged: {reason}"))?;
    let mut modules = Array::<Any>::new();
    for (kind, size, imported) in tree.modules() {
        let mut fields = Fields(Map::new());
        fields.set("kind", kind)?;
        fields.set("size", size as i64)?;
        fields.set("imports", Array::<i64>::try_from_iter(imported.into_iter().map(|to| to as i64))?)?;
        modules.push(Any::new(fields.0)?)?;
    }
    Ok(Some(modules))
}
