//! The global function `ffi.TypeDefine`, which defines types and their fields at run time, for all languages.

use core::ffi::c_void;
use core::ptr;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use anyfn::__private::{
    ALIGN_ATTRIBUTE, CONTENT_AT_RUN_TIME, CONTENT_ATTRIBUTE, FunctionDef, SortedMap, functions, quote,
    type_word,
};
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFITypeMetadata, kTVMFFIDynObjectBegin,
    kTVMFFIFieldFlagBitMaskDefaultFromFactory as FACTORY, kTVMFFIFieldFlagBitMaskHasDefault as DEFAULT,
    kTVMFFIFieldFlagBitMaskWritable as WRITABLE, kTVMFFIFieldFlagBitSetterIsFunctionObj as SETTER_IS_FUNCTION,
    kTVMFFIInt, kTVMFFIObject,
};
use anyfn::record::{FieldKind, MAKER_ATTRIBUTE, Maker, SLOTS_ATTRIBUTE, Slot, schema_text};
use anyfn::shared::SharedType;
use anyfn::{Any, AnyView, Array, Map, OpaquePtr, PackedFunc, Result, bail};

use super::{Field, HEADER, Layout, Mover, NATIVE_ALIGN};
use crate::attributes;
use crate::construct::register_init;
use crate::sys::Mutex;
use crate::type_table::{self, NewType};

/// Layouts of all types that `ffi.TypeDefine` has defined, by type index.
static DEFINED: Mutex<SortedMap<i32, &'static Layout>> = Mutex::new(SortedMap::new());

/// Field flags that the caller of `ffi.TypeDefine` may specify.
const TAKEN: i64 = {
    let (mut all, mut at) = (0, 0);
    while at < anyfn::abi::FIELD_FLAGS.len() {
        all |= anyfn::abi::FIELD_FLAGS[at].1;
        at += 1;
    }
    all & !(DEFAULT | FACTORY | SETTER_IS_FUNCTION | anyfn::abi::kTVMFFIFieldFlagBitMaskIsStaticMethod)
};

/// The global function that this file implements.
pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.TypeDefine" ["key", "parent", "fields", "options"] => define,
};

/// A field of a type that is being defined, as the caller of `ffi.TypeDefine` describes it.
struct FieldSpec {
    field: Field,
    schema: String,
    doc: String,
    default: Any,
    /// Flags that state which kind of default the field has: `DEFAULT` for a value, `DEFAULT | FACTORY` for a
    /// factory, 0 for none.
    state: i64,
}

/// Defines a type with the key `key` and returns its index. If the type is defined already, checks that the definitions
/// are the same.
///
/// `parent` is a type index, a type key, or None for the type of all objects. Each element of `fields` is a Map with
/// the entries `name` and optionally `type` (a schema), `shown` (the type as messages show it), `flags`, `doc`, and
/// `default` or `default_factory`. `options` may have the entries `doc` (the documentation of the type) and
/// `structural` (the kind of structural comparison).
fn define(key: anyfn::String, parent: Any, fields: Array<Any>, options: Map<Any, Any>) -> Result<i32> {
    let key = &*key;
    let mut defined = DEFINED.lock();
    let parent = parent_index(key, &parent)?;
    let (mut doc, mut structural) = (String::new(), 0);
    for (name, value) in options.iter() {
        match &*name.get::<anyfn::String>()? {
            "doc" => doc = value.get::<anyfn::String>()?.to_string(),
            "structural" => structural = value.get::<i32>()?,
            other => bail!("TypeError", "type '{key}': unknown option `{other}`"),
        }
    }
    if !anyfn::abi::SEQ_HASH_KINDS.iter().any(|(_, kind)| *kind == i64::from(structural)) {
        bail!("ValueError", "type '{key}': unknown structural kind {structural}");
    }
    let known = type_table::index_of(key.as_bytes());
    if known.is_some_and(|known| defined.get(&known).is_none()) {
        bail!("TypeError", "type '{key}' is defined by native code; choose another key");
    }
    if let Some(known) = known.and_then(|known| defined.get(&known))
        && known.parent != parent
    {
        bail!(
            "TypeError",
            "type '{key}' is already defined, with the parent '{}' instead of '{}'; choose another key",
            anyfn::type_key(known.parent),
            anyfn::type_key(parent)
        );
    }
    let above = defined.get(&parent).copied();
    let native = match above {
        Some(above) => above.native,
        None => native_parent(key, parent)?,
    };
    let mover = match native {
        Some((native, _)) => mover(native)?,
        None => None,
    };
    // A field may have the type that is being defined, whose index is not known yet.
    let find = |own: i32| move |name: &str| if name == key { Some(own) } else { anyfn::type_index_of(name) };
    let told = fields.iter().map(|field| told(key, &field, &find(kTVMFFIObject)));
    let mut told: Vec<FieldSpec> = told.collect::<Result<_>>()?;
    for (at, one) in told.iter().enumerate() {
        let same = |field: &Field| field.name == one.field.name;
        if told[..at].iter().any(|before| same(&before.field))
            || super::lineage(parent)?.any(|info| has_field(info, &one.field.name))
        {
            bail!("TypeError", "field '{}' of {key} is already defined", one.field.name);
        }
    }
    let index = match known {
        Some(known) => known,
        None => claim(&NewType {
            key: key.as_bytes(),
            static_index: -1,
            depth: -1,
            child_slots: 0,
            can_overflow: true,
            parent,
        })?,
    };
    let mut all: Vec<Field> = above.map_or_else(Vec::new, |above| above.fields.clone());
    let inherited = all.len();
    for one in &mut told {
        one.field.kind = FieldKind::parse(&one.schema, &find(index))?;
        check_default(key, one)?;
        all.push(one.field.clone());
    }
    // SAFETY: keys are never freed.
    let key = unsafe { type_table::info_or_error(index)?.type_key.as_slice() };
    let key = core::str::from_utf8(key).unwrap_or("");
    let layout = Layout { type_index: index, parent, key, native, mover, fields: all, inherited, structural };
    if let Some(known) = defined.get(&index) {
        if known.fields != layout.fields || known.structural != structural {
            return Err(changed(known, &layout));
        }
        return Ok(index);
    }
    let layout: &'static Layout = Box::leak(Box::new(layout));
    show(layout, &told, &doc)?;
    defined.insert(index, layout);
    Ok(index)
}

/// Registers the key of a type that is being defined and marks the type as one that was defined at run time. Returns an
/// error if other code has marked the type in the meantime.
fn claim(new: &NewType<'_>) -> Result<i32> {
    let index = type_table::get_or_register(new)?;
    let content = TVMFFIAny::from_bits(kTVMFFIInt, CONTENT_AT_RUN_TIME);
    // SAFETY: an integer is always a valid value.
    unsafe { attributes::set(index, CONTENT_ATTRIBUTE.as_bytes(), &content) }?;
    Ok(index)
}

fn has_field(info: &SharedType, name: &str) -> bool {
    // SAFETY: the names of registered fields are never freed.
    info.fields().iter().any(|field| unsafe { field.name.as_slice() } == name.as_bytes())
}

fn parent_index(key: &str, parent: &Any) -> Result<i32> {
    let index = if parent.is_none() {
        kTVMFFIObject
    } else if let Ok(index) = parent.get::<i32>() {
        index
    } else {
        let name = parent.get::<anyfn::String>()?;
        match type_table::index_of(name.as_bytes()) {
            Some(index) => index,
            None => bail!("TypeError", "the parent '{}' of type '{key}' is not registered", &*name),
        }
    };
    type_table::info_or_error(index)?;
    Ok(index)
}

/// Returns the index of `parent` and the size of its objects, for a parent that native code has defined. Returns `None`
/// for `ffi.Object`, and an error if no type can derive from the parent. `key` is the key of the type that is being
/// defined.
fn native_parent(key: &str, parent: i32) -> Result<Option<(i32, usize)>> {
    if parent == kTVMFFIObject {
        return Ok(None);
    }
    let info = type_table::info_or_error(parent)?;
    let name = anyfn::type_key(parent);
    if parent < kTVMFFIDynObjectBegin {
        bail!("TypeError", "type '{key}' cannot derive from the built-in type '{name}'");
    }
    if super::attribute(parent, b"__ffi_type_final__").is_some_and(|value| value.get::<bool>().unwrap_or(false))
    {
        bail!("TypeError", "type '{key}' cannot derive from '{name}', which is final");
    }
    if super::attribute(parent, ALIGN_ATTRIBUTE.as_bytes()).is_some() || over_aligned(info) {
        bail!(
            "TypeError",
            "type '{key}' cannot derive from '{name}': objects of that type require an alignment of more than \
             {NATIVE_ALIGN} bytes"
        );
    }
    let metadata = info.metadata();
    let creator = metadata.is_some_and(|metadata| metadata.creator().is_some());
    let size = metadata.map_or(0, |metadata| metadata.total_size);
    match usize::try_from(size) {
        Ok(size) if size >= HEADER && (creator || super::attribute(parent, b"__ffi_new__").is_some()) => {
            Ok(Some((parent, size)))
        }
        _ => bail!(
            "TypeError",
            "type '{key}' cannot derive from '{name}': that type has registered no object size or no creator"
        ),
    }
}

/// Returns the function that moves the content of objects of a native type, if there is one.
fn mover(native: i32) -> Result<Option<Mover>> {
    let Some(value) = super::attribute(native, super::MOVE_ATTRIBUTE) else { return Ok(None) };
    let address = value.get::<OpaquePtr>()?.as_ptr();
    // SAFETY: whoever registers the attribute passes the address of such a function, which is never unloaded.
    Ok((!address.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Mover>(address) }))
}

/// Returns true if a field of the type or of its ancestors needs a larger alignment than `NATIVE_ALIGN`.
fn over_aligned(info: &'static SharedType) -> bool {
    type_table::lineage(info)
        .any(|info| info.fields().iter().any(|field| field.alignment > NATIVE_ALIGN as i64))
}

fn told(key: &str, told: &Any, index_of: &dyn Fn(&str) -> Option<i32>) -> Result<FieldSpec> {
    let Ok(told) = told.get::<Map<Any, Any>>() else {
        bail!("TypeError", "type '{key}': expected each field as a Map with its name and type");
    };
    let (mut name, mut schema, mut shown) = (String::new(), String::from("Any"), None);
    let (mut doc, mut flags, mut default, mut state) = (String::new(), WRITABLE, Any::NONE, 0);
    for (what, value) in told.iter() {
        match &*what.get::<anyfn::String>()? {
            "name" => name = value.get::<anyfn::String>()?.to_string(),
            "type" => schema = value.get::<anyfn::String>()?.to_string(),
            "shown" => shown = Some(value.get::<anyfn::String>()?.to_string()),
            "doc" => doc = value.get::<anyfn::String>()?.to_string(),
            "flags" => flags = value.get::<i64>()?,
            "default" if state == 0 => (default, state) = (value, DEFAULT),
            "default_factory" if state == 0 => {
                value.get::<PackedFunc>()?;
                (default, state) = (value, DEFAULT | FACTORY);
            }
            other => bail!("TypeError", "type '{key}': unknown or repeated field option `{other}`"),
        }
    }
    if name.is_empty() || name.len() > 65_536 {
        bail!("TypeError", "type '{key}': the name of a field is missing or too long");
    }
    if flags & !TAKEN != 0 {
        bail!("TypeError", "field '{name}' of {key}: unknown flags {:#x}", flags & !TAKEN);
    }
    let kind = match FieldKind::parse(&schema, index_of) {
        Ok(kind) => kind,
        Err(error) => bail!("TypeError", "field '{name}' of {key}: {}", error.message()),
    };
    let shown = shown.unwrap_or_else(|| schema_text(&schema));
    let mut told = FieldSpec { field: Field { name, kind, shown, flags }, schema, doc, default, state };
    check_default(key, &mut told)?;
    Ok(told)
}

/// Converts the default of a field to the field's type, or returns an error if that is not possible. A
/// factory of defaults is not called.
fn check_default(key: &str, told: &mut FieldSpec) -> Result<()> {
    if told.state != DEFAULT {
        return Ok(());
    }
    let Field { name, shown, kind, .. } = &told.field;
    match kind.accept(core::mem::take(&mut told.default)) {
        Ok(value) => told.default = value,
        Err(value) => {
            let got = type_word(value.as_view().type_key());
            bail!("TypeError", "field '{name}' of {key}: expected {shown} but got {got}");
        }
    }
    Ok(())
}

#[cold]
fn changed(known: &Layout, new: &Layout) -> anyfn::Error {
    let show = |layout: &Layout| {
        let fields = layout.fields.iter().map(|field| {
            let frozen = if field.flags & WRITABLE == 0 { " (frozen)" } else { "" };
            let more = match field.flags & !WRITABLE {
                0 => String::new(),
                flags => format!(" (flags {flags:#x})"),
            };
            format!("{}: {}{frozen}{more}", field.name, field.shown)
        });
        let fields = fields.collect::<Vec<String>>().join(", ");
        let kind = if known.structural == new.structural {
            String::new()
        } else {
            format!(" and kind {}", layout.structural)
        };
        format!("({fields}){kind}")
    };
    anyfn::error!(
        "TypeError",
        "type '{}' is already defined, with the fields {} instead of {}; a type exists for the lifetime of \
         the process, so choose another key or restart the process",
        known.key,
        show(known),
        show(new)
    )
}

/// Registers the fields, metadata and attributes of a type in the type table. `told` describes the type's own fields.
fn show(layout: &'static Layout, told: &[FieldSpec], doc: &str) -> Result<()> {
    for (index, told) in (layout.inherited..).zip(told) {
        // The type table takes its own reference.
        let setter = PackedFunc::new(move |args| super::set_field(layout, index, &args));
        let mut metadata = String::from("{\"type_schema\":");
        let schema = if told.schema.starts_with('{') {
            told.schema.clone()
        } else {
            format!("{{\"type\":{:?}}}", told.schema)
        };
        quote(&schema, &mut metadata);
        metadata.push('}');
        let constant = if told.field.flags & WRITABLE == 0 { anyfn::__private::LENDS_VALUE } else { 0 };
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(told.field.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(told.doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(metadata.as_bytes()),
            flags: told.field.flags
                | told.state
                | SETTER_IS_FUNCTION
                | anyfn::__private::STORES_ONLY
                | constant,
            size: size_of::<Slot>() as i64,
            alignment: align_of::<Slot>() as i64,
            offset: layout.offset(index) as i64,
            getter: Some(super::get_field),
            setter: setter.as_object().as_handle(),
            default_value_or_factory: *told.default.as_raw(),
            field_static_type_index: told.field.kind.static_type_index(),
        };
        // SAFETY: everything is borrowed for the call; getter and setter stay valid.
        unsafe { type_table::add_field(layout.type_index, &info) }?;
    }
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
        creator: None,
        total_size: i32::try_from(layout.size()).unwrap_or(i32::MAX),
        structural_eq_hash_kind: layout.structural,
    };
    // SAFETY: the string is borrowed for the call.
    unsafe { type_table::set_metadata(layout.type_index, &metadata) }?;
    let new = PackedFunc::new(move |_| Any::new(super::new(layout)?));
    let copy = PackedFunc::new(move |args| super::copy(layout, &args));
    set(layout, b"__ffi_new__", &AnyView::from(new.as_object()))?;
    set(layout, b"__ffi_shallow_copy__", &AnyView::from(copy.as_object()))?;
    set(layout, SLOTS_ATTRIBUTE.as_bytes(), &Any::new(layout.inherited)?.as_view())?;
    let data = ptr::from_ref(layout).cast();
    // SAFETY: the function accepts a layout that is never freed, on any thread, and returns the new object.
    let maker = unsafe { Maker::new(super::make_for_frontend, data, layout.native.is_some()) };
    let address = ptr::from_mut(Box::leak(Box::new(maker))).cast::<c_void>();
    // SAFETY: the maker is never freed, and readers of the attribute know its type.
    let address = unsafe { OpaquePtr::from_ptr(address) };
    set(layout, MAKER_ATTRIBUTE.as_bytes(), &Any::new(address)?.as_view())?;
    register_init(layout.type_index)
}

fn set(layout: &Layout, name: &[u8], value: &AnyView<'_>) -> Result<()> {
    let raw: &TVMFFIAny = value.as_raw();
    // SAFETY: the value is valid, and the column takes a reference to it.
    unsafe { attributes::set(layout.type_index, name, raw) }
}
