//! Tests of types that Rust plugins define: their state while the plugin is unmapped and after it is loaded
//! again, and plugins that define the same type.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIGetTypeInfo, TVMFFITypeKeyToIndex, TVMFFITypeRegisterField,
    kTVMFFIFieldFlagBitMaskHasDefault,
};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, Map, Module, ObjectRef, PackedFunc, Result, String as Text, registry};
use anyfn_loader as _;

mod support;
use support::unload::{call, leases, mappings, reap, turn};
use support::{fails, load, new_build, scratch, testing_plugin};

const KEY: &str = "testing.Account";

fn info() -> TypeInfo {
    TypeInfo::from_key(KEY).unwrap()
}

fn method(name: &str) -> PackedFunc {
    info().method(name).unwrap().function().unwrap()
}

fn init() -> PackedFunc {
    info().attribute("__ffi_init__").unwrap().get::<PackedFunc>().unwrap()
}

fn open(owner: &str) -> ObjectRef {
    init().call((owner,)).unwrap().into_object().unwrap()
}

fn make(owner: &str) -> Result<Any> {
    call("ffi.MakeObjectFromPackedArgs", (KEY, "owner", owner))
}

fn int(value: Result<Any>) -> i64 {
    value.unwrap().get::<i64>().unwrap()
}

#[test]
fn a_module_lists_the_types_that_its_library_registers() {
    let _turn = turn();
    let path = testing_plugin();
    let keys = |module: &Module| -> Vec<String> {
        module.type_keys().unwrap().iter().map(|key| key.to_string()).collect()
    };
    let module = load(&path).unwrap();
    let first = keys(&module);
    assert!(
        first.iter().any(|key| key == KEY) && first.iter().any(|key| key == "testing.Savings"),
        "{first:?}"
    );
    assert!(first.is_sorted() && first.iter().all(|key| !key.starts_with("ffi.")), "{first:?}");
    // The types are registered once, however often the library is loaded.
    drop(module);
    assert_eq!(keys(&load(&path).unwrap()), first);
    reap();
    assert_eq!(keys(&load(&path).unwrap()), first);
    let other = call("ffi.ModuleCreate", ("kind", "get_function", &PackedFunc::new(|_| Any::new(())))).unwrap();
    assert!(other.get::<Module>().unwrap().type_keys().unwrap().is_empty());
}

#[test]
fn fields_methods_and_constructor_go_and_come_back() {
    let _turn = turn();
    let path = testing_plugin();
    let module = load(&path).unwrap();
    let account = open("a name of more than seven letters");
    assert_eq!(int(account.call_method("deposit", (5, 2))), 10);
    // Only the object keeps the library mapped, and nothing else of the type.
    let held = [init(), method("deposit"), method("names"), method("tell")];
    let factory = info().field("others").unwrap().factory().unwrap().unwrap();
    let fields: Vec<_> = info().fields().collect();
    drop(module);
    assert!(reap().is_empty());
    assert!(leases(&path).unwrap()[0].starts_with("objects: "));
    assert_eq!(account.get_field("cents").unwrap().get::<i64>().unwrap(), 10);
    assert_eq!(int(account.call_method("deposit", (1,))), 11);
    drop(account);
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);

    let gone = "the library that defines this type was unloaded";
    let [open_it, deposit, names, tell] = &held;
    let nothing = registry::get("ffi.String").unwrap();
    fails(open_it.call(("x",)), "RuntimeError", gone);
    fails(open_it.call(("x",)), "RuntimeError", "`testing.Account.open` cannot be called");
    fails(deposit.call((1, 2)), "RuntimeError", gone);
    fails(names.call(()), "RuntimeError", gone);
    fails(tell.call((1, &nothing)), "RuntimeError", gone);
    fails(factory.call(()), "RuntimeError", "`the default of testing.Account.others` cannot be called");
    fails(make("x"), "RuntimeError", gone);
    let other = call("ffi.Array", ()).unwrap().into_object().unwrap();
    // SAFETY: the getter fails before it reads the object, because the library that defines the type is unloaded.
    fails(unsafe { fields[0].get_unchecked(&other) }, "RuntimeError", gone);
    // The metadata of the methods stays available.
    assert!(deposit.signature().unwrap().contains("testing.Account.deposit"));
    assert_eq!(method("deposit").as_object().as_handle(), deposit.as_object().as_handle());

    for round in 0..3 {
        let module = load(&path).unwrap();
        let account = open_it.call(("Ada",)).unwrap().into_object().unwrap();
        assert_eq!(int(deposit.call((&account, 7))), 7, "{round}");
        assert_eq!(int(account.call_method("deposit", (1, 3))), 10);
        let both = Any::new(Array::<Any>::try_from_iter([account.clone(), account.clone()]).unwrap()).unwrap();
        assert_eq!(names.call((&both,)).unwrap().get::<&str>().unwrap(), "Ada, Ada");
        drop(both);
        let made = make("a name of more than seven letters").unwrap().into_object().unwrap();
        assert_eq!(made.get_field("others").unwrap().get::<Array<Any>>().unwrap().len(), 0);
        made.set_field("note", "a note of more than seven letters").unwrap();
        assert!(factory.call(()).unwrap().get::<Array<Any>>().unwrap().is_empty());
        assert_eq!(method("deposit").as_object().as_handle(), deposit.as_object().as_handle());
        drop((account, made, module));
        assert_eq!(reap().len(), 1, "{:?}", leases(&path));
        assert_eq!(mappings(&path), 0);
        fails(deposit.call((1, 2)), "RuntimeError", gone);
    }
}

#[test]
fn a_static_method_that_runs_keeps_its_library() {
    let _turn = turn();
    let path = testing_plugin();
    let module: Arc<Mutex<Option<Module>>> = Arc::new(Mutex::new(Some(load(&path).unwrap())));
    let run = method("run");
    let inside = PackedFunc::new({
        let (module, path) = (module.clone(), path.clone());
        move |_| {
            drop(module.lock().unwrap().take());
            assert!(reap().is_empty());
            Any::new(mappings(&path))
        }
    });
    assert!(int(run.call((&inside,))) > 0);
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);
    fails(run.call((&inside,)), "RuntimeError", "was unloaded");
    *module.lock().unwrap() = Some(load(&path).unwrap());
    assert!(int(run.call((&inside,))) > 0);
    assert_eq!(reap().len(), 1);
}

#[test]
fn threads_that_call_while_the_library_comes_and_goes() {
    let _turn = turn();
    let path = testing_plugin();
    drop(load(&path).unwrap());
    let (open_it, names) = (init(), method("names"));
    let empty = Any::new(Array::<Any>::new()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for turn in 0..3000 {
                    match names.call((&empty,)) {
                        Ok(text) => assert_eq!(text.get::<&str>().unwrap(), ""),
                        Err(error) => assert!(error.message().contains("was unloaded"), "{error}"),
                    }
                    if turn % 10 == 0
                        && let Err(error) = open_it.call(("",))
                    {
                        // Either the error of the constructor itself, or that the library was unloaded.
                        let known = ["was unloaded", "needs an owner"];
                        assert!(known.iter().any(|text| error.message().contains(text)), "{error}");
                    }
                }
            });
        }
        for _ in 0..60 {
            drop(load(&path).unwrap());
            reap();
        }
    });
    reap();
    assert_eq!(mappings(&path), 0);
}

/// Number of rounds of the tests in which a library is unmapped while other threads call it.
const ROUNDS: u32 = 500;

#[test]
fn methods_and_creators_run_while_the_library_comes_and_goes() {
    let _turn = turn();
    let path = testing_plugin();
    drop(load(&path).unwrap());
    let deposit = method("deposit");
    // Neither call receives an object of the library, which would keep it mapped.
    let method = || deposit.call((1, 2)).map(|value| value.into_object().unwrap());
    let creator = || info().make();
    let calls: [&(dyn Fn() -> Result<ObjectRef> + Sync); 2] = [&method, &creator];
    let round = AtomicU32::new(0);
    let ran = std::thread::scope(|scope| {
        // Ends the threads also if a check fails.
        let _end = AtEnd(|| round.store(u32::MAX, Ordering::Release));
        let results = calls.map(|call| {
            let (send, receive) = std::sync::mpsc::channel();
            let round = &round;
            scope.spawn(move || {
                for next in 1..=ROUNDS {
                    while round.load(Ordering::Acquire) < next {
                        std::thread::yield_now();
                    }
                    send.send(call()).unwrap();
                }
            });
            receive
        });
        let mut ran = [0, 0];
        for next in 1..=ROUNDS {
            drop(load(&path).unwrap());
            round.store(next, Ordering::Release);
            // The library is unmapped at a different moment of the calls each time.
            (0..next % 100 * 20).for_each(|_| std::hint::spin_loop());
            // Sometimes it stays mapped during the calls: on a busy machine, these might always come too late otherwise.
            if next % 10 > 0 {
                reap();
            }
            // Results are released on this thread: an object whose release has begun elsewhere keeps no library mapped.
            for (ran, result) in ran.iter_mut().zip(&results) {
                let result = result.recv().unwrap();
                let is_gone = result.is_err_and(|error| error.message().contains("was unloaded"));
                *ran += u32::from(!is_gone);
            }
        }
        ran
    });
    assert!(ran.iter().all(|ran| *ran > 0), "{ran:?}");
    reap();
    assert_eq!(mappings(&path), 0);
}

/// Return addresses recorded by `count_and_note`, the function to which the deleters of a plugin jump after they
/// destroy an object.
static RETURNS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn note_return(ended: anyfn::Ended, address: usize) {
    RETURNS.lock().unwrap().push(address);
    // SAFETY: `ended` comes from a deleter, which counts the end of its object once.
    unsafe { anyfn::count_end(ended) };
}

/// Counts the destruction of an object, and records the return address of this call.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(naked)]
unsafe extern "C" fn count_and_note(_: anyfn::Ended) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rsi, [rsp]", "jmp {note}", note = sym note_return);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x1, x30", "b {note}", note = sym note_return);
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn an_object_is_counted_as_gone_when_no_code_of_its_library_is_on_the_stack() {
    let _turn = turn();
    let path = testing_plugin();
    let module = load(&path).unwrap();
    let name = std::ffi::CString::new(path.canonicalize().unwrap().to_str().unwrap()).unwrap();
    // SAFETY: this opens a library that is loaded already.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    // SAFETY: the library is open.
    let symbol = unsafe { libc::dlsym(library, c"__anyfn_use_count_end".as_ptr()) };
    assert!(!symbol.is_null());
    // SAFETY: the symbol of this name is a function of this type.
    let use_count_end = unsafe {
        core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn(anyfn::CountEnd)>(symbol)
    };
    // SAFETY: `count_and_note` counts the end of each object, and lives as long as the process.
    unsafe { use_count_end(count_and_note) };
    // Objects of the plugin's own type, whose fields and methods create others: strings, arrays, maps.
    drop(open("a name of more than seven letters"));
    drop(info().make());
    // SAFETY: this is the function that the loader sets.
    unsafe { use_count_end(anyfn::count_end) };
    let returns = std::mem::take(&mut *RETURNS.lock().unwrap());
    assert!(returns.len() >= 2, "{returns:?}");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let file = path.canonicalize().unwrap();
    let mapped = maps.lines().filter(|line| line.ends_with(file.to_str().unwrap()));
    let ranges: Vec<_> = mapped
        .map(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
        })
        .collect();
    assert!(!ranges.is_empty());
    // The deleter of an object that another object of the plugin releases returns to the deleter of the latter, which is
    // counted later. Only the last deleter of each release returns to this program.
    let outside = returns.iter().filter(|address| !ranges.iter().any(|range| range.contains(address)));
    assert!(outside.count() >= 2, "{returns:x?} {ranges:x?}");
    // SAFETY: the library was opened above, and nothing uses the handle afterwards.
    unsafe { libc::dlclose(library) };
    drop(module);
    reap();
    assert_eq!(mappings(&path), 0);
}

#[test]
fn the_last_objects_end_while_their_library_is_unmapped() {
    let _turn = turn();
    let path = testing_plugin();
    drop(load(&path).unwrap());
    let (round, made) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let _end = AtEnd(|| round.store(u32::MAX, Ordering::Release));
        for _ in 0..2 {
            scope.spawn(|| {
                while round.load(Ordering::Acquire) < ROUNDS {
                    // The object is released at once, on this thread.
                    match info().make() {
                        Ok(_) => drop(made.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(error.message().contains("was unloaded"), "{error}"),
                    }
                }
            });
        }
        for next in 1..=ROUNDS {
            drop(load(&path).unwrap());
            let before = made.load(Ordering::Relaxed);
            // The library is unmapped at a different moment of a deleter each time.
            while made.load(Ordering::Relaxed) == before {
                std::hint::spin_loop();
            }
            (0..next % 100).for_each(|_| std::hint::spin_loop());
            reap();
            round.store(next, Ordering::Release);
        }
    });
    reap();
    assert_eq!(mappings(&path), 0);
}

/// Guard that calls a function when it is dropped.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Copies the sample plugin to the scratch file `name` as a new build, and loads it. All builds at one path
/// define the same types.
fn another(name: &str) -> (PathBuf, Module) {
    let path = scratch(name);
    new_build(&path);
    let module = load(&path).unwrap();
    (path, module)
}

#[test]
fn a_getter_that_serves_objects_of_an_older_build_stays() {
    let _turn = turn();
    let (path, older) = another("getter_plugin.so");
    let account = open("a name of more than seven letters");
    let (_, newer) = another("getter_plugin.so");
    assert!(!newer.as_object().ptr_eq(older.as_object()));
    drop(older);
    // Its module is dropped at once, but its code reads the fields of the object of the older build.
    let leases_of = call("ffi.ModuleLeases", (&newer,)).unwrap().get::<Map<Text, i64>>().unwrap();
    assert_eq!(leases_of.get("libraries").unwrap(), Some(1));
    drop((newer, leases_of));
    assert!(reap().is_empty(), "{:?}", leases(&path));
    assert_eq!(account.get_field("owner").unwrap().get::<&str>().unwrap(), "a name of more than seven letters");
    account.set_field("note", "a note of more than seven letters").unwrap();
    drop(account);
    assert_eq!(reap().len(), 2, "{:?}", leases(&path));
}

#[test]
fn the_code_that_serves_the_objects_of_two_builds_is_that_of_one() {
    let _turn = turn();
    let path = testing_plugin();
    let older = load(&path).unwrap();
    let account = open("Ada");
    drop(older);
    let (_, newer) = another("taking_plugin.so");
    let other = open("Eve");
    drop(newer);
    // The older build registers its types again. The code of the newer build stays in use: otherwise each build would keep the
    // other mapped permanently.
    drop(load(&path).unwrap());
    assert!(reap().is_empty());
    assert_eq!(other.get_field("owner").unwrap().get::<&str>().unwrap(), "Eve");
    // The older build is unmapped, and only its own object keeps the newer build mapped.
    drop(account);
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);
    assert_eq!(other.get_field("owner").unwrap().get::<&str>().unwrap(), "Eve");
    drop(other);
    assert_eq!(reap().len(), 1);
}

#[test]
fn fields_are_read_while_newer_builds_come_and_go() {
    let _turn = turn();
    let (_, older) = another("racing_plugin.so");
    let account = open("a name of more than seven letters");
    drop(older);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = AtEnd(|| stop.store(true, Ordering::Relaxed));
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(account.get_field("cents").unwrap().get::<i64>().unwrap(), 0);
            }
        });
        for _ in 0..8 {
            drop(another("racing_plugin.so"));
            assert!(reap().is_empty());
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    drop(account);
    assert_eq!(reap().len(), 9);
}

#[test]
fn a_build_with_another_default_brings_its_getter() {
    let _turn = turn();
    let module = load(&testing_plugin()).unwrap();
    let key = TVMFFIByteArray::from_slice(KEY.as_bytes());
    let mut index = 0;
    // SAFETY: the key is borrowed for the call, the result is writable.
    assert_eq!(unsafe { TVMFFITypeKeyToIndex(&raw const key, &raw mut index) }, 0);
    // SAFETY: `index` is the index of a registered type.
    let told = unsafe { TVMFFIGetTypeInfo(index) };
    // SAFETY: the type info lives as long as the process.
    let fields = unsafe { (*told).fields };
    // SAFETY: the type has fields, and no other code changes them meanwhile.
    let mut field = unsafe { fields.read() };
    field.flags ^= kTVMFFIFieldFlagBitMaskHasDefault;
    field.default_value_or_factory = TVMFFIAny::NONE;
    // SAFETY: this is a field of the type with the functions that it has already.
    assert_eq!(unsafe { TVMFFITypeRegisterField(index, &raw const field) }, 0);
    field.offset += 8;
    // SAFETY: the offset is that of another field, so the type table refuses the registration.
    assert_eq!(unsafe { TVMFFITypeRegisterField(index, &raw const field) }, -1);
    drop(anyfn::Error::take_raised());
    drop(module);
    reap();
}
