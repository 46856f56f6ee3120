//! Tests of loading newer builds of a library beside older ones, and of modules that watch a library file and
//! load each new build of it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyfn::{Module, PackedFunc, registry};
use anyfn_loader as _;

mod support;
use support::unload::{call, leases, mappings, reap, turn};
use support::{compile, fails, load, new_build, put, scratch, testing_plugin};

/// Compiles a version of a library to a new file called `name`. The modification time is set so far back that
/// the loader considers the file complete.
fn build(name: &str, version: i64, more: &str) -> Option<PathBuf> {
    let source = format!(
        "#include <anyfn/anyfn.h>\nANYFN_EXPORT(version) {{ return anyfn_return_int(result, {version}); }}\n{more}"
    );
    let new = compile(&format!("{name}-new"), &source, &[])?;
    let path = scratch(&format!("{name}.so"));
    put(&new, &path);
    Some(path)
}

fn number(function: &PackedFunc) -> i64 {
    function.call(()).unwrap().get::<i64>().unwrap()
}

#[test]
fn functions_follow_the_file() {
    let _turn = turn();
    let Some(path) = build("follow", 1, "") else { return };
    let module = Module::watch(path.to_str().unwrap()).unwrap();
    assert_eq!((module.kind().unwrap().to_string(), module.is_current().unwrap()), ("watch".into(), true));
    let version = module.get_function("version").unwrap();
    let old = load(&path).unwrap();
    assert_eq!(number(&version), 1);
    for n in 2..5 {
        build("follow", n, "").unwrap();
        assert!(!module.is_current().unwrap() && !old.is_current().unwrap());
        assert_eq!((number(&version), number(&module.get_function("version").unwrap())), (n, n));
        assert!(module.is_current().unwrap());
        assert_eq!(number(&old.get_function("version").unwrap()), 1);
    }
    fails(module.get_function("versio"), "AttributeError", "did you mean `version`?");
    assert_eq!(module.function_names().unwrap().len(), 1);
    drop(old);
    drop(module);
    build("follow", 9, "").unwrap();
    assert_eq!(number(&version), 9, "a function keeps what it follows");
    drop(version);
    reap();
    assert_eq!((leases(&path), mappings(&path)), (None, 0));
}

#[test]
fn a_bad_build_is_told_of_once() {
    let _turn = turn();
    let Some(path) = build("bad", 1, "") else { return };
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_problem = PackedFunc::new({
        let told = told.clone();
        move |args| {
            told.lock().unwrap().push((args.get::<String>(0)?, args.get::<String>(1)?));
            Ok(anyfn::Any::default())
        }
    });
    let watch = call("ffi.ModuleWatch", (path.to_str().unwrap(), None::<PackedFunc>, on_problem)).unwrap();
    let module = watch.get::<Module>().unwrap();
    let version = module.get_function("version").unwrap();
    let new = path.with_extension("part");
    fs::write(&new, "no library").unwrap();
    put(&new, &path);
    for _ in 0..3 {
        assert_eq!(number(&version), 1);
    }
    let problem = call("ffi.ModuleWatchProblem", (&module,)).unwrap().get::<String>().unwrap();
    assert!(problem.contains("a text file"), "{problem}");
    assert_eq!(*told.lock().unwrap(), [(path.to_str().unwrap().to_owned(), problem)]);
    fails(call("ffi.ModuleWatchReload", (&module,)), "RuntimeError", "a text file");
    build("bad", 2, "").unwrap();
    assert_eq!(number(&version), 2);
    assert!(call("ffi.ModuleWatchProblem", (&module,)).unwrap().is_none());
    assert_eq!(told.lock().unwrap().len(), 1);
    fails(call("ffi.ModuleWatchPoll", (load(&path).unwrap(),)), "TypeError", "of kind `library`");
}

/// Tests a new build of a library file that a module watches. The constructor of the new build calls a
/// function of that module while the build is being loaded. The call must reach the previous build.
#[test]
fn a_build_that_calls_the_watch_while_it_is_loaded() {
    let _turn = turn();
    let Some(path) = build("inside", 1, "") else { return };
    let module = Module::watch(path.to_str().unwrap()).unwrap();
    let version = module.get_function("version").unwrap();
    registry::register("test.watch.inside").set(&version).unwrap();
    let constructor = r#"
        static int64_t seen;
        __attribute__((constructor)) static void start(void) {
          TVMFFIByteArray name = {"test.watch.inside", 17};
          TVMFFIObjectHandle f;
          TVMFFIAny out = {0};
          if (TVMFFIFunctionGetGlobal(&name, &f) || TVMFFIFunctionCall(f, 0, 0, &out)) __builtin_trap();
          seen = out.v_int64;
          TVMFFIObjectDecRef(f);
        }
        ANYFN_EXPORT(seen) { return anyfn_return_int(result, seen); }"#;
    build("inside", 2, constructor).unwrap();
    assert_eq!(number(&version), 2);
    assert_eq!(number(&module.get_function("seen").unwrap()), 1);
    assert!(registry::remove("test.watch.inside").unwrap());
}

#[test]
fn a_newer_build_of_a_plugin_takes_its_names_over() {
    let _turn = turn();
    let path = scratch("newer_plugin.so");
    new_build(&path);
    let older = load(&path).unwrap();
    let count = registry::get("testing.count").unwrap();
    let adder = call("testing.make_adder", (1,)).unwrap().get::<PackedFunc>().unwrap();
    let point = call("testing.make_point", (1.0, 2.0)).unwrap();

    new_build(&path);
    let newer = load(&path).unwrap();
    assert!(!newer.as_object().ptr_eq(older.as_object()) && newer.is_current().unwrap());
    let newer_count = registry::get("testing.count").unwrap();
    assert!(!newer_count.as_object().ptr_eq(count.as_object()));
    // Both builds share the type.
    assert_eq!(call("testing.point_x", (&point,)).unwrap().get::<f64>().unwrap(), 1.0);
    assert_eq!(adder.call((1,)).unwrap().get::<i64>().unwrap(), 2);

    // Dropping the older build removes nothing of the newer build.
    drop(older);
    let now = registry::get("testing.count").unwrap();
    assert!(now.as_object().ptr_eq(newer_count.as_object()));
    assert!(reap().is_empty(), "of the older one there are objects");
    drop((count, adder, point));
    assert_eq!(reap().len(), 1);
    drop((now, newer_count));
    assert!(registry::find("testing.nop").is_some());
    drop(newer);
    assert!(registry::find("testing.nop").is_none());
    reap();
    assert_eq!(mappings(&path), 0);
}

#[test]
fn names_of_another_library_are_not_taken() {
    let _turn = turn();
    let path = scratch("foreign_plugin.so");
    new_build(&path);
    let other = load(&testing_plugin()).unwrap();
    let count = registry::get("testing.count").unwrap();
    fails(load(&path), "RuntimeError", "is already registered by the library ");
    assert!(registry::get("testing.count").unwrap().as_object().ptr_eq(count.as_object()));

    // A name of the older build that the program has overridden is not taken either, and no other name is taken over.
    drop(other);
    let older = load(&path).unwrap();
    let nop = registry::get("testing.nop").unwrap();
    registry::register("testing.count").overriding().set_body_typed(|| 7).unwrap();
    new_build(&path);
    fails(load(&path), "RuntimeError", "`testing.count` is already registered by the program");
    assert!(registry::get("testing.nop").unwrap().as_object().ptr_eq(nop.as_object()));
    drop((older, nop, count));
    assert!(registry::remove("testing.count").unwrap());
    reap();
}

#[test]
fn a_watch_takes_names_over_through_a_link() {
    let _turn = turn();
    let [one, two, link] = ["plugin_one.so", "plugin_two.so", "plugin_link.so"].map(scratch);
    new_build(&one);
    new_build(&two);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let module = Module::watch(link.to_str().unwrap()).unwrap();
    let add_one = module.get_function("add_one").unwrap();
    let older = call("ffi.ModuleWatchNewest", (&module,)).unwrap().get::<Module>().unwrap();
    let before = registry::get("testing.nop").unwrap();
    let new = link.with_extension("new");
    let _ = fs::remove_file(&new);
    std::os::unix::fs::symlink(&two, &new).unwrap();
    fs::rename(&new, &link).unwrap();
    assert_eq!(add_one.call((1,)).unwrap().get::<i64>().unwrap(), 2);
    assert!(call("ffi.ModuleWatchProblem", (&module,)).unwrap().is_none());
    assert!(!registry::get("testing.nop").unwrap().as_object().ptr_eq(before.as_object()));
    assert!(older.is_current().unwrap());
    let link = link.to_str().unwrap();
    assert!(!call("ffi.ModuleIsCurrent", (&older, link)).unwrap().get::<bool>().unwrap());
    drop((older, before));
    assert_eq!(reap(), [one.canonicalize().unwrap().to_str().unwrap()]);
    drop((module, add_one));
    reap();
    assert_eq!((mappings(&one), mappings(&two)), (0, 0));
}

/// Tests that a new build is loaded although its file has the name of an earlier build. The dynamic loader remembers
/// each name under which it has found a library, even if the name refers to another file later.
#[test]
fn names_that_the_dynamic_loader_remembers() {
    let _turn = turn();
    let version = |module: &Module| number(&module.get_function("version").unwrap());
    // When the first build is unmapped, its name is looked up and refers to the second build.
    let Some(path) = build("remembered", 1, "") else { return };
    let first = load(&path).unwrap();
    build("remembered", 2, "").unwrap();
    let second = load(&path).unwrap();
    drop(first);
    assert_eq!(reap().len(), 1);
    build("remembered", 3, "").unwrap();
    let third = load(&path).unwrap();
    assert_eq!((version(&second), version(&third)), (2, 3));

    // A second name of a file, which refers to another file later.
    let link = scratch("remembered-link.so");
    let _ = fs::remove_file(&link);
    fs::hard_link(&path, &link).unwrap();
    assert!(load(&link).unwrap().as_object().ptr_eq(third.as_object()));
    build("remembered-link", 4, "").unwrap();
    let fourth = load(&link).unwrap();
    assert_eq!((version(&second), version(&third), version(&fourth)), (2, 3, 4));
    drop((second, third, fourth));
    assert_eq!(reap().len(), 3);
    assert_eq!((mappings(&path), mappings(&link)), (0, 0));
}

#[test]
fn a_file_that_is_overwritten_is_refused_before_it_is_read() {
    let _turn = turn();
    let Some(path) = build("overwritten", 1, "") else { return };
    let module = load(&path).unwrap();
    assert!(module.is_current().unwrap());
    // The change does not affect the code: the new bytes follow everything that is mapped.
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, &[0; 100_000]).unwrap();
    drop(file);
    assert!(!module.is_current().unwrap());
    fails(load(&path), "RuntimeError", "the file has been modified in place since it was loaded");
    assert_eq!(number(&module.get_function("version").unwrap()), 1);
    build("overwritten", 2, "").unwrap();
    assert_eq!(number(&load(&path).unwrap().get_function("version").unwrap()), 2);
}
