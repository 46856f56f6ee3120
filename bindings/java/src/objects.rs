//! Functions for the package: global functions, objects, types and their fields.

use std::ptr;

use anyfn::abi::{
    TVMFFIAny, TVMFFIBigIntGetContentByteArray, TVMFFIByteArray, TVMFFIMethodInfo, TVMFFIObject,
    TVMFFITypeRegisterMethod, kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIFieldFlagBitMaskIsStaticMethod, kTVMFFIStr,
};
use anyfn::reflection::{Field, Method, TypeInfo};
use anyfn::{Any, Array, Bytes, Error, ObjectRef, PackedFunc, registry};

use crate::entry::{Res, byte_array, bytes, native, owned_handle, text};
use crate::place::{self, Room};
use crate::stack;
use crate::sys::Obj;

/// Returns a new reference to the object at an address that Java passes.
pub(crate) fn object(handle: i64) -> Res<ObjectRef> {
    // SAFETY: Java passes the address of a live object, which it keeps alive for the call.
    let object = unsafe { ObjectRef::from_borrowed_or_null(ptr::with_exposed_provenance_mut(handle as usize)) };
    object.ok_or_else(|| Error::new("TypeError", "expected an object, got null").into())
}

fn function(handle: i64) -> Res<PackedFunc> {
    Ok(Any::from(object(handle)?).get::<PackedFunc>()?)
}

/// Writes a value to the beginning of a frame, for Java.
pub(crate) fn write(frame: i64, room: i32, value: &Any) -> Res<()> {
    let result = stack::place(frame);
    let size = (room as usize).saturating_sub(size_of::<TVMFFIAny>());
    let mut room = Room { next: result.wrapping_add(1).cast(), size };
    let place = place::encode(value.as_raw(), &mut room)?;
    // SAFETY: Java passes a frame, which begins with the place of the result.
    unsafe { result.write(place) };
    Ok(())
}

native! {
    /// `release(object)`: releases a reference.
    fn Java_org_anyfn_Native_release(env, class, handle: i64) -> () {
        // SAFETY: Java passes a reference that it owns, and does not use it again.
        drop(unsafe { ObjectRef::from_owned_or_null(ptr::with_exposed_provenance_mut(handle as usize)) });
        Ok(())
    }
}

native! {
    /// `retain(object)`: makes a further reference.
    fn Java_org_anyfn_Native_retain(env, class, handle: i64) -> () {
        owned_handle(object(handle)?);
        Ok(())
    }
}

native! {
    /// `typeIndexOf(object)`: returns the index of an object's type.
    fn Java_org_anyfn_Native_typeIndexOf(env, class, handle: i64) -> i32 {
        let object: *const TVMFFIObject = ptr::with_exposed_provenance(handle as usize);
        // SAFETY: Java passes a live object.
        Ok(unsafe { (*object).type_index })
    }
}

native! {
    /// `content(object)`: returns the content of a string (in UTF-8), of bytes, or of a large integer (least significant byte first).
    fn Java_org_anyfn_Native_content(env, class, handle: i64) -> Obj {
        let value = Any::from(object(handle)?);
        match value.type_index() {
            kTVMFFIStr | kTVMFFIBytes => byte_array(env, place::heap_bytes(value.as_raw())),
            kTVMFFIBigInt => {
                // SAFETY: the value is a valid `BigInt`, from which the result borrows.
                let words = unsafe { TVMFFIBigIntGetContentByteArray(value.as_raw()) };
                // SAFETY: `value` keeps the words alive.
                byte_array(env, unsafe { words.as_slice() })
            }
            _ => Err(Error::new("TypeError", "expected a string, bytes or a large integer").into()),
        }
    }
}

native! {
    /// `newContent(bytes, kind)`: makes an object of bytes (0), of a string in UTF-8 (1), or of a large integer in two's complement, the
    /// least significant byte first (2).
    fn Java_org_anyfn_Native_newContent(env, class, content: Obj, kind: i32) -> i64 {
        let content = bytes(env, content)?;
        let value = match kind {
            0 => Any::from(Bytes::from(content.as_slice())),
            1 => Any::from(anyfn::String::from(std::str::from_utf8(&content).map_err(Error::from)?)),
            _ => place::big(&content)?,
        };
        // Short content is no object; Java calls this function for long content only.
        let object = value.into_object();
        object.map(owned_handle).ok_or_else(|| Error::new("InternalError", "short content is not an object").into())
    }
}

native! {
    /// `findGlobal(name)`: returns a global function, or 0.
    fn Java_org_anyfn_Native_findGlobal(env, class, name: Obj) -> i64 {
        Ok(registry::find(&text(env, name)?).map_or(0, |function| owned_handle(function.into_object())))
    }
}

native! {
    /// `getGlobal(name)`: returns a global function, or throws.
    fn Java_org_anyfn_Native_getGlobal(env, class, name: Obj) -> i64 {
        Ok(owned_handle(registry::get(&text(env, name)?)?.into_object()))
    }
}

native! {
    /// `setGlobal(name, function, override)`: registers a global function.
    fn Java_org_anyfn_Native_setGlobal(env, class, name: Obj, handle: i64, overrides: u8) -> () {
        let name = text(env, name)?;
        let registration = registry::register(&name);
        let registration = if overrides != 0 { registration.overriding() } else { registration };
        Ok(registration.set(&function(handle)?)?)
    }
}

native! {
    /// `removeGlobal(name)`: returns true if the global function existed.
    fn Java_org_anyfn_Native_removeGlobal(env, class, name: Obj) -> u8 {
        Ok(u8::from(registry::remove(&text(env, name)?)?))
    }
}

native! {
    /// `listGlobals()`: returns an array of the names of all global functions.
    fn Java_org_anyfn_Native_listGlobals(env, class) -> i64 {
        let names: Array<anyfn::String> = registry::list()?.iter().map(|name| anyfn::String::from(name.as_str())).collect();
        Ok(owned_handle(names.into_object()))
    }
}

native! {
    /// `signature(function)`: returns the signature of a function as JSON, or null.
    fn Java_org_anyfn_Native_signature(env, class, handle: i64) -> Obj {
        match function(handle)?.signature() {
            Some(text) => byte_array(env, text.as_bytes()),
            None => Ok(ptr::null_mut()),
        }
    }
}

native! {
    /// `typeIndex(key)`: returns the index of a type, or -1.
    fn Java_org_anyfn_Native_typeIndex(env, class, key: Obj) -> i32 {
        Ok(TypeInfo::from_key(&text(env, key)?).map_or(-1, TypeInfo::index))
    }
}

native! {
    /// `typeKey(index)`: returns the key of a type.
    fn Java_org_anyfn_Native_typeKey(env, class, index: i32) -> Obj {
        byte_array(env, anyfn::type_key(index).as_bytes())
    }
}

native! {
    /// `isInstance(index, parent)`: returns true if a type is or derives from another one.
    fn Java_org_anyfn_Native_isInstance(env, class, index: i32, parent: i32) -> u8 {
        Ok(u8::from(anyfn::is_instance(index, parent)))
    }
}

fn info(index: i32) -> Res<TypeInfo> {
    TypeInfo::from_index(index)
        .ok_or_else(|| Error::new("TypeError", &format!("unknown type index {index}")).into())
}

fn field(index: i32, position: i32) -> Res<Field> {
    let field =
        usize::try_from(position).ok().and_then(|position| info(index).ok()?.own_fields().nth(position));
    field.ok_or_else(|| Error::new("TypeError", "the type has no such field").into())
}

fn method(index: i32, position: i32) -> Res<Method> {
    let method =
        usize::try_from(position).ok().and_then(|position| info(index).ok()?.own_methods().nth(position));
    method.ok_or_else(|| Error::new("TypeError", "the type has no such method").into())
}

native! {
    /// `typePart(index, part)`: returns the index of the parent or -1 (0), the number of fields (1) or of methods (2) that the type
    /// itself defines, or 1 if objects can be made from the values of their fields (3).
    fn Java_org_anyfn_Native_typePart(env, class, index: i32, part: i32) -> i32 {
        let info = info(index)?;
        Ok(match part {
            0 => info.parent().map_or(-1, TypeInfo::index),
            1 => info.own_fields().len() as i32,
            2 => info.own_methods().len() as i32,
            _ => i32::from(info.can_make()),
        })
    }
}

native! {
    /// `fieldText(index, position, part)`: returns the name (0), the documentation (1) or the type (2, as JSON) of a field.
    fn Java_org_anyfn_Native_fieldText(env, class, index: i32, position: i32, part: i32) -> Obj {
        let field = field(index, position)?;
        match part {
            0 => byte_array(env, field.name().as_bytes()),
            1 => byte_array(env, field.doc().as_bytes()),
            _ => {
                let mut schema = String::new();
                field.schema().write_json(&mut schema);
                byte_array(env, schema.as_bytes())
            }
        }
    }
}

native! {
    /// `typeDoc(index)`: returns the documentation of a type.
    fn Java_org_anyfn_Native_typeDoc(env, class, index: i32) -> Obj {
        byte_array(env, info(index)?.doc().as_bytes())
    }
}

native! {
    /// `isWritable(index, position)`: returns true if a field can be set.
    fn Java_org_anyfn_Native_isWritable(env, class, index: i32, position: i32) -> u8 {
        Ok(u8::from(field(index, position)?.is_writable()))
    }
}

native! {
    /// `methodName(index, position)`: returns the name of a method.
    fn Java_org_anyfn_Native_methodName(env, class, index: i32, position: i32) -> Obj {
        byte_array(env, method(index, position)?.name().as_bytes())
    }
}

native! {
    /// `methodFunction(index, position)`: returns the function of a method.
    fn Java_org_anyfn_Native_methodFunction(env, class, index: i32, position: i32) -> i64 {
        Ok(owned_handle(method(index, position)?.function()?.into_object()))
    }
}

native! {
    /// `isStatic(index, position)`: returns true if a method is called without an object.
    fn Java_org_anyfn_Native_isStatic(env, class, index: i32, position: i32) -> u8 {
        Ok(u8::from(method(index, position)?.is_static()))
    }
}

/// Returns an object, and a field of its type or of a type from which it derives.
fn field_of(handle: i64, index: i32, position: i32) -> Res<(ObjectRef, Field)> {
    let (object, field) = (object(handle)?, field(index, position)?);
    if !anyfn::is_instance(object.type_index(), index) {
        let message = format!("an object of type {} has no such field", object.type_key());
        return Err(Error::new("TypeError", &message).into());
    }
    Ok((object, field))
}

native! {
    /// `getField(object, typeIndex, position, frame, room)`: reads a field into a frame.
    fn Java_org_anyfn_Native_getField(env, class, handle: i64, index: i32, position: i32, frame: i64, room: i32) -> () {
        let (object, field) = field_of(handle, index, position)?;
        // SAFETY: the object is an instance of the field's type.
        let value = unsafe { field.get_unchecked(&object) }?;
        write(frame, room, &value)
    }
}

native! {
    /// `setField(object, typeIndex, position, frame)`: sets a field to the value at the beginning of a frame.
    fn Java_org_anyfn_Native_setField(env, class, handle: i64, index: i32, position: i32, frame: i64) -> () {
        // SAFETY: Java has written the place.
        let place = unsafe { stack::place(frame).read() };
        // SAFETY: Java has written the place, whose references pass to the value.
        let value = unsafe { place::decode(&place) }?;
        let (object, field) = field_of(handle, index, position)?;
        if !field.is_writable() {
            let message = format!("the field '{}' of {} is read-only", field.name(), object.type_key());
            return Err(Error::new("TypeError", &message).into());
        }
        // SAFETY: the object is an instance of the field's type.
        Ok(unsafe { field.set_unchecked(&object, &value.as_view()) }?)
    }
}

native! {
    /// `addMethod(typeIndex, name, function, isStatic)`: registers a method of a type.
    fn Java_org_anyfn_Native_addMethod(env, class, index: i32, name: Obj, handle: i64, is_static: u8) -> () {
        let name = text(env, name)?;
        let function = Any::from(object(handle)?);
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::EMPTY,
            metadata: TVMFFIByteArray::EMPTY,
            flags: if is_static != 0 { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
            method: *function.as_raw(),
        };
        // SAFETY: everything is borrowed for the call; the type keeps a reference to the function.
        if unsafe { TVMFFITypeRegisterMethod(index, &info) } != 0 {
            return Err(Error::take_raised().into());
        }
        Ok(())
    }
}

native! {
    /// `typeAttribute(index, name, frame, room)`: reads an attribute of a type into a frame. Returns true if it exists.
    fn Java_org_anyfn_Native_typeAttribute(env, class, index: i32, name: Obj, frame: i64, room: i32) -> u8 {
        match info(index)?.attribute(&text(env, name)?) {
            Some(value) => write(frame, room, &value).map(|()| 1),
            None => Ok(0),
        }
    }
}
