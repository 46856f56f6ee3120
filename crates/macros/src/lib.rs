//! The macros of anyfn. Use them through the crate `anyfn`, which re-exports them with their documentation.

use proc_macro::TokenStream;

mod attributes;
mod export;
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
/// language during the call; a function that waits for other threads needs that.
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
///         // SAFETY: the caller lends both tensors for the call and no one else writes them.
///         let (x, y) = unsafe { (x.as_slice::<f32>()?, y.as_mut_slice::<f32>()?) };
///         for (x, y) in x.iter().zip(y) {
///             *y += a * x;
///         }
///         Ok(())
///     }
/// }
/// ```
#[proc_macro]
pub fn export(items: TokenStream) -> TokenStream {
    finish(export::expand(items.into()))
}

/// Lets a Rust type live in an object: `#[derive(Object)] #[object(key = "my.Point")]`.
///
/// ```
/// # use anyfn_core as _;
/// #[derive(anyfn::Object)]
/// #[object(key = "doc.Point")]
/// struct Point {
///     x: i64,
/// }
///
/// let point = anyfn::Ref::new(Point { x: 3 });
/// let value = anyfn::Any::new(point)?;
/// assert_eq!(value.type_key(), "doc.Point");
/// assert_eq!(value.get::<anyfn::Ref<Point>>()?.x, 3);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[proc_macro_derive(Object, attributes(object))]
pub fn derive_object(item: TokenStream) -> TokenStream {
    finish(object::expand(item.into()))
}
