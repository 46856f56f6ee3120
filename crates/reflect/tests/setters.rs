//! Tests that every reflected field has a setter, even if it is read-only, because other frontends call
//! setters without a check.

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeGetOrAllocIndex};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, registry};
use anyfn_core as _;
use anyfn_reflect as _;

#[test]
fn every_field_has_a_setter() -> anyfn::Result<()> {
    let keys = registry::get("ffi.GetRegisteredTypeKeys")?.call(())?.get::<Vec<String>>()?;
    let mut fields = 0;
    for info in keys.iter().filter_map(|key| TypeInfo::from_key(key)) {
        for field in info.own_fields() {
            assert!(field.is_settable(), "{}.{}", info.key(), field.name());
            fields += 1;
        }
    }
    assert!(fields > 10);
    Ok(())
}

#[test]
fn an_enumeration_is_made_by_its_setters() -> anyfn::Result<()> {
    // The first use of the registry defines the types of the program.
    registry::get("ffi.String")?;
    let parent = TypeInfo::from_key("ffi.StrEnum").expect("a type of this crate");
    let key = TVMFFIByteArray::from_slice(b"test.setters.Operator");
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, -1, 0, 1, parent.index()) };
    let info = TypeInfo::from_index(index).expect("registered just now");
    assert!(info.fields().all(|field| !field.is_writable()));
    // The peer's frontend does this for a class that it defines: it zeroes the memory, then sets each field by its setter.
    // SAFETY: the type has no content other than its fields, for which zeroed memory is valid.
    unsafe { registry::get_unsafe("ffi._PyClassRegisterTypeAttrColumns") }?.call((info.index(), 48))?;
    let made = info.make()?;
    for (name, value) in
        [("_int_index", Any::new(3)?), ("_str_index", Any::new("a name beyond seven letters")?)]
    {
        let field = info.field(name).expect("a field");
        // SAFETY: `made` is an object of the type, and no other code refers to it.
        unsafe { field.set_unchecked(&made, &value.as_view()) }?;
        // SAFETY: `made` is an object of the type, and no other code refers to it; the setter refuses a value of another type.
        let wrong = unsafe { field.set_unchecked(&made, &Any::NONE.as_view()) };
        assert_eq!(wrong.unwrap_err().kind(), "TypeError");
    }
    assert_eq!(made.get_field("_int_index")?.get::<i64>()?, 3);
    assert_eq!(made.get_field("value")?.get::<String>()?, "a name beyond seven letters");
    assert!(made.set_field("value", "another").is_err());
    Ok(())
}
