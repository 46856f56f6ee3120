//! Tests that a Rust plugin is refused if a type with the same key as one of its types, but with
//! other fields, is registered already.

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeGetOrAllocIndex, TVMFFITypeRegisterAttr, kTVMFFIObject};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, registry};
use anyfn_loader as _;

mod support;
use support::unload::{call, mappings, reap};
use support::{fails, load, testing_plugin};

#[test]
fn a_plugin_with_a_type_of_another_layout_is_refused() {
    // The state that another build of the plugin leaves, whose `testing.Point` has other fields.
    let (key, name) = ("testing.Point", "__anyfn_content__");
    let content = Any::new(12345).unwrap();
    let bytes = TVMFFIByteArray::from_slice(key.as_bytes());
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&bytes, -1, 1, 0, 1, kTVMFFIObject) };
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: name and value are borrowed for the call.
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(index, &name, content.as_raw()) }, 0);
    let path = testing_plugin();
    for _ in 0..2 {
        let refused =
            "type `testing.Point` cannot be registered: its key belongs to another type, or its fields differ";
        fails(load(&path), "TypeError", refused);
        fails(load(&path), "TypeError", path.to_str().unwrap());
        assert!(TypeInfo::from_key(key).unwrap().fields().next().is_none());
        assert!(registry::find("testing.echo").is_none());
        reap();
        assert_eq!(mappings(&path), 0);
        // Registrations of its other types are revoked with it.
        fails(
            call("ffi.MakeObjectFromPackedArgs", ("testing.Account", "owner", "x")),
            "RuntimeError",
            "was unloaded",
        );
    }
}
