//! Tests that loading a C++ library fails, instead of ending the process, if a registration in its
//! constructors fails.

use std::path::{Path, PathBuf};

use anyfn::registry;
use anyfn_loader as _;

mod support;
use support::{compile, fails, load};

/// C source of a library that registers types and functions in a constructor, as C++ code does. The
/// constructor ends the process if a registration fails, as an uncaught C++ exception would.
const SOURCE: &str = r#"
#include <anyfn/anyfn.h>
#include <stddef.h>
int _Z11is_cpp_codev(void) { return 0; }
typedef struct { TVMFFIObject header; LAYOUT } cell_t;
static int get(void* field, TVMFFIAny* result) { return anyfn_return_int(result, *(int64_t*)field); }
static int answer(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self; (void)args; (void)n;
  return anyfn_return_int(result, 42);
}
static void must(int code) { if (code) abort(); }
__attribute__((constructor)) static void start(void) {
  TVMFFIByteArray key = anyfn_byte_array("KEY");
  int32_t index = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 0, kTVMFFIObject);
  TVMFFITypeMetadata metadata = {0};
  TVMFFIFieldInfo field = {0};
  TVMFFIMethodInfo method = {0};
  TVMFFIObjectHandle f;
  must(anyfn_register("KEY.first", answer, 0));
  metadata.total_size = sizeof(cell_t);
  must(TVMFFITypeRegisterMetadata(index, &metadata));
  field.name = anyfn_byte_array("value");
  field.offset = offsetof(cell_t, value);
  field.size = field.alignment = 8;
  field.getter = get;
  field.field_static_type_index = kTVMFFIInt;
  must(TVMFFITypeRegisterField(index, &field));
  must(anyfn_make_function(answer, NULL, NULL, &f));
  method.name = anyfn_byte_array("answer");
  method.method = anyfn_object(f);
  must(TVMFFITypeRegisterMethod(index, &method));
  key = anyfn_byte_array("test_attribute");
  must(TVMFFITypeRegisterAttr(index, &key, &method.method));
  anyfn_release_object(f);
  must(anyfn_register("GLOBAL", answer, 0));
}
ANYFN_EXPORT(version) { return anyfn_return_int(result, VERSION); }
"#;

fn cpp(name: &str, key: &str, layout: &str, global: &str, version: i64) -> Option<PathBuf> {
    let source = SOURCE.replace("KEY.first", &format!("{key}.first.{version}"));
    let source = source.replace("KEY", key).replace("LAYOUT", layout).replace("GLOBAL", global);
    let _ = std::fs::remove_file(support::scratch(&format!("{name}.so")));
    compile(name, &source.replace("VERSION", &version.to_string()), &[])
}

fn version(path: &Path) -> i64 {
    load(path).unwrap().get_function("version").unwrap().call(()).unwrap().get::<i64>().unwrap()
}

#[test]
fn a_type_of_an_older_build_is_the_same_or_refused() {
    let build = |layout: &str, version: i64| {
        cpp("constructing", "test.Constructing", layout, &format!("test.constructing.{version}"), version)
    };
    let Some(path) = build("int64_t value;", 1) else { return };
    assert_eq!(version(&path), 1);
    assert_eq!(version(&build("int64_t value;", 2).unwrap()), 2);
    let info = anyfn::reflection::TypeInfo::from_key("test.Constructing").unwrap();
    assert_eq!((info.own_fields().len(), info.own_methods().len()), (1, 1));
    for (layout, number) in [("int64_t value, more;", 3), ("int64_t other; int64_t value;", 4)] {
        let path = build(layout, number).unwrap();
        for _ in 0..2 {
            fails(
                load(&path).map(drop),
                "RuntimeError",
                "its registrations failed: the type test.Constructing is already registered, with another",
            );
        }
        // No function of the library remains registered.
        assert!(registry::find(&format!("test.Constructing.first.{number}")).is_none());
        assert!(registry::find(&format!("test.constructing.{number}")).is_none());
    }
    // A library with the same layout as the first can still be loaded.
    let path = build("int64_t value;", 5).unwrap();
    assert_eq!(version(&path), 5);
    let keys = load(&path).unwrap().type_keys().unwrap();
    assert_eq!(keys.iter().map(|key| key.to_string()).collect::<Vec<_>>(), ["test.Constructing"]);
    assert!(registry::find("test.constructing.5").is_some());
}

#[test]
fn a_field_that_has_moved_is_another_layout() {
    let build = |layout: &str, version: i64| {
        cpp("moved", "test.Moved", layout, &format!("test.constructing.moved.{version}"), version)
    };
    let Some(path) = build("int64_t value, more;", 1) else { return };
    assert_eq!(version(&path), 1);
    fails(load(&build("int64_t more, value;", 2).unwrap()).map(drop), "RuntimeError", "with another layout");
}

#[test]
fn a_name_that_is_taken_is_refused() {
    registry::register("test.constructing.taken").set_body_typed(|| 7).unwrap();
    let Some(path) = cpp("taken", "test.Taken", "int64_t value;", "test.constructing.taken", 1) else { return };
    for _ in 0..2 {
        fails(
            load(&path).map(drop),
            "RuntimeError",
            "Global Function `test.constructing.taken` is already registered",
        );
    }
    assert!(registry::find("test.Taken.first.1").is_none());
    let taken = registry::get("test.constructing.taken").unwrap();
    assert_eq!(taken.call(()).unwrap().get::<i64>().unwrap(), 7);
}
