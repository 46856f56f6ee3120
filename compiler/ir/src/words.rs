//! Words in arguments and messages: enums that other languages represent as strings, and counted nouns.

/// Returns a number with a noun, such as `1 index` or `2 indices`.
#[must_use]
pub fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns a number of dimensions in words, such as `1 dimension`.
#[must_use]
pub fn dimensions(count: usize) -> String {
    counted(count, "dimension", "dimensions")
}

/// Returns a number of indices in words, such as `1 index`.
#[must_use]
pub fn indices(count: usize) -> String {
    counted(count, "index", "indices")
}

/// Defines an enum whose values are represented as strings in other languages.
#[macro_export]
#[doc(hidden)]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Returns the string that represents the value in other languages.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl anyfn::FromArg for $name {
            type Arg<'a> = $name;
            fn schema() -> anyfn::Schema {
                <anyfn::String as anyfn::FromArg>::schema()
            }
            fn from_arg(view: &anyfn::AnyView<'_>) -> Result<$name, anyfn::Mismatch> {
                match <&str as anyfn::FromArg>::from_arg(view)? {
                    $($text => Ok($name::$variant),)*
                    other => {
                        let known = [$($text),*].join("`, `");
                        Err(anyfn::Mismatch::new("ValueError", format!("one of `{known}"), format!("{other:?}")))
                    }
                }
            }
        }

        impl anyfn::IntoAny for $name {
            fn schema() -> anyfn::Schema {
                <anyfn::String as anyfn::FromArg>::schema()
            }
            fn into_any(self) -> anyfn::Result<anyfn::Any> {
                anyfn::IntoAny::into_any(anyfn::String::from(self.text()))
            }
        }
    };
}
