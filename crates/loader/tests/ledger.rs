//! Tests that the ledger reports which code created the objects that keep a library mapped.

use anyfn::{Any, Array, Map, Module, PackedFunc, String as Text};
use anyfn_loader as _;

mod support;
use support::unload::call;
use support::{compile, fails, load, testing_plugin};

fn handles(module: Option<&Module>) -> Vec<Map<Text, Any>> {
    call("ffi.LiveHandles", (module.cloned(),))
        .unwrap()
        .get::<Array<Map<Text, Any>>>()
        .unwrap()
        .iter()
        .collect()
}

fn text(handle: &Map<Text, Any>, key: &str) -> Option<String> {
    handle.at(key).unwrap().get::<Option<String>>().unwrap()
}

/// Tests the ledger in a single test, because the ledger belongs to the process and cannot be stopped.
#[test]
fn the_ledger() {
    let source = r#"
        #include <anyfn/anyfn.h>
        int seven(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
          (void)self; (void)args; (void)n;
          return anyfn_return_int(result, 7);
        }
        ANYFN_EXPORT(make) {
          (void)args; (void)num_args;
          result->type_index = kTVMFFIFunction;
          return TVMFFIFunctionCreate(0, seven, 0, (TVMFFIObjectHandle*)&result->v_obj);
        }"#;
    let Some(path) = compile("ledger", source, &[]) else { return };
    fails(call("ffi.LiveHandles", ()), "RuntimeError", "set ANYFN_LEDGER=1, or call ffi.LedgerStart");
    fails(call("ffi.LiveHandlesText", ()), "RuntimeError", "the ledger is not running");
    assert!(!call("ffi.LedgerIsOn", ()).unwrap().get::<bool>().unwrap());
    // Loaded before the ledger starts; the objects that it creates later are recorded.
    let plugin = load(&testing_plugin()).unwrap();
    let before = call("testing.make_point", (1.0, 2.0)).unwrap();
    for _ in 0..2 {
        call("ffi.LedgerStart", ()).unwrap();
    }
    assert!(call("ffi.LedgerIsOn", ()).unwrap().get::<bool>().unwrap());

    let module = load(&path).unwrap();
    let seven = module.get_function("make").unwrap().call(()).unwrap().get::<PackedFunc>().unwrap();
    let again = seven.clone();
    let found = handles(Some(&module));
    let kinds: Vec<_> = found.iter().map(|handle| text(handle, "lease").unwrap()).collect();
    assert_eq!(kinds, ["modules", "functions"]);
    assert_eq!(text(&found[1], "type").unwrap(), "ffi.Function");
    assert_eq!(found[1].at("references").unwrap().get::<i64>().unwrap(), 2);
    assert!(text(&found[1], "code").unwrap().starts_with("seven+0x0 ("));
    assert!(text(&found[1], "place").is_none(), "no frontend has said where it is");
    let frames = found[1].at("frames").unwrap().get::<Array<Text>>().unwrap();
    // The address sanitizer replaces the function that walks the stack; the replacement does not find all
    // frames.
    let is_found = |name: &str| frames.iter().any(|frame| frame.contains(name));
    assert!(is_found("__tvm_ffi_make+0x") || is_found("_interceptor_backtrace"), "{frames:?}");
    let all = call("ffi.LiveHandlesText", (&module,)).unwrap().get::<String>().unwrap();
    assert!(all.starts_with("2 live handles of ") && all.contains("references: 2, functions of "), "{all}");
    drop((seven, again));
    assert_eq!(handles(Some(&module)).len(), 1);

    let point = call("testing.make_point", (1.0, 2.0)).unwrap();
    let points = |found: Vec<Map<Text, Any>>| {
        found.iter().filter(|handle| text(handle, "type").as_deref() == Some("testing.Point")).count()
    };
    assert_eq!((points(handles(Some(&plugin))), points(handles(None))), (1, 1));
    drop((point, before));
    assert_eq!(points(handles(None)), 0);
    fails(
        call("ffi.LiveHandles", (Module::system_lib("no_such_prefix_").unwrap(),)),
        "RuntimeError",
        "the module was not loaded from a library file",
    );
}
