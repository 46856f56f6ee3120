//! The macros of anyfn. Use them through the crate `anyfn`, which re-exports them with their documentation.

use proc_macro::TokenStream;

mod attributes;
mod export;
mod methods;
mod object;
mod register;

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Registers a function as a global function, for all languages: `#[register("name")]`.
///
/// In a program it is there from the first use of the registry on; in a plugin from the time it is loaded until its
/// module is released. Argument names and doc comments are kept as the function's signature.
/// An argument with `#[default(2)]` may be left out, by callers of any language; the arguments behind it need a default,
/// too. `#[read_only]` says that the function only reads a tensor, so that arrays which must not change are accepted.
/// `#[register("name", override)]` replaces a function of the same name. With `blocking` callers release locks of their
/// language during the call; a function that waits for other threads needs that. With `unsafe` the function is an `unsafe fn`
/// that trusts addresses which its callers pass: safe Rust and remote peers cannot look it up.
///
/// ```
/// # use anyfn_core as _;
/// /// Adds two numbers.
/// #[anyfn::register("doc.add")]
/// fn add(a: i64, #[default(10)] b: i64) -> i64 {
///     a + b
/// }
///
/// let add = anyfn::registry::get("doc.add")?;
/// assert_eq!(add.call((1, 2))?.get::<i64>()?, 3);
/// assert_eq!(add.call((1,))?.get::<i64>()?, 11);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[proc_macro_attribute]
pub fn register(args: TokenStream, item: TokenStream) -> TokenStream {
    finish(register::expand(args.into(), item.into()))
}

/// Makes a `cdylib` a library module: exports functions by name, and what `#[register]` has collected.
///
/// Use it once per library. Each entry is a function, exported under its name, or `"name" => path`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Result, TensorView};
///
/// anyfn::export! {
///     /// y = a * x + y, element by element.
///     fn saxpy(a: f32, x: TensorView<'_>, y: TensorView<'_>) -> Result<()> {
///         let (x, mut y) = x.read_and_write::<f32, f32>(&y)?;
///         for (x, y) in x.iter().zip(y.iter_mut()) {
///             *y += a * x;
///         }
///         Ok(())
///     }
/// }
/// ```
///
/// Names that begin with `_library_`, `_metadata_` or `_doc_` are refused: behind `__tvm_ffi_`, the loader takes them for data.
///
/// ```compile_fail
/// anyfn::export! {
///     fn _library_ctx() {}
/// }
/// ```
#[proc_macro]
pub fn export(items: TokenStream) -> TokenStream {
    finish(export::expand(items.into()))
}

/// Lets a Rust type live in an object, and tells all languages of its fields: `#[derive(Object)]`.
///
/// The named fields become fields that every language reads by name, with their doc comments; of arguments for them every
/// language makes objects. A field needs a type that functions take and return, or an atomic number or a `Cell`, which can
/// be set at any time; other fields do not change once the object is made. A function that returns the type itself returns
/// a new object. [`macro@methods`] adds methods.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Object, Ref, String};
///
/// /// A point with a name.
/// #[derive(Object)]
/// #[object(key = "doc.Point")]
/// struct Point {
///     /// First coordinate.
///     x: f64,
///     #[field(default = "origin", kw_only)]
///     name: String,
/// }
///
/// let point = Ref::new(Point { x: 3.0, name: "p".into() });
/// assert_eq!(point.as_object().get_field("x")?.get::<f64>()?, 3.0);
/// let value = Any::new(point)?;
/// assert_eq!(value.type_key(), "doc.Point");
/// assert_eq!(value.get::<Ref<Point>>()?.x, 3.0);
///
/// let make = anyfn::registry::get("ffi.MakeObjectFromPackedArgs")?;
/// let other = make.call(("doc.Point", "x", 4))?.get::<Ref<Point>>()?;
/// assert_eq!((other.x, &*other.name), (4.0, "origin"));
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// Options of the type, in `#[object(..)]`:
/// - `key = "my.Node"`: the name of the type, needed.
/// - `parent = Base`: the type derives from another one. The first field holds the parent; the struct is `#[repr(C)]`.
///   An object is taken wherever one of the parent is expected, and dereferences to the parent.
/// - `final`: no type derives from it. `child_slots = N`: keeps type indices for derived types.
/// - `structural = "tree"`, `"dag"`, `"var"`, `"const_tree"` or `"unique"`: how structural equality and hash see it.
/// - `init = false`: only Rust code makes objects. `opaque`: nothing but the key is told.
///
/// Options of a field, in `#[field(..)]`:
/// - `default = value`, or `default` for that of its type: need not be given. A value that is not a constant is computed
///   anew each time.
/// - `skip`: other languages do not see the field. If it has a `default`, they still can make objects.
/// - `kw_only`, `init = false`, `repr = false`, `compare = false`, `hash = false`, `name = ".."`.
/// - `structural = "ignore"`, `"def"` (the field defines variables) or `"def_simple"`.
///
/// Fields are used by reference, so a type cannot be `#[repr(packed)]`:
///
/// ```compile_fail,E0080
/// #[derive(anyfn::Object)]
/// #[object(key = "doc.Packed")]
/// #[repr(packed)]
/// struct Packed {
///     small: bool,
///     large: i64,
/// }
/// ```
///
/// A default is safe code:
///
/// ```compile_fail,E0133
/// #[derive(anyfn::Object)]
/// #[object(key = "doc.Zeroed")]
/// struct Zeroed {
///     #[field(skip, default = std::mem::zeroed())]
///     address: usize,
/// }
/// ```
///
/// **A type that is compiled again** while the process runs, in a library that is reloaded, goes on if it consists of the same
/// bytes. That is known of fields that other languages see, and of fields of types of the standard library and of `anyfn`. With a
/// field of another type that has no name or is skipped, the new library is refused, because that type may have changed; only
/// with the same `SOURCE_DATE_EPOCH` in the environment of both builds it is taken for the same.
#[proc_macro_derive(Object, attributes(object, field))]
pub fn derive_object(item: TokenStream) -> TokenStream {
    finish(object::expand(item.into()))
}

/// Tells all languages of the functions in an `impl` of a derived type: `#[methods]`.
///
/// Functions that take `&self`, or `this: Ref<Self>` first, become methods; others become static methods. Types, defaults,
/// names and doc comments are taken as [`macro@register`] takes them. Helpers for Rust alone go into another `impl`; a type
/// may have several blocks with `#[methods]`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Object, Ref, Result, String, bail, methods};
///
/// /// An account.
/// #[derive(Object)]
/// #[object(key = "doc.Account")]
/// struct Account {
///     owner: String,
///     cents: i64,
/// }
///
/// #[methods]
/// impl Account {
///     /// Opens an account; `Account(owner)` in Python.
///     #[init]
///     fn open(owner: String, #[default(0)] cents: i64) -> Result<Account> {
///         if cents < 0 {
///             bail!("ValueError", "an account begins with 0 cents or more, not {cents}");
///         }
///         Ok(Account { owner, cents })
///     }
///
///     /// An account with as much more.
///     fn plus(&self, cents: i64) -> Account {
///         Account { owner: self.owner.clone(), cents: self.cents + cents }
///     }
///
///     /// Cents of both.
///     fn total(this: Ref<Self>, other: Ref<Account>) -> i64 {
///         this.cents + other.cents
///     }
///
///     /// The name of cents.
///     fn currency() -> &'static str {
///         "EUR"
///     }
/// }
///
/// let account = Ref::new(Account { owner: "Ada".into(), cents: 5 });
/// let more = account.as_object().call_method("plus", (7,))?;
/// assert_eq!(more.get::<Ref<Account>>()?.cents, 12);
/// let error = account.as_object().call_method("plus", ("x",)).unwrap_err();
/// assert!(error.message().contains("doc.Account.plus"));
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// - `#[init]`: the function is the constructor that other languages call, `__ffi_init__`, in place of the one that takes the
///   fields. One per type.
/// - `#[blocking]`: the method runs long or waits; callers release locks of their language during the call.
/// - `#[name = ".."]`: what other languages call it.
///
/// Once a plugin is unmapped, its methods are errors; they work again when it is loaded again.
#[proc_macro_attribute]
pub fn methods(args: TokenStream, item: TokenStream) -> TokenStream {
    finish(methods::expand(args.into(), item.into()))
}
