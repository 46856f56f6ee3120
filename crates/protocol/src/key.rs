//! Keys of clients.
//!
//! A key is the string `NAME:SECRET`: the name is sent in plain text, the secret (32 random bytes, in base64url without padding)
//! is never sent.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use anyfn::{Error, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Size of a key's secret, in bytes.
pub const SECRET_SIZE: usize = 32;

/// Maximum length of a key's name, in bytes.
pub const NAME_MAX: usize = 64;

/// Function that fills its argument with random bytes that are fit for cryptography, such as those of the operating system or of
/// a hardware generator.
pub type Random = fn(&mut [u8]) -> Result<()>;

/// Secret of 32 bytes that client and server share. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_SIZE]);

impl Secret {
    /// Creates a secret from random bytes.
    ///
    /// # Errors
    /// Returns the error of `random`.
    pub fn generate(random: Random) -> Result<Secret> {
        let mut bytes = [0; SECRET_SIZE];
        random(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// Parses a secret in the form of 43 base64url characters. Returns `None` if `text` does not have this
    /// form.
    pub fn parse(text: &str) -> Option<Secret> {
        let bytes = base64_decode(text)?;
        bytes.try_into().ok().map(Secret)
    }

    /// Formats the secret as 43 base64url characters. Printing the result reveals the secret to everyone who
    /// can read the output.
    pub fn to_text(&self) -> String {
        base64_encode(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Key of a client: a name and a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    name: String,
    secret: Secret,
}

impl Key {
    /// Creates a key with a new random secret.
    ///
    /// # Errors
    /// Returns `ValueError` if `name` is not a valid name of a key, and otherwise the error of `random`.
    pub fn generate(name: &str, random: Random) -> Result<Key> {
        check_name(name)?;
        Key::new(name, Secret::generate(random)?)
    }

    /// Creates a key with the given secret.
    ///
    /// # Errors
    /// Returns `ValueError` if `name` is not a valid name of a key.
    pub fn new(name: &str, secret: Secret) -> Result<Key> {
        check_name(name)?;
        Ok(Key { name: name.into(), secret })
    }

    /// Returns the name of the key. The name is sent unencrypted.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the secret of the key.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Formats the key, including its secret, as a string.
    pub fn to_text(&self) -> String {
        format!("{}:{}", self.name, self.secret.to_text())
    }
}

impl FromStr for Key {
    type Err = Error;

    /// Parses a key. ASCII white space around the key, such as the newline at the end of a file, is
    /// ignored.
    fn from_str(text: &str) -> Result<Key> {
        let text = text.trim_ascii();
        // The message never repeats the input: most of a mistyped key is a secret.
        let Some((name, secret)) = text.split_once(':') else {
            bail!(
                "ValueError",
                "expected a key of the form `NAME:SECRET`, as printed by `anyfn rpc key NAME`, got a string without a colon"
            );
        };
        check_name(name)?;
        match Secret::parse(secret) {
            Some(secret) => Key::new(name, secret),
            None => bail!(
                "ValueError",
                "expected 43 characters of base64url (letters, digits, `-`, `_`) as the secret of key `{name}`, got {}",
                match secret.chars().count() {
                    43 => "other characters".to_owned(),
                    count => format!("{count} characters"),
                }
            ),
        }
    }
}

/// Checks that `name` is a valid key name.
///
/// # Errors
/// Returns `ValueError` for any other name.
pub fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_MAX).flat_map(char::escape_debug).collect();
    bail!(
        "ValueError",
        "expected a key name of 1 to {NAME_MAX} ASCII letters, digits, `.`, `-` and `_`, got `{shown}`"
    )
}

/// Returns true if `name` is a valid key name.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Encodes bytes as base64url without padding.
fn base64_encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a string that [`base64_encode`] has created. Returns `None` for all other strings, so that each
/// value has only one encoding.
fn base64_decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn base64_and_back() {
        for size in 0..40usize {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 37 + size) as u8).collect();
            let text = base64_encode(&bytes);
            assert_eq!(base64_decode(&text).as_deref(), Some(&bytes[..]), "{text}");
        }
        assert_eq!(base64_encode(b"\xfb\xff\xfe"), "-__-");
        assert_eq!(base64_encode(b"ab"), "YWI");
        for wrong in ["A", "AAAAA", "AB=", "A+/A", "YWJ", "\u{e9}AAA"] {
            assert_eq!(base64_decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_damaged_secret_is_described_but_not_shown() {
        for (secret, got) in [("!".repeat(43), "got other characters"), ("ab".to_owned(), "got 2 characters")] {
            let error = format!("alice:{secret}").parse::<Key>().unwrap_err();
            assert_eq!(error.kind(), "ValueError");
            assert!(error.message().ends_with(got), "{error}");
            assert!(!error.message().contains(&secret), "{error}");
        }
    }

    #[test]
    fn white_space_around_a_key_is_ignored() {
        let key = Key::new("alice", Secret([7; SECRET_SIZE])).unwrap();
        for (before, after) in [("", "\n"), ("", "\r\n"), (" \t", " ")] {
            assert_eq!(format!("{before}{}{after}", key.to_text()).parse::<Key>().unwrap(), key);
        }
        for wrong in [key.to_text().replace(':', ": "), format!("{}\u{a0}", key.to_text())] {
            assert_eq!(wrong.parse::<Key>().unwrap_err().kind(), "ValueError", "{wrong:?}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let key = Key::new("alice", Secret([7; SECRET_SIZE])).unwrap();
        assert!(!format!("{key:?}").contains(&key.secret().to_text()));
    }
}
