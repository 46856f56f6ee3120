//! User-defined value types.

/// Makes a Rust type a value type. Values of the type pass between languages by conversion to and from another
/// Rust type.
///
/// `value_type!(Mine as Other)` implements [`FromArg`](crate::FromArg) and [`IntoAny`](crate::IntoAny). It requires
/// `Other: From<Mine>` and `Mine: TryFrom<Other>` (which `From` implies). `Mine` can then be an argument, a result, an
/// element and, if it implements `Clone`, a field. `Other` may be a tuple, a string, or an object of a type with
/// reflected fields, which other languages print, compare and save. In Python, `anyfn.register_converter` converts such
/// objects to values of a Python class and back.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Object, Ref, TypedPackedFunc, value_type};
///
/// /// An amount of money in hundredths of a unit.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Cents(i64);
///
/// impl From<Cents> for String {
///     fn from(cents: Cents) -> String {
///         format!("{}.{:02}", cents.0 / 100, cents.0 % 100)
///     }
/// }
///
/// impl TryFrom<String> for Cents {
///     type Error = &'static str;
///     fn try_from(text: String) -> Result<Cents, Self::Error> {
///         let (whole, part) = text.split_once('.').ok_or("no point")?;
///         let number = |text: &str| text.parse::<i64>().map_err(|_| "no number");
///         Ok(Cents(number(whole)? * 100 + number(part)?))
///     }
/// }
///
/// value_type!(Cents as String);
///
/// /// An item with a price.
/// #[derive(Object)]
/// #[object(key = "doc.Price")]
/// struct Price {
///     each: Cents,
/// }
///
/// let twice = TypedPackedFunc::from_fn(|cents: Cents| Cents(cents.0 * 2));
/// assert_eq!(twice.as_packed().call(("1.25",))?.get::<&str>()?, "2.50");
/// let error = twice.as_packed().call(("1",)).unwrap_err();
/// assert_eq!(error.kind(), "ValueError");
/// assert!(error.message().contains("no point"));
/// let price = Ref::new(Price { each: Cents(5) });
/// assert_eq!(price.as_object().get_field("each")?.get::<Cents>()?, Cents(5));
/// # Ok::<(), anyfn::Error>(())
/// ```
#[macro_export]
macro_rules! value_type {
    ($mine:ty as $other:ty) => {
        impl $crate::FromArg for $mine {
            type Arg<'a> = $mine;
            fn schema() -> $crate::Schema {
                <$other as $crate::FromArg>::schema()
            }
            fn from_arg<'a>(view: &'a $crate::AnyView<'_>) -> ::core::result::Result<$mine, $crate::Mismatch> {
                let other: $other = <$other as $crate::FromArg>::from_arg(view)?;
                <$mine as ::core::convert::TryFrom<$other>>::try_from(other).map_err(|error| {
                    let expected = $crate::__private::format!("{}", <$mine as $crate::FromArg>::schema());
                    let got = $crate::__private::format!("an invalid value: {error}");
                    $crate::Mismatch::new("ValueError", expected, got)
                })
            }
        }

        impl $crate::IntoAny for $mine {
            fn schema() -> $crate::Schema {
                <$other as $crate::IntoAny>::schema()
            }
            fn into_any(self) -> $crate::Result<$crate::Any> {
                $crate::IntoAny::into_any(<$other as ::core::convert::From<$mine>>::from(self))
            }
        }
    };
}
