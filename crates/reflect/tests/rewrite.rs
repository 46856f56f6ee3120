//! Tests walks and maps from Rust: callbacks, hooks that are packed functions or native functions, and random
//! graphs in comparison with plain recursion.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "hooks as C++ code has them")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIObject, TVMFFITypeRegisterAttr, kTVMFFIArray,
    kTVMFFIFunction, kTVMFFIInt, kTVMFFIObject, kTVMFFIOpaquePtr, kTVMFFIUnchanged, kTVMFFIVisitInterrupt,
};
use anyfn::{
    Any, AnyView, Array, Dict, Error, List, Map, Object, ObjectRef, PackedFunc, Ref, Result, registry,
};
use anyfn_core as _;
use anyfn_reflect::{Flow, Rewrite, Walk, error_path, map, walk};
use proptest::prelude::*;

fn array(items: impl IntoIterator<Item = Any>) -> Any {
    Any::from(Array::<Any>::try_from_iter(items).unwrap().into_object())
}

fn int(value: i64) -> Any {
    Any::new(value).unwrap()
}

fn is_int(value: &Any) -> Option<i64> {
    (value.type_index() == kTVMFFIInt).then(|| value.get::<i64>().unwrap())
}

// ---- Callbacks

#[test]
fn closures_borrow_and_end_the_walk() {
    let graph = array([int(1), array([int(2), int(3)]), int(4)]);
    let mut seen = Vec::new();
    let stop = walk(&graph, |value| match is_int(value) {
        Some(3) => Flow::Stop(int(33)),
        Some(value) => {
            seen.push(value);
            Flow::Advance
        }
        None => Flow::Advance,
    });
    assert_eq!(stop.unwrap().unwrap().get::<i64>().unwrap(), 33);
    assert_eq!(seen, [1, 2]);
}

#[test]
fn a_walk_can_be_run_again() {
    let count = Cell::new(0);
    let mut walk = Walk::new();
    walk.pre_order().once().on_type(kTVMFFIInt, |_| count.set(count.get() + 1));
    let shared = array([int(1)]);
    walk.run(&array([shared.clone(), shared.clone()])).unwrap();
    assert_eq!(count.get(), 1);
    walk.run(&shared).unwrap();
    assert_eq!(count.get(), 2);
}

#[derive(Object)]
#[object(key = "test.rewrite.Leaf")]
struct Leaf(i64);

#[test]
fn callbacks_for_rust_types() {
    let graph = array([Any::from(Ref::new(Leaf(5)).into_object()), int(1)]);
    let mut sum = 0;
    Walk::new().on(|leaf: &Ref<Leaf>| sum += leaf.0).run(&graph).unwrap();
    assert_eq!(sum, 5);
    let mut rewrite = Rewrite::new();
    rewrite.on(|leaf: &Ref<Leaf>| Ok((leaf.0 == 5).then(|| Ref::new(Leaf(6)).into_object())));
    let new = rewrite.run(graph.clone()).unwrap().get::<Array<Any>>().unwrap();
    assert_eq!(new.get(0).unwrap().get::<Ref<Leaf>>().unwrap().0, 6);
    let again = rewrite.run(Any::from(new.clone().into_object())).unwrap();
    assert!(again.as_object().unwrap().ptr_eq(new.as_object()), "nothing changes the second time");
}

#[test]
fn a_text_that_only_grows_is_changed() {
    for (old, new) in [(Any::new("a"), Any::new("a\0")), (Any::new(&b"a"[..]), Any::new(&b"a\0"[..]))] {
        let (old, new) = (old.unwrap(), new.unwrap());
        let grow = |value: &Any| Ok((*value == old).then(|| new.clone()));
        let result = map(array([int(1), old.clone()]), grow).unwrap().get::<Array<Any>>().unwrap();
        assert_eq!(result.get(1).unwrap(), new);
    }
}

#[test]
fn errors_say_where() {
    let graph = array([int(1), array([int(2), Any::new("x").unwrap()])]);
    let fail = |value: &Any| match value.get::<&str>() {
        Ok(_) => Err(Error::new("ValueError", "a text")),
        Err(_) => Ok(Flow::Advance),
    };
    let error = walk(&graph, fail).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("ValueError", "a text"));
    assert_eq!(error_path(&error).as_deref(), Some("<root>[1][1]"));
    let find = registry::get("ffi.VisitErrorContext.FindAccessPaths").unwrap();
    let paths = find.call((&graph, error.context().unwrap(), false)).unwrap().get::<Array<Any>>().unwrap();
    assert_eq!(paths.len(), 1);
    // The value itself is not an object, so the path ends at its container.
    assert_eq!(anyfn_reflect::repr(&paths.get(0).unwrap()).unwrap(), "<root>[1]");
}

#[test]
fn a_root_that_is_given_away_is_changed_in_place() {
    let inner = List::<Any>::try_from_iter([1, 2]).unwrap();
    let graph = array([int(1), Any::from(inner.clone().into_object())]);
    let address = graph.as_object().unwrap().as_handle();
    let add = |value: &Any| Ok(is_int(value).map(|value| int(value + 1)));
    let new = map(graph, add).unwrap();
    assert_eq!(new.as_object().unwrap().as_handle(), address);
    assert_eq!(inner.to_vec().unwrap().len(), 2);
    assert_eq!(inner.get(0).unwrap().get::<i64>().unwrap(), 1, "others hold the list: it was copied");
    let kept = new.clone();
    let newer = map(new, add).unwrap();
    assert!(!newer.as_object().unwrap().ptr_eq(kept.as_object().unwrap()), "others hold the root");
}

#[test]
fn the_function_of_the_abi_moves_a_root_in() {
    let function = registry::get("ffi.StructuralMap").unwrap();
    let negate = PackedFunc::new(|args| Any::new(-args.get::<i64>(0)?));
    let callbacks = array([array([int(i64::from(kTVMFFIInt)), Any::from(negate.into_object())])]);
    let none = array([]);
    for moved in [true, false] {
        let root = Array::<i64>::try_from_iter([1, 2]).unwrap().into_object();
        let address = root.as_handle();
        let mut slot = root.clone().into_handle();
        let keep = (!moved).then_some(root);
        let reference = TVMFFIAny {
            type_index: anyfn::abi::kTVMFFIObjectRValueRef,
            small_str_len: 0,
            value: TVMFFIAnyValue { v_ptr: (&raw mut slot).cast() },
        };
        // SAFETY: a reference to a slot that lives for the call.
        let view = unsafe { AnyView::from_raw(reference) };
        let new = function.call_views(&[view, callbacks.as_view(), none.as_view(), int(1).as_view()]).unwrap();
        assert!(slot.is_null());
        assert_eq!(new.get::<Array<i64>>().unwrap().to_vec().unwrap(), [-1, -2]);
        assert_eq!(new.as_object().unwrap().as_handle() == address, moved);
        drop(keep);
    }
}

#[test]
fn what_a_caller_lends_is_never_changed_in_place() {
    let function = registry::get("anyfn.rewrite").unwrap();
    let shout = PackedFunc::new(|args| Any::new(format!("{} for all to hear", args.get::<&str>(0)?)));
    let text = anyfn::String::from("a text of more than seven letters");
    let root = Array::<anyfn::String>::try_from_iter([text]).unwrap();
    let first = root.get(0).unwrap();
    let address = first.as_bytes().as_ptr();
    drop(first);
    let index = i64::from(anyfn::abi::kTVMFFIStr);
    for options in [0, 8] {
        // Only `root` owns its elements, so a change in place would free what the caller reads meanwhile.
        match function.call((&root, 2, options, index, 0, &shout)) {
            Ok(new) => assert!(!new.as_object().unwrap().ptr_eq(root.as_object()), "changed in place"),
            Err(error) => assert!(options == 8 && error.kind() == "ValueError", "{error}"),
        }
        let kept = root.get(0).unwrap();
        assert_eq!(&*kept, "a text of more than seven letters");
        assert_eq!(kept.as_bytes().as_ptr(), address);
    }
}

#[test]
fn the_function_of_frontends_gives_a_moved_root_back() {
    let function = registry::get("anyfn.rewrite").unwrap();
    let negate = PackedFunc::new(|args| Any::new(-args.get::<i64>(0)?)).into_object();
    let replace = PackedFunc::new(|_| Any::new(5)).into_object();
    let fail = PackedFunc::new(|_| Err(Error::new("ValueError", "no"))).into_object();
    for (index, callback) in [(kTVMFFIInt, negate), (kTVMFFIArray, replace), (kTVMFFIInt, fail)] {
        for held in [None, Some(())] {
            let root = Array::<i64>::try_from_iter([1, 2]).unwrap().into_object();
            let kept = held.map(|()| root.clone());
            let address = root.as_handle();
            let mut slot = root.into_handle();
            let value = TVMFFIAnyValue { v_ptr: (&raw mut slot).cast() };
            let type_index = anyfn::abi::kTVMFFIObjectRValueRef;
            // SAFETY: a reference to a slot that lives for the call.
            let view = unsafe { AnyView::from_raw(TVMFFIAny { type_index, small_str_len: 0, value }) };
            let (what, none) = (int(2), int(0));
            let (index, callback) = (int(i64::from(index)), Any::from(callback.clone()));
            let views =
                [view, what.as_view(), none.as_view(), index.as_view(), none.as_view(), callback.as_view()];
            let new = function.call_views(&views);
            assert_eq!(slot, address);
            // SAFETY: the slot owns the root again.
            let root = unsafe { ObjectRef::from_owned_or_null(slot) }.unwrap();
            if let Ok(Some(new)) = new.map(Any::into_object) {
                assert_eq!(new.as_handle() == address, kept.is_none(), "in place if nobody else holds it");
                assert_eq!(Array::<i64>::try_from_object(new).unwrap().to_vec().unwrap(), [-1, -2]);
            }
            drop(kept);
            assert!(root.is_unique());
        }
    }
}

// ---- Hooks of types

#[derive(Object)]
#[object(key = "test.rewrite.Native")]
struct NativeHook(#[allow(dead_code, reason = "the hooks read it by its place")] Any);

#[derive(Object)]
#[object(key = "test.rewrite.Function")]
struct FunctionHook(Any);

/// First fields of the content of a visitor or mutator. The ABI defines their layout.
#[repr(C)]
struct Head {
    table: *const [unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny; 2],
    region: i32,
}

fn head<'a>(tool: *mut TVMFFIObject) -> &'a Head {
    // SAFETY: the ABI specifies that the content begins with these fields.
    unsafe { &*tool.add(1).cast::<Head>() }
}

fn content_of(value: &TVMFFIAny) -> &Any {
    // SAFETY: the hooks are registered for types with this content.
    unsafe { &*value.value.v_obj.add(1).cast::<Any>() }
}

unsafe extern "C" fn visit_native(visitor: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    // SAFETY: the function is that of this visitor.
    unsafe { (*head(visitor).table)[0](visitor, *content_of(&value).as_raw()) }
}

unsafe extern "C" fn mutate_native(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    assert_eq!(head(mutator).region, 0);
    // SAFETY: the function is that of this mutator.
    let new = unsafe { (*head(mutator).table)[0](mutator, *content_of(&value).as_raw()) };
    if new.type_index == kTVMFFIUnchanged || new.type_index == anyfn::abi::kTVMFFIError {
        return new;
    }
    // SAFETY: `new` is an owned value.
    Any::from(Ref::new(NativeHook(unsafe { Any::from_raw(new) })).into_object()).into_raw()
}

unsafe extern "C" fn mutate_native_in_place(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    let content = content_of(&value);
    // SAFETY: the function is that of this mutator.
    let new = unsafe { (*head(mutator).table)[1](mutator, *content.as_raw()) };
    if new.type_index != kTVMFFIUnchanged && new.type_index != anyfn::abi::kTVMFFIError {
        // SAFETY: the mutator guarantees that no other code refers to the object.
        drop(unsafe { std::ptr::from_ref(content).cast_mut().replace(Any::from_raw(new)) });
        return TVMFFIAny::from_bits(kTVMFFIUnchanged, 0);
    }
    new
}

fn set_attribute(type_index: i32, name: &str, value: TVMFFIAny) {
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: all arguments are borrowed for the call.
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(type_index, &name, &value) }, 0);
}

fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    type Native = unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny;
    let address = |function: Native| TVMFFIAny {
        type_index: kTVMFFIOpaquePtr,
        small_str_len: 0,
        value: TVMFFIAnyValue { v_ptr: function as *mut c_void },
    };
    ONCE.call_once(|| {
        let native = NativeHook::type_index();
        set_attribute(native, "__s_visit__", address(visit_native));
        set_attribute(native, "__s_mutate__", address(mutate_native));
        set_attribute(native, "__s_maybe_inplace_mutate__", address(mutate_native_in_place));
        let function = FunctionHook::type_index();
        let visit = PackedFunc::new(|args| {
            let content = args.get::<Ref<FunctionHook>>(1)?.0.clone();
            registry::get("ffi.StructuralVisitorVisit")?.call((args.get::<ObjectRef>(0)?, &content))
        });
        let mutate = PackedFunc::new(|args| {
            let (mutator, value) = (args.get::<ObjectRef>(0)?, args.get::<Ref<FunctionHook>>(1)?);
            let new = registry::get("ffi.StructuralMutatorMutate")?.call((mutator, &value.0))?;
            if new == value.0 {
                Any::new(value.into_object())
            } else {
                Ok(Ref::new(FunctionHook(new)).into_object().into())
            }
        });
        for (name, hook) in [("__s_visit__", visit), ("__s_mutate__", mutate)] {
            set_attribute(function, name, *AnyView::from(hook.as_object()).as_raw());
        }
    });
}

fn hooked(content: Any, native: bool) -> Any {
    register();
    if native {
        Ref::new(NativeHook(content)).into_object().into()
    } else {
        Ref::new(FunctionHook(content)).into_object().into()
    }
}

#[test]
fn types_visit_their_children_themselves() {
    for native in [true, false] {
        let graph = array([hooked(array([int(1), hooked(int(2), !native)]), native), int(3)]);
        let mut seen = Vec::new();
        walk(&graph, |value| seen.extend(is_int(value))).unwrap();
        assert_eq!(seen, [1, 2, 3]);
        let stop =
            walk(&graph, |value| if is_int(value) == Some(2) { Flow::Stop(int(9)) } else { Flow::Advance });
        assert_eq!(stop.unwrap().unwrap().get::<i64>().unwrap(), 9);
        let fail =
            |value: &Any| if is_int(value) == Some(2) { Err(Error::new("KeyError", "two")) } else { Ok(()) };
        let error = walk(&graph, fail).unwrap_err();
        assert_eq!((error.kind(), error_path(&error).unwrap()), ("KeyError", "<root>[0].<?>[1].<?>".into()));
    }
}

#[test]
fn types_mutate_their_values_themselves() {
    for native in [true, false] {
        let graph = array([hooked(array([int(1), hooked(int(2), !native)]), native), int(3)]);
        let ints = |graph: &Any| {
            let mut seen = Vec::new();
            walk(graph, |value| seen.extend(is_int(value))).unwrap();
            seen
        };
        let add = |value: &Any| Ok(is_int(value).map(|value| int(value + 10)));
        let new = map(graph.clone(), add).unwrap();
        assert_eq!((ints(&graph), ints(&new)), (vec![1, 2, 3], vec![11, 12, 13]));
        let same = map(graph.clone(), |_| Ok(None)).unwrap();
        assert!(same.as_object().unwrap().ptr_eq(graph.as_object().unwrap()));
        let inner = graph.as_object().map(|_| graph.get::<Array<Any>>().unwrap().get(0).unwrap());
        let address = inner.unwrap().as_object().unwrap().as_handle();
        drop(same);
        let changed = map(graph, add).unwrap();
        let at = changed.get::<Array<Any>>().unwrap().get(0).unwrap().as_object().unwrap().as_handle();
        assert_eq!(at == address, native, "the native type changes its values in place");
        assert_eq!(ints(&changed), [11, 12, 13]);
    }
}

#[test]
fn deep_chains_of_such_types_are_an_error() {
    for native in [true, false] {
        let mut graph = int(1);
        for _ in 0..100_000 {
            graph = hooked(graph, native);
        }
        assert_eq!(walk(&graph, |_| ()).unwrap_err().kind(), "RecursionError");
        assert_eq!(map(graph, |_| Ok(None)).unwrap_err().kind(), "RecursionError");
    }
}

/// Tests that a visitor of another library can visit a container. Like C++ code, the visitor uses only the
/// hooks in the type table.
#[test]
fn visitors_of_others_find_the_functions_of_containers() {
    thread_local!(static SEEN: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) });
    unsafe extern "C" fn visit(visitor: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
        if value.type_index == kTVMFFIInt {
            // SAFETY: an int has its value in `v_int64`.
            SEEN.with(|seen| seen.borrow_mut().push(unsafe { value.value.v_int64 }));
            return TVMFFIAny::NONE;
        }
        let info = anyfn::reflection::TypeInfo::from_index(value.type_index).unwrap();
        let hook = info.attribute("__s_visit__").unwrap().get::<anyfn::OpaquePtr>().unwrap().as_ptr();
        // SAFETY: the attribute holds the address of a function of this type.
        let hook = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny>(
                hook,
            )
        };
        // SAFETY: the attribute holds the address of a function of this type.
        unsafe { hook(visitor, value) }
    }
    // This registers the types.
    registry::get("ffi.StructuralVisit").unwrap();
    static TABLE: [unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny; 1] = [visit];
    struct Content(
        #[allow(dead_code, reason = "read by others")] *const c_void,
        #[allow(dead_code, reason = "as above")] i32,
    );
    // SAFETY: the pointer refers to a static.
    unsafe impl Send for Content {}
    let index = anyfn::type_index_of("ffi.StructuralVisitor").unwrap();
    // SAFETY: the content of a visitor begins with the address of such a table and the region.
    let visitor = unsafe { anyfn::__private::new_object(index, Content((&raw const TABLE).cast(), 0)) };
    let pairs = |offset: i64| [(int(1), int(offset)), (int(2), int(offset + 1))];
    let graph = array([
        int(1),
        Any::from(List::<Any>::try_from_iter([2, 3]).unwrap().into_object()),
        Any::from(Map::<Any, Any>::try_from_iter(pairs(4)).unwrap().into_object()),
        Any::from(Dict::<Any, Any>::try_from_iter(pairs(6)).unwrap().into_object()),
    ]);
    let call = |name: &str| registry::get(name).unwrap().call((&visitor, &graph)).unwrap();
    assert!(call("ffi.StructuralVisitorVisit").is_none());
    assert!(call("ffi.StructuralVisitorDefaultVisit").is_none());
    assert_eq!(SEEN.take(), [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7]);
}

/// Tests that a mutator of another library changes containers in place if nothing else refers to them, and copies those that
/// are shared. Like C++ code, the mutator uses only the hooks in the type table.
#[test]
fn mutators_of_others_change_containers_in_place() {
    unsafe fn descend(mutator: *mut TVMFFIObject, value: TVMFFIAny, in_place: bool) -> TVMFFIAny {
        if value.type_index == kTVMFFIInt {
            // SAFETY: an int has its value in `v_int64`.
            let new = unsafe { value.value.v_int64 } * 10;
            return TVMFFIAny::from_bits(if new == 0 { kTVMFFIUnchanged } else { kTVMFFIInt }, new as u64);
        }
        let info = anyfn::reflection::TypeInfo::from_index(value.type_index).unwrap();
        let name = if in_place { "__s_maybe_inplace_mutate__" } else { "__s_mutate__" };
        let hook = info.attribute(name).unwrap().get::<anyfn::OpaquePtr>().unwrap().as_ptr();
        // SAFETY: the attribute holds the address of a function of this type.
        let hook = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny>(
                hook,
            )
        };
        // SAFETY: the attribute holds the address of a function of this type.
        unsafe { hook(mutator, value) }
    }
    unsafe extern "C" fn copying(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
        // SAFETY: called with this mutator and a valid view.
        unsafe { descend(mutator, value, false) }
    }
    unsafe extern "C" fn in_place(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
        // SAFETY: called with this mutator and a valid view.
        unsafe { descend(mutator, value, true) }
    }
    registry::get("ffi.StructuralMutate").unwrap();
    // The tables of remapped variables are not used, since the values have none.
    static TABLE: [unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny; 2] = [copying, in_place];
    struct Content(
        #[allow(dead_code, reason = "read by others")] *const c_void,
        #[allow(dead_code, reason = "as above")] i32,
    );
    // SAFETY: the pointer refers to a static.
    unsafe impl Send for Content {}
    let index = anyfn::type_index_of("ffi.StructuralMutator").unwrap();
    // SAFETY: the content of a mutator begins with the address of such a table and the region.
    let mutator = unsafe { anyfn::__private::new_object(index, Content((&raw const TABLE).cast(), 0)) };
    let mutate = |value: &Any| {
        // SAFETY: the mutator lives, and the view is valid for the call.
        unsafe { Any::from_raw(in_place(mutator.as_handle().cast(), *value.as_raw())) }
    };
    let containers: [fn(Any) -> Any; 4] = [
        |child| array([int(0), child]),
        |child| Any::from(List::<Any>::try_from_iter([int(0), child]).unwrap().into_object()),
        |child| Any::from(Map::<Any, Any>::try_from_iter([(int(7), child)]).unwrap().into_object()),
        |child| Any::from(Dict::<Any, Any>::try_from_iter([(int(7), child)]).unwrap().into_object()),
    ];
    let address = |value: &Any| value.as_object().unwrap().as_handle();
    for make in containers {
        let child = array([int(1), int(0)]);
        let inner = address(&child);
        let value = make(child);
        // A reference to the container, or none: the container is then the child's only owner.
        for is_shared in [false, true] {
            let other = is_shared.then(|| value.clone());
            let before = text(&value);
            let result = mutate(&value);
            let result = if result.type_index() == kTVMFFIUnchanged { value.clone() } else { result };
            assert_eq!(address(&result) == address(&value), !is_shared, "{before}");
            assert_ne!(text(&result), before);
            assert_eq!(text(&value) == before, is_shared);
            let mut addresses = Vec::new();
            walk(&result, |value| addresses.extend(value.as_object().map(ObjectRef::as_handle))).unwrap();
            assert_eq!(addresses.contains(&inner), !is_shared, "{before}");
            drop(other);
        }
    }
    let fixed = array([int(0)]);
    assert_eq!(mutate(&fixed).type_index(), kTVMFFIUnchanged);
}

#[test]
fn error_contexts_can_be_made_by_other_libraries() {
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let index = i64::from(anyfn::type_index_of("ffi.VisitErrorContext").unwrap());
    let path = List::<Any>::try_from_iter([array([int(1)])]).unwrap();
    let no_object = None::<ObjectRef>;
    let context =
        make.call((index, "reverse_visit_pattern", &path, "prev_error_context", no_object.clone())).unwrap();
    let context = context.into_object().unwrap();
    let info = anyfn::reflection::TypeInfo::of(&context);
    let field = |name: &str| {
        let field = info.fields().find(|field| field.name() == name).unwrap();
        // SAFETY: the field belongs to the type of the object.
        unsafe { field.get_unchecked(&context) }.unwrap()
    };
    assert!(field("reverse_visit_pattern").as_object().unwrap().ptr_eq(&path.clone().into_object()));
    assert!(field("prev_error_context").is_none());
    let wrong =
        make.call((index, "reverse_visit_pattern", 1, "prev_error_context", no_object.clone())).unwrap_err();
    assert_eq!(wrong.kind(), "TypeError");
}

#[test]
fn interrupts_are_objects_of_the_abi() {
    let interrupt = registry::get("ffi.VisitInterrupt").unwrap().call((5,)).unwrap();
    assert_eq!(interrupt.type_index(), kTVMFFIVisitInterrupt);
    assert_eq!(interrupt.as_object().unwrap().get_field("value").unwrap().get::<i64>().unwrap(), 5);
    const { assert!(kTVMFFIFunction > kTVMFFIObject) };
}

// ---- Random graphs

#[derive(Clone, Debug)]
enum Plan {
    Int(i64),
    Array(Vec<Plan>),
    List(Vec<Plan>),
    Map(Vec<Plan>),
    Dict(Vec<Plan>),
    /// Another reference to an object that was built earlier, given by its index in the order of building.
    Again(usize),
}

fn plans() -> impl Strategy<Value = Plan> {
    let leaf = prop_oneof![(0..20i64).prop_map(Plan::Int), (0..8usize).prop_map(Plan::Again)];
    leaf.prop_recursive(5, 60, 7, |inner| {
        let parts = prop::collection::vec(inner, 0..7);
        prop_oneof![
            parts.clone().prop_map(Plan::Array),
            parts.clone().prop_map(Plan::List),
            parts.clone().prop_map(Plan::Map),
            parts.prop_map(Plan::Dict),
        ]
    })
}

fn build(plan: &Plan, made: &mut Vec<Any>) -> Any {
    let mut parts = |parts: &[Plan]| parts.iter().map(|part| build(part, made)).collect::<Vec<_>>();
    let pairs = |parts: Vec<Any>| {
        parts.into_iter().enumerate().map(|(at, part)| (int(at as i64), part)).collect::<Vec<_>>()
    };
    let value = match plan {
        Plan::Int(value) => int(*value),
        Plan::Array(items) => array(parts(items)),
        Plan::List(items) => Any::from(List::<Any>::from_vec(parts(items)).unwrap().into_object()),
        Plan::Map(items) => Any::from(Map::<Any, Any>::from_vec(pairs(parts(items))).unwrap().into_object()),
        Plan::Dict(items) => Any::from(Dict::<Any, Any>::from_vec(pairs(parts(items))).unwrap().into_object()),
        Plan::Again(at) => made.get(*at).cloned().unwrap_or_else(|| int(7)),
    };
    if value.as_object().is_some() && !matches!(plan, Plan::Again(_)) {
        made.push(value.clone());
    }
    value
}

/// Applies `f` to all integers in a graph except keys, by plain recursion.
fn naive(value: &Any, f: &impl Fn(i64) -> i64) -> Any {
    if let Some(value) = is_int(value) {
        return int(f(value));
    }
    let pairs =
        |pairs: Vec<(Any, Any)>| pairs.into_iter().map(|(key, value)| (key, naive(&value, f))).collect();
    match value.type_key() {
        "ffi.Array" => {
            array(value.get::<Array<Any>>().unwrap().iter().map(|item| naive(&item, f)).collect::<Vec<_>>())
        }
        "ffi.List" => {
            let items = value.get::<List<Any>>().unwrap().snapshot();
            Any::from(
                List::<Any>::from_vec(items.iter().map(|item| naive(item, f)).collect()).unwrap().into_object(),
            )
        }
        "ffi.Map" => {
            let map = value.get::<Map<Any, Any>>().unwrap();
            Any::from(Map::<Any, Any>::from_vec(pairs(map.iter().collect())).unwrap().into_object())
        }
        _ => {
            let dict = value.get::<Dict<Any, Any>>().unwrap();
            Any::from(Dict::<Any, Any>::from_vec(pairs(dict.snapshot())).unwrap().into_object())
        }
    }
}

fn text(value: &Any) -> String {
    anyfn_reflect::repr(value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn maps_are_what_recursion_gives(plan in plans(), above in 0..20i64, keep in any::<bool>(), pre in any::<bool>(), share in any::<bool>()) {
        let f = |value: i64| if value >= above { value + 100 } else { value };
        let mut made = Vec::new();
        let graph = build(&plan, &mut made);
        let before = text(&graph);
        let wanted = text(&naive(&graph, &f));
        if !keep {
            made.clear();
        }
        let kept = keep.then(|| graph.clone());
        let mut rewrite = Rewrite::new();
        rewrite.on_type(kTVMFFIInt, |value| {
            let old = value.get::<i64>()?;
            // In pre-order, the callback is not called with its own result again.
            Ok((f(old) != old).then(|| int(f(old))))
        });
        if pre {
            rewrite.pre_order();
        }
        if !share {
            rewrite.each_time();
        }
        let new = rewrite.run(graph).unwrap();
        prop_assert_eq!(text(&new), &*wanted);
        if let Some(kept) = kept {
            prop_assert_eq!(text(&kept), before.clone());
            if before == wanted {
                let same = match (new.as_object(), kept.as_object()) {
                    (Some(new), Some(kept)) => new.ptr_eq(kept),
                    _ => true,
                };
                prop_assert!(same, "nothing has changed");
            }
        }
        let mut sum = 0;
        walk(&new, |value| sum += is_int(value).unwrap_or_default()).unwrap();
        let mut naive_sum = 0;
        fn add(value: &Any, sum: &mut i64) {
            *sum += is_int(value).unwrap_or_default();
            match value.type_key() {
                "ffi.Array" => value.get::<Array<Any>>().unwrap().iter().for_each(|item| add(&item, sum)),
                "ffi.List" => value.get::<List<Any>>().unwrap().snapshot().iter().for_each(|item| add(item, sum)),
                "ffi.Map" => value.get::<Map<Any, Any>>().unwrap().iter().for_each(|(_, item)| add(&item, sum)),
                "ffi.Dict" => value.get::<Dict<Any, Any>>().unwrap().snapshot().iter().for_each(|(_, item)| add(item, sum)),
                _ => {}
            }
        }
        add(&new, &mut naive_sum);
        prop_assert_eq!(sum, naive_sum);
    }
}

#[test]
fn a_chain_a_million_deep() -> Result<()> {
    let mut graph = int(1);
    for at in 0..1_000_000 {
        graph = match at % 3 {
            0 => array([graph]),
            1 => Any::from(List::<Any>::from_vec(vec![graph])?.into_object()),
            _ => Any::from(Map::<Any, Any>::from_vec(vec![(int(1), graph)])?.into_object()),
        };
    }
    let mut count = 0;
    walk(&graph, |_| count += 1)?;
    assert_eq!(count, 1_000_001);
    let keep = graph.clone();
    let new = map(graph, |value| Ok(is_int(value).map(|value| int(value + 1))))?;
    assert!(!new.as_object().unwrap().ptr_eq(keep.as_object().unwrap()));
    let address = new.as_object().unwrap().as_handle();
    let newer = map(new, |value| Ok(is_int(value).map(|value| int(value + 1))))?;
    assert_eq!(newer.as_object().unwrap().as_handle(), address);
    let mut last = 0;
    walk(&newer, |value| last += is_int(value).unwrap_or_default())?;
    assert_eq!(last, 3);
    Ok(())
}
