//! Error messages as arguments of the prelude's function `anyfn_fail`, which takes a `printf` format.

use std::fmt::Write as _;

use crate::family::{Literal, Message, Part};

/// Returns a message as C arguments: the literal of the format string, and the expressions whose values the
/// message shows.
pub(super) fn printf(message: &Message) -> String {
    let (mut format, mut shown) = (String::new(), String::new());
    for part in message.parts() {
        match part {
            Part::Text(text) => format.push_str(&text.replace('%', "%%").replace('\0', "\\0")),
            Part::Integer { code, .. } => {
                format.push_str("%lld");
                let _ = write!(shown, ", (long long)({code})");
            }
        }
    }
    format!("{}{shown}", Literal::of(&format))
}

/// Returns the C argument for a message that is a fixed string.
pub(super) fn printf_text(text: &str) -> String {
    printf(&Message::text(text))
}

#[cfg(test)]
mod tests {
    use anyfn::DType;

    use super::*;

    #[test]
    fn messages_show_percent_signs_and_nul() {
        let mut message = Message::text("100% \0?");
        message.push_integer("n".to_owned(), DType::INT32);
        assert_eq!(printf(&message), r#""100%% \1340\077%lld", (long long)(n)"#);
        message.push_text("%");
        assert_eq!(printf(&message), r#""100%% \1340\077%lld%%", (long long)(n)"#);
        assert_eq!(printf_text("a"), r#""a""#);
    }
}
