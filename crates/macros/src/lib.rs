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

/// Registers a function as a global function that all languages can call (`#[register("name")]`).
///
/// In a program, the function is available from the first use of the registry on; in a plugin, from the time the
/// plugin is loaded until its module is released. The argument names and the doc comment are kept as the function's
/// signature.
///
/// - An argument with `#[default(2)]` may be omitted by callers of any language. The arguments after it need a
///   default, too.
/// - `#[read_only]` on a tensor argument declares that the function only reads the tensor. Callers can then pass
///   read-only arrays.
/// - `#[register("name", override)]` replaces a function of the same name.
/// - With `blocking`, callers release the locks of their language during the call. A function that waits for other
///   threads needs `blocking`.
/// - With `unsafe`, the function is an `unsafe fn` that trusts the addresses that its callers pass. Safe Rust code
///   and remote peers cannot look it up.
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

/// Turns a `cdylib` into a library module: exports functions by name, together with the functions that `#[register]`
/// has collected.
///
/// Use it once per library. Each entry is either a function, which is exported under its name, or `"name" => path`.
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
/// Loading the library installs a panic hook in the library's own copy of the standard library. It adds the source
/// location to the errors of panics.
///
/// Names that begin with `_library_`, `_metadata_` or `_doc_` are refused. With the prefix `__tvm_ffi_`, the loader
/// would interpret their symbols as data and not as functions.
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

/// Makes a Rust type an object type and registers its fields for all languages
/// (`#[derive(Object)]`).
///
/// The named fields become reflected fields, which every language reads by name and whose doc comments it sees. Every
/// language can construct objects from arguments for these fields. The type of a field must be one that functions take
/// and return, an atomic number or a `Cell`. Atomic numbers and `Cell`s can be set at any time; other fields do not
/// change after the object is constructed. If a function returns a value of the Rust type, its caller receives a new
/// object. [`macro@methods`] adds methods.
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
/// - `key = "my.Node"`: the type key, which is required.
/// - `parent = Base`: the type derives from another one. The first field holds the parent, and the struct is
///   `#[repr(C)]`. An object of the type is accepted wherever one of the parent is expected, and dereferences to the
///   parent.
/// - `final`: no type can derive from this one. `child_slots = N`: reserves `N` type indices for derived types.
/// - `structural = "tree"`, `"dag"`, `"var"`, `"const_tree"` or `"unique"`: the treatment of the type by structural
///   equality and structural hash.
/// - `init = false`: only Rust code constructs objects. `opaque`: only the type key is registered.
///
/// Options of a field, in `#[field(..)]`:
/// - `default = value`, or `default` for the `Default` of its type: the argument for the field may be omitted. A value
///   that is not a constant is computed anew for each object.
/// - `skip`: other languages do not see the field. If it has a `default`, they can still construct objects.
/// - `kw_only`, `init = false`, `repr = false`, `compare = false`, `hash = false`, `name = ".."`.
/// - `structural = "ignore"`, `"def"` (the field defines variables) or `"def_simple"`.
///
/// Fields are accessed by reference, so a type cannot be `#[repr(packed)]`:
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
/// The expression of a default is safe code:
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
/// **A type that is recompiled** while the process runs, in a library that is reloaded, continues to work if its
/// objects have the same memory layout. The layout is known for reflected fields, and for fields whose types belong to
/// the standard library or to `anyfn`. It is not known for unnamed and skipped fields of other types, because those
/// types may have changed. A library with such a type is accepted only if both builds had the same `SOURCE_DATE_EPOCH`
/// in their environment, and refused otherwise.
#[proc_macro_derive(Object, attributes(object, field))]
pub fn derive_object(item: TokenStream) -> TokenStream {
    finish(object::expand(item.into()))
}

/// Registers the functions in an `impl` block for all languages (`#[methods]`). The type must have
/// `#[derive(Object)]`.
///
/// Functions whose first parameter is `&self` or `this: Ref<Self>` become methods; the others become static methods.
/// Types, defaults, names and doc comments are treated as in [`macro@register`]. Helpers for Rust alone belong in
/// another `impl`. A type may have several `#[methods]` blocks.
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
///     /// Returns an account with `cents` more.
///     fn plus(&self, cents: i64) -> Account {
///         Account { owner: self.owner.clone(), cents: self.cents + cents }
///     }
///
///     /// Returns the total of both accounts in cents.
///     fn total(this: Ref<Self>, other: Ref<Account>) -> i64 {
///         this.cents + other.cents
///     }
///
///     /// Returns the name of the currency.
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
/// - `#[init]`: the function is the constructor that other languages call, `__ffi_init__`, and replaces the one that
///   takes the fields. A type has at most one.
/// - `#[blocking]`: the method runs for a long time or waits. Callers release the locks of their language during the
///   call.
/// - `#[name = ".."]`: the name of the method in other languages.
///
/// **A type of another crate** cannot have an `impl` here. `#[methods(of = Type)]` on the `impl` of a local type adds
/// its functions to `Type`, or the constructor of `Type`. A method takes the object as `this: Ref<Type>`:
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Object, Ref, methods};
///
/// mod shapes {
///     /// A circle.
///     #[derive(anyfn::Object)]
///     #[object(key = "doc.Circle")]
///     pub struct Circle {
///         pub radius: f64,
///     }
/// }
/// use shapes::Circle;
///
/// struct Geometry;
///
/// #[methods(of = Circle)]
/// impl Geometry {
///     /// Creates a circle; `Circle(diameter)` in Python.
///     #[init]
///     fn circle(diameter: f64) -> Circle {
///         Circle { radius: diameter / 2.0 }
///     }
///
///     /// Returns the diameter.
///     fn diameter(this: Ref<Circle>) -> f64 {
///         2.0 * this.radius
///     }
/// }
///
/// let circle = Ref::new(Geometry::circle(3.0));
/// assert_eq!(circle.as_object().call_method("diameter", ())?.get::<f64>()?, 3.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// After a plugin is unmapped, calls of its methods fail. They work again when the plugin is loaded again.
#[proc_macro_attribute]
pub fn methods(args: TokenStream, item: TokenStream) -> TokenStream {
    finish(methods::expand(args.into(), item.into()))
}
