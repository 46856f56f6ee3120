//! Uses each area of the peer's Rust crate, which runs on our library here.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tvm_ffi::derive::{Object as DeriveObject, ObjectRef as DeriveObjectRef};
use tvm_ffi::object::{ObjectRef, is_instance_of};
use tvm_ffi::{
    Any, AnyView, Array, BigInt, Bytes, CPUNDAlloc, DLDataType, DLDataTypeExt, DLDevice, DLDeviceType, Error,
    FieldGetter, Function, Map, MapDispatch, Module, Object, ObjectArc, ObjectCore, ObjectIdentity,
    ObjectRefCast, ObjectRefCore, Optional, RUNTIME_ERROR, RValueRef, Result, Shape, String, StructuralView,
    TYPE_ERROR, Tensor, TensorView, TypeAttrColumn, TypeIndex, VALUE_ERROR, WalkOrder, WalkResult,
    attach_context, bail, cached_global_func, current_stream, dispatch, ensure, get_type_attr, into_typed_fn,
    match_any, structural_map, structural_walk, with_stream,
};

/// Returns the error of a call. Values of the crate have no debug output, which `unwrap_err` needs.
fn error_of(result: Result<Any>) -> Error {
    match result {
        Ok(value) => panic!("expected an error, got a value with type index {}", value.type_index()),
        Err(error) => error,
    }
}

fn cpu() -> DLDevice {
    DLDevice::new(DLDeviceType::kDLCPU, 0)
}

#[test]
fn the_library_is_ours() {
    // `./x test` sets the variable. Without it, the tests run on the peer's own library.
    let Ok(version) = std::env::var("PEER_RUST_RUNTIME") else { return };
    let runtime = Function::get_global("anyfn.runtime").unwrap().call_packed(&[]).unwrap();
    assert!(String::try_from(runtime).unwrap().starts_with(&version));
}

// ---- Functions

#[test]
fn closures_are_functions() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let sum = Function::from_typed(move |x: i64, y: f64| -> Result<f64> {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(x as f64 + y)
    });
    assert_eq!(f64::try_from(sum.call_tuple((2i64, 0.5f64)).unwrap()).unwrap(), 2.5);
    let typed = into_typed_fn!(sum.clone(), Fn(i64, f64) -> Result<f64>);
    assert_eq!(typed(3, 0.25).unwrap(), 3.25);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    // The closure is dropped with the last reference to its function.
    drop((sum, typed));
    assert_eq!(Arc::strong_count(&calls), 1);
}

#[test]
fn packed_functions_see_their_arguments() {
    let kinds = Function::from_packed(|args: &[AnyView]| -> Result<Any> {
        Ok(Array::new(args.iter().map(|arg| i64::from(arg.type_index())).collect::<Vec<_>>()).into())
    });
    let text = String::from("a text of more than seven bytes");
    let result = kinds.call_packed(&[
        AnyView::from(&1i64),
        AnyView::from(&2.5f64),
        AnyView::from(&text),
        AnyView::new(),
    ]);
    let kinds: Vec<i64> = Array::<i64>::try_from(result.unwrap()).unwrap().iter().collect();
    let expected =
        [TypeIndex::kTVMFFIInt, TypeIndex::kTVMFFIFloat, TypeIndex::kTVMFFIStr, TypeIndex::kTVMFFINone];
    assert_eq!(kinds, expected.map(|kind| kind as i64));
}

#[test]
fn global_functions() {
    let name = "peer_rust.triple";
    Function::register_global(name, Function::from_typed(|x: i64| -> Result<i64> { Ok(3 * x) })).unwrap();
    for _ in 0..2 {
        let triple = cached_global_func!("peer_rust.triple");
        assert_eq!(i64::try_from(triple.call_tuple((14i64,)).unwrap()).unwrap(), 42);
    }
    let again = Function::register_global(name, Function::from_typed(|x: i64| -> Result<i64> { Ok(x) }));
    assert!(again.unwrap_err().message().contains(name));
    assert!(Function::get_global("peer_rust.missing").is_err());
}

#[test]
fn functions_cross_threads() {
    let add = Function::from_typed(|x: i64, y: i64| -> Result<i64> { Ok(x + y) });
    let name = "peer_rust.add_of_threads";
    Function::register_global(name, add).unwrap();
    let threads = [0i64, 1, 2].map(|number| {
        std::thread::spawn(move || {
            let add = Function::get_global(name).unwrap();
            (0..1000).fold(number, |sum, x| add.call_tuple((sum, x)).unwrap().try_into().unwrap())
        })
    });
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [499500, 499501, 499502]);
}

#[test]
fn methods_of_types() {
    let array = Array::new(vec![Any::from(5i64), Any::from(6i64)]);
    let size = Function::get_global("ffi.ArraySize").unwrap().call_tuple((&array,)).unwrap();
    assert_eq!(i64::try_from(size).unwrap(), 2);
    assert!(Function::from_type_key_method("ffi.Module", "no_such_method").is_err());
    assert!(Function::from_type_method(TypeIndex::kTVMFFIModule as i32, "no_such_method").is_err());
}

// ---- Errors

fn fails(number: i64) -> Result<i64> {
    ensure!(number > 0, VALUE_ERROR, "expected a positive number, got {}", number);
    if number > 9 {
        bail!(TYPE_ERROR, "{number} is too large");
    }
    Ok(number)
}

#[test]
fn errors_cross_as_the_same_object() {
    let outer = Function::from_typed(|function: Function, number: i64| -> Result<i64> {
        attach_context!(function.call_tuple((number,)))?.try_into()
    });
    let inner = Function::from_typed(fails);
    assert_eq!(i64::try_from(outer.call_tuple((&inner, 5i64)).unwrap()).unwrap(), 5);
    let error = error_of(outer.call_tuple((&inner, -1i64)));
    assert_eq!((error.kind(), error.message()), (VALUE_ERROR, "expected a positive number, got -1"));
    assert!(error.backtrace().contains("areas.rs"), "{}", error.backtrace());
    assert_eq!(error_of(outer.call_tuple((&inner, 10i64))).kind(), TYPE_ERROR);
}

#[test]
fn errors_keep_their_cause() {
    let cause = Error::new(VALUE_ERROR, "the cause", "  at first\n");
    let context = ObjectRef::try_from(Any::from(Array::new(vec![1i64]))).unwrap();
    let error =
        Error::new_with_cause_and_extra_context(RUNTIME_ERROR, "the error", "", Some(&cause), Some(&context));
    let raise = Function::from_packed(move |_: &[AnyView]| -> Result<Any> { Err(error.clone()) });
    let error = error_of(raise.call_packed(&[]));
    assert!(error.cause_chain().is_some_and(|known| known.same_as(&cause)));
    assert!(error.extra_context().is_some_and(|known| known.same_as(&context)));
    assert!(error.to_string().contains("the error"));
    Error::set_raised(&error);
    assert!(Error::from_raised().same_as(&error));
}

#[test]
fn wrong_arguments_are_errors() {
    let add = Function::from_typed(|x: i64, y: i64| -> Result<i64> { Ok(x + y) });
    let error = error_of(add.call_tuple((1i64, String::from("two"))));
    assert_eq!(error.kind(), TYPE_ERROR);
    assert!(error.message().contains("`ffi.SmallStr` to `int`"), "{}", error.message());
    assert_eq!(error_of(add.call_tuple((1i64,))).kind(), VALUE_ERROR);
    let panics = Function::from_typed(|| -> Result<i64> { panic!("a panic of the closure") });
    assert!(error_of(panics.call_tuple(())).message().contains("a panic of the closure"));
}

// ---- Values

#[test]
fn values_of_all_kinds() {
    let echo = Function::from_packed(|args: &[AnyView]| -> Result<Any> { Ok(Any::from(args[0])) });
    macro_rules! same {
        ($($kind:ty: $value:expr),* $(,)?) => { $(
            let value: $kind = $value;
            let echoed = <$kind>::try_from(echo.call_packed(&[AnyView::from(&value)]).unwrap()).unwrap();
            assert!(echoed == value, stringify!($value));
        )* };
    }
    same!(
        i64: i64::MIN, f64: 1e300, bool: true,
        String: String::from("short"), String: String::from("a longer text, with ä and 語"), String: String::new(),
        Bytes: Bytes::from(vec![0u8, 1, 255]), Bytes: Bytes::from(vec![7u8; 1000]),
        DLDataType: DLDataType::try_from_str("bfloat16x4").unwrap(),
        Shape: Shape::from(vec![2i64, 3, 4]),
        BigInt: "170141183460469231731687303715884105728".parse().unwrap(),
        BigInt: BigInt::from(-5i64),
    );
    let device = DLDevice::try_from(echo.call_tuple((cpu(),)).unwrap()).unwrap();
    assert_eq!(device.device_type, DLDeviceType::kDLCPU);
    assert!(Option::<i64>::try_from(echo.call_tuple(((),)).unwrap()).unwrap().is_none());
}

#[test]
fn large_integers() {
    let two: BigInt = BigInt::from(2i64);
    let power = (0..200).fold(BigInt::from(1i64), |product, _| &product * &two);
    assert_eq!(power.to_string(), "1606938044258990275541962092341162602522202993782792835301376");
    assert_eq!((&power - &power).to_i64(), Some(0));
    let (quotient, rest) = power.div_rem(&BigInt::from(10i64)).unwrap();
    assert_eq!((&quotient * &BigInt::from(10i64)) + &rest, power);
    assert!(power.try_div(&BigInt::new()).is_err());
}

#[test]
fn optional_values() {
    let mut number = Optional::some(3i64);
    assert_eq!((number.get(), number.has_value()), (Some(3), true));
    number.set(None);
    assert!(number.is_none());
    let text = Optional::some(String::from("a text that is an object"));
    assert_eq!(text.clone().as_str(), Some("a text that is an object"));
    assert_eq!(text.into_option().unwrap().len(), 24);
}

#[test]
fn values_are_matched_by_type() {
    fn kind(value: Any) -> &'static str {
        match_any! {
            value {
                Array::<i64>(items) if items.is_empty() => "no numbers",
                Array::<i64>(_) => "numbers",
                Tensor(_) => "tensor",
                Function(_) => "function",
                _ => "other",
            }
        }
    }
    let tensor = Tensor::from_slice(&[1i32], &[1]).unwrap();
    let function = Function::from_typed(|| -> Result<()> { Ok(()) });
    let values = [
        Array::new(vec![1i64]).into(),
        Array::<i64>::default().into(),
        tensor.into(),
        function.into(),
        1i64.into(),
    ];
    assert_eq!(values.map(kind), ["numbers", "no numbers", "tensor", "function", "other"]);
}

#[test]
fn values_are_moved_to_functions() {
    // A moved Array has no other reference, so the function may reuse its memory.
    let count = Function::from_typed(|items: RValueRef<Array<i64>>| -> Result<i64> {
        Ok(ObjectArc::strong_count(ObjectRefCore::data(&items.into_inner())) as i64)
    });
    let moved = RValueRef::new(Array::new(vec![1i64, 2]));
    assert_eq!(i64::try_from(count.call_packed(&[AnyView::from(&moved)]).unwrap()).unwrap(), 1);
}

// ---- Containers

#[test]
fn arrays() {
    let numbers: Array<i64> = (0..100).collect();
    assert_eq!((numbers.len(), numbers.get(99).unwrap(), numbers.iter().sum::<i64>()), (100, 99, 4950));
    assert!(numbers.get(100).is_err());
    let nested = Array::new(vec![numbers.clone(), Array::default()]);
    let item = Function::get_global("ffi.ArrayGetItem").unwrap().call_tuple((&nested, 0i64)).unwrap();
    assert!(Array::<i64>::try_from(item).unwrap().same_as(&numbers));
    // The elements are checked when the type is.
    assert!(Array::<i64>::try_from(Any::from(Array::new(vec![String::from("text")]))).is_err());
}

#[test]
fn maps() {
    for size in [0usize, 3, 4, 5, 200] {
        let expected: HashMap<std::string::String, i64> =
            (0..size).map(|i| (format!("key number {i}"), i as i64)).collect();
        let map: Map<String, i64> =
            expected.iter().map(|(key, value)| (String::from(key.as_str()), *value)).collect();
        assert_eq!((map.len(), map.is_empty()), (size, size == 0));
        for (key, value) in &expected {
            assert_eq!(map.get(&String::from(key.as_str())).unwrap(), Some(*value));
        }
        assert!(
            !map.contains_key(&String::from("missing")) && map.get(&String::from("missing")).unwrap().is_none()
        );
        let found = map.iter().map(|(key, value)| (key.as_str().to_owned(), value)).collect::<HashMap<_, _>>();
        assert_eq!(found, expected);
        assert_eq!(map.keys().count(), size);
        assert_eq!(map.values().sum::<i64>(), expected.values().sum::<i64>());
    }
    let map: Map<i64, Array<i64>> = [(1, Array::new(vec![1i64])), (2, Array::default())].into_iter().collect();
    let size = Function::get_global("ffi.MapSize").unwrap().call_tuple((&map,)).unwrap();
    assert_eq!(i64::try_from(size).unwrap(), 2);
}

// ---- Tensors

#[test]
fn tensors() {
    let tensor = Tensor::from_slice(&[1f32, 2., 3., 4., 5., 6.], &[2, 3]).unwrap();
    assert_eq!(
        (tensor.shape(), tensor.strides(), tensor.ndim(), tensor.numel()),
        (&[2i64, 3][..], &[3i64, 1][..], 2, 6)
    );
    assert!(tensor.is_contiguous() && tensor.dtype() == DLDataType::try_from_str("float32").unwrap());
    assert!(tensor.data_as_slice::<f64>().is_err());
    tensor.data_as_slice_mut::<f32>().unwrap()[5] = 60.0;
    // Through a function of the library, and as a view that owns nothing.
    let sum = Function::from_typed(|view: TensorView| -> Result<f64> {
        // SAFETY: the test passes a contiguous tensor of this type.
        let elements = unsafe { std::slice::from_raw_parts(view.data_ptr().cast::<f32>(), view.numel()) };
        Ok(elements.iter().map(|x| f64::from(*x)).sum())
    });
    assert_eq!(f64::try_from(sum.call_tuple((&tensor,)).unwrap()).unwrap(), 75.0);
    let view = TensorView::from(&tensor);
    assert_eq!(f64::try_from(sum.call_packed(&[AnyView::from(&view)]).unwrap()).unwrap(), 75.0);
}

#[test]
fn tensors_of_allocators() {
    let dtype = DLDataType::try_from_str("int64").unwrap();
    let tensor = Tensor::from_nd_alloc(CPUNDAlloc {}, &[4], dtype, cpu());
    tensor.data_as_slice_mut::<i64>().unwrap().copy_from_slice(&[1, 2, 3, 4]);
    let kept = Any::from(tensor.clone());
    drop(tensor);
    assert_eq!(Tensor::try_from(kept).unwrap().data_as_slice::<i64>().unwrap(), [1, 2, 3, 4]);
    // No allocator is set, which is an error, not a crash.
    assert!(Tensor::from_env_alloc(&[4], dtype, cpu()).is_err());
}

#[test]
fn streams() {
    let before = current_stream(&cpu());
    let stream = std::ptr::without_provenance_mut(64);
    // SAFETY: nothing uses the stream of the CPU.
    let result = unsafe {
        with_stream(&cpu(), stream, || {
            assert_eq!(current_stream(&cpu()), stream);
            Ok(7)
        })
    };
    assert_eq!((result.unwrap(), current_stream(&cpu())), (7, before));
}

// ---- Objects

#[repr(C)]
#[derive(DeriveObject)]
#[type_key = "peer_rust.Node"]
#[type_register]
#[type_child_slots = 1]
struct NodeObj {
    base: Object,
    value: i64,
    dropped: Arc<AtomicUsize>,
}

impl Drop for NodeObj {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[repr(C)]
#[derive(DeriveObjectRef, Clone)]
struct Node {
    data: ObjectArc<NodeObj>,
}

#[repr(C)]
#[derive(DeriveObject)]
#[type_key = "peer_rust.Leaf"]
#[type_register]
#[type_final]
struct LeafObj {
    base: NodeObj,
    more: i64,
}

#[repr(C)]
#[derive(DeriveObjectRef, Clone)]
struct Leaf {
    data: ObjectArc<LeafObj>,
}

tvm_ffi::impl_object_upcast!(Leaf => Node);

fn leaf(value: i64, dropped: &Arc<AtomicUsize>) -> Leaf {
    let base = NodeObj { base: Object::new(), value, dropped: Arc::clone(dropped) };
    Leaf { data: ObjectArc::new(LeafObj { base, more: 2 * value }) }
}

#[test]
fn types_of_rust() {
    let dropped = Arc::new(AtomicUsize::new(0));
    assert!(
        is_instance_of::<NodeObj>(LeafObj::type_index()) && !is_instance_of::<LeafObj>(NodeObj::type_index())
    );
    let node: Node = leaf(4, &dropped).into();
    assert_eq!(node.data.value, 4);
    // A Map, because an Array that the crate makes does not release its elements.
    let items: Map<i64, Node> = [(0, node.clone()), (1, leaf(5, &dropped).into())].into_iter().collect();
    let again = Function::get_global("ffi.MapGetItem").unwrap().call_tuple((&items, 0i64)).unwrap();
    let again: Node = again.try_into().unwrap();
    assert!(again.same_as(&node) && ObjectIdentity::of(&again) == ObjectIdentity::of(&node));
    let identities: HashSet<_> = items.values().map(|node| ObjectIdentity::of(&node)).collect();
    // An identity keeps its object alive.
    assert_eq!(identities.len(), 2);
    drop(identities);
    let as_leaf: Leaf = again.try_cast().unwrap();
    assert_eq!(as_leaf.data.more, 8);
    assert!(Shape::try_from(Any::from(node.clone())).is_err());
    drop((node, as_leaf));
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(items);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn reflected_fields_and_attributes() {
    let path = Function::get_global("ffi.GetFirstStructuralMismatch").unwrap();
    let (left, right) = (Array::new(vec![1i64, 2]), Array::new(vec![1i64, 3]));
    let pair = path.call_tuple((&left, &right, false, false)).unwrap();
    let paths: Array<Any> = pair.try_into().unwrap();
    let path: ObjectRef = paths.get(0).unwrap().try_into().unwrap();
    let index = AnyView::from(&path).type_index();
    let depth = FieldGetter::new(index, "depth").unwrap();
    assert_eq!(depth.get::<_, i64>(&**ObjectRef::data(&path)).unwrap(), 1);
    assert!(FieldGetter::new(index, "no_such_field").is_err());
    assert!(TypeAttrColumn::new("peer_rust.no_such_attribute").is_none());
    assert!(get_type_attr(index, "peer_rust.no_such_attribute").is_none());
}

// ---- Structural operations

#[derive(Default)]
struct Sum(i64);

#[dispatch(walk)]
impl Sum {
    fn walk_integer(&mut self, value: i64) -> WalkResult {
        self.0 += value;
        WalkResult::Advance
    }
}

struct Negate;

impl MapDispatch for Negate {
    fn dispatch_map(&mut self, value: &StructuralView, _: tvm_ffi::DefRegionKind) -> Option<Result<Any>> {
        value.cast::<i64>().map(|number| Ok(Any::from(-number)))
    }
}

#[test]
fn walks_and_maps() {
    let value =
        Array::new(vec![Any::from(1i64), Any::from(Array::new(vec![2i64, 3])), Any::from(String::from("x"))]);
    for order in [WalkOrder::PreOrder, WalkOrder::PostOrder] {
        let mut sum = Sum::default();
        assert!(structural_walk(&value, &mut sum, order).unwrap().is_none());
        assert_eq!(sum.0, 6);
    }
    let mapped: Array<Any> =
        structural_map(value.clone(), &mut Negate, WalkOrder::PostOrder).unwrap().try_into().unwrap();
    let mut sum = Sum::default();
    structural_walk(&mapped, &mut sum, WalkOrder::PreOrder).unwrap();
    assert_eq!(sum.0, -6);
    // The original is unchanged, since it has another owner.
    assert_eq!(i64::try_from(value.get(0).unwrap()).unwrap(), 1);
    let equal = Function::get_global("ffi.StructuralEqual").unwrap();
    let same = |a: &Array<Any>, b: &Array<Any>| {
        bool::try_from(equal.call_tuple((a, b, false, false)).unwrap()).unwrap()
    };
    assert!(same(&value, &value) && !same(&value, &mapped));
}

// ---- Modules

/// Returns the library of this package, which Cargo places beside the folder of the test program.
fn library() -> Module {
    let program = std::env::current_exe().unwrap();
    let folders: Vec<PathBuf> = program.ancestors().skip(1).take(2).map(PathBuf::from).collect();
    let file = folders.iter().map(|folder| folder.join("libpeer_rust.so")).find(|file| file.is_file());
    Module::load_from_file(file.expect("the library of this package").to_str().unwrap()).unwrap()
}

#[test]
fn modules() {
    let module = library();
    let call = |name: &str, args: &[AnyView]| module.get_function(name).unwrap().call_packed(args);
    assert_eq!(
        i64::try_from(call("add", &[AnyView::from(&40i64), AnyView::from(&2i64)]).unwrap()).unwrap(),
        42
    );
    let tensor = Tensor::from_slice(&[1f32, 2.5], &[2]).unwrap();
    call("double", &[AnyView::from(&tensor)]).unwrap();
    assert_eq!(tensor.data_as_slice::<f32>().unwrap(), [2.0, 5.0]);
    let greeting = call("greet", &[AnyView::from(&String::from("all of you"))]).unwrap();
    assert_eq!(String::try_from(greeting).unwrap(), "hello, all of you");
    let error = error_of(call("greet", &[AnyView::from(&String::new())]));
    assert_eq!((error.kind(), error.message()), (VALUE_ERROR, "cannot greet nobody"));
    let square = Function::from_typed(|x: i64| -> Result<i64> { Ok(x * x) });
    let squares = call("collect", &[AnyView::from(&4i64), AnyView::from(&square)]).unwrap();
    assert_eq!(Array::<i64>::try_from(squares).unwrap().iter().collect::<Vec<_>>(), [0, 1, 4, 9]);
    assert!(error_of(call("panics", &[])).message().contains("not an error"));
    assert!(module.implements_function("add", false).unwrap());
    assert!(!module.implements_function("missing", true).unwrap());
    assert!(
        module.get_function("missing").is_err() && module.get_function_doc("add", false).unwrap().is_none()
    );
    assert!(Module::load_from_file("/nonexistent/library.so").is_err());
}

#[test]
fn functions_keep_their_library() {
    let add = library().get_function("add").unwrap();
    assert_eq!(i64::try_from(add.call_tuple((1i64, 2i64)).unwrap()).unwrap(), 3);
}
