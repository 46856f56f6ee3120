//! Host program in Rust, which loads a plugin, calls all of its functions, and drops the module before the
//! values that the plugin created.
//!
//! Usage: `host PLUGIN`. Prints one line for each action, the same lines as `host.c` and `host.py`.

use std::path::Path;

use anyfn::reflection::TypeInfo;
use anyfn::{
    Any, Array, Error, IntoArgs, Map, Module, ObjectRef, PackedFunc, Result, String as Text, TypedPackedFunc,
    registry,
};

/// Values from the plugin that are used after the module is dropped. A value is `None` if the plugin does not
/// provide it.
struct Kept {
    adder: Option<PackedFunc>,
    tensor: Option<anyfn::Tensor>,
    cell: Option<ObjectRef>,
    answer: Option<PackedFunc>,
    error: Error,
}

fn shown<T>(result: Result<T>) -> std::string::String {
    match result {
        Ok(_) => "nothing".to_owned(),
        Err(error) => format!("{}: {}", error.kind(), error.message()),
    }
}

fn kind<T>(result: Result<T>) -> std::string::String {
    result.map_or_else(|error| error.kind().to_owned(), |_| "nothing".to_owned())
}

fn call_global(name: &str, args: impl IntoArgs) -> Result<Any> {
    registry::get(name)?.call(args)
}

/// Returns the reflected field `value` of an object as a string, or `none` if its type has no such field.
fn field(object: &ObjectRef) -> Result<std::string::String> {
    match TypeInfo::of(object).field("value") {
        Some(_) => Ok(object.get_field("value")?.get::<i64>()?.to_string()),
        None => Ok("none".to_owned()),
    }
}

/// Calls all functions of the plugin and prints their results. Returns the values that are used after the
/// module is dropped.
fn use_all(module: &Module) -> Result<Kept> {
    let find = |name: &str| module.find_function(name);
    let add = module.get_function("add")?;
    println!("call {}", add.call((2, 3))?.get::<i64>()?);
    let fail = module.get_function("fail")?;
    println!("error {}", shown(fail.call(("told so, at some length",))));
    println!("mistake {}", kind(add.call(("x", 1))));
    if let Some(fail) = find("fail_foreign")? {
        println!("foreign {}", shown(fail.call(("told so, at some length",))));
    }
    let apply = module.get_function("apply")?;
    let plus_one = TypedPackedFunc::from_fn(|x: i64| x + 1);
    println!("callback {}", apply.call((plus_one, 20))?.get::<i64>()?);
    let failing = PackedFunc::new(|_| Err(Error::new("IndexError", "of the host")));
    println!("through {}", shown(apply.call((&failing, 1))));
    if let Some(caught) = find("caught")? {
        println!("caught {}", caught.call((&failing, 1))?.get::<std::string::String>()?);
    }
    let items = Array::<i64>::try_from_iter([1, 2, 3])?;
    let reversed = module.get_function("reverse")?.call((items,))?.get::<Array<i64>>()?;
    println!("array {}", reversed.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" "));
    if let Some(tally) = find("tally")? {
        let words = Array::<Text>::try_from_iter(["b", "a", "b"].map(Text::from))?;
        let counts = tally.call((words,))?.get::<Map<Text, i64>>()?;
        let count = |word: &str| counts.get(Text::from(word)).map(Option::unwrap_or_default);
        println!("map a={} b={}", count("a")?, count("b")?);
    }
    let mut cell = None;
    if let Some(make) = find("cell")? {
        let value = module.get_function("cell_value")?;
        let made = make.call((7,))?.get::<ObjectRef>()?;
        println!("object {}", value.call((&made,))?.get::<i64>()?);
        println!("field {}", field(&made)?);
        println!("not its {}", kind(value.call((&make,))));
        cell = Some(made);
    }
    let adder = find("adder")?.map(|f| f.call((5,))?.get::<PackedFunc>()).transpose()?;
    let tensor = find("tensor")?.map(|f| f.call(())?.get::<anyfn::Tensor>()).transpose()?;
    if let Some(install) = find("install")? {
        install.call(())?;
    }
    let answer = registry::find("hosts.answer");
    if let Some(answer) = &answer {
        println!("registered {}", answer.call(())?.get::<i64>()?);
    }
    let Err(error) = fail.call(("kept, and long enough",)) else {
        anyfn::bail!("RuntimeError", "the plugin does not fail");
    };
    Ok(Kept { adder, tensor, cell, answer, error })
}

/// Uses the values in `kept` after the module is dropped, and prints the results.
fn use_kept(kept: &Kept) -> Result<()> {
    if let Some(adder) = &kept.adder {
        println!("function {}", adder.call((1,))?.get::<i64>()?);
    }
    if let Some(tensor) = &kept.tensor {
        // SAFETY: no code writes to the tensor while `values` borrows it.
        let values = unsafe { tensor.view().as_slice::<f32>() }?;
        println!("tensor {:.1} {:.1}", values[0], values[1]);
    }
    if let Some(cell) = &kept.cell {
        println!("field {}", field(cell)?);
    }
    println!("error {}", kept.error.message());
    if let Some(answer) = &kept.answer {
        let is_there = if registry::find("hosts.answer").is_some() { "there" } else { "gone" };
        println!("registered {} {is_there}", answer.call(())?.get::<i64>()?);
    }
    Ok(())
}

/// Returns the leases on the plugin's library as a string: each kind with its count, `none` if there are no
/// leases, or `unknown` if the library is not mapped.
fn leases(path: &Path) -> Result<std::string::String> {
    let libraries = call_global("ffi.ModuleMapped", ())?.get::<Array<Map<Text, Any>>>()?;
    for library in libraries.iter() {
        if Path::new(library.at("file")?.get::<&str>()?) != path {
            continue;
        }
        let leases = library.at("leases")?.get::<Map<Text, i64>>()?;
        let leases: Vec<_> = leases.iter().map(|(what, number)| format!("{what} {number}")).collect();
        return Ok(if leases.is_empty() { "none".to_owned() } else { leases.join(" ") });
    }
    Ok("unknown".to_owned())
}

fn run(path: &Path) -> Result<()> {
    let module = match Module::load(&path.to_string_lossy()) {
        Ok(module) => module,
        Err(error) => {
            println!("refused {}", error.message());
            return Ok(());
        }
    };
    let kept = use_all(&module)?;
    let pinned = call_global("ffi.ModulePinned", (&module,))?.get::<Option<std::string::String>>()?;
    println!("pinned {}", pinned.as_deref().unwrap_or("None"));
    drop(module);
    use_kept(&kept)?;
    println!("leases {}", leases(path)?);
    registry::remove("hosts.answer")?;
    drop(kept);
    println!("leases {}", leases(path)?);
    call_global("ffi.ModuleReap", ())?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_mapped = maps.lines().any(|line| line.ends_with(&*path.to_string_lossy()));
    println!("mapped {}", if is_mapped { "yes" } else { "no" });
    Ok(())
}

/// Runs the host program with the command-line arguments of the process.
pub(crate) fn main() {
    let path = std::env::args_os().nth(1).expect("usage: host PLUGIN");
    let path = std::fs::canonicalize(path).expect("the plugin is a file");
    if let Err(error) = run(&path) {
        println!("failed {error}");
        std::process::exit(1);
    }
}
