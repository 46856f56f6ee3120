//! Chooses the implementation of ChaCha20-Poly1305 by the size of a message.
//!
//! The implementation of `snow` (the crate `chacha20poly1305`) computes in registers of 32 bytes on x86-64. That is fastest for large
//! messages, but preparing it takes more than a microsecond for each message, as long as everything else that an end of a session
//! does in a call. `orion` computes in scalar registers and takes a fifth of the time for the messages of a call.

use alloc::boxed::Box;

use orion::hazardous::aead::chacha20poly1305::{ChaCha20Poly1305, Nonce, SecretKey};
use snow::Error;
use snow::types::Cipher;

/// Maximum size of messages for `orion`, in bytes, without the authentication tag. At about 700 bytes, both take the same time.
const SMALL: usize = 512;
/// Size of the authentication tag in bytes.
const TAG: usize = 16;

/// Returns a cipher that leaves messages of more than [`SMALL`] bytes to `large`, an implementation of ChaCha20-Poly1305.
pub(crate) fn by_size(large: Box<dyn Cipher>) -> Box<dyn Cipher> {
    Box::new(BySize { small: SecretKey::from([0; 32]), large })
}

struct BySize {
    small: SecretKey,
    large: Box<dyn Cipher>,
}

/// Returns the nonce of the message with a number, as the Noise protocol defines it.
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::from(bytes)
}

impl Cipher for BySize {
    fn name(&self) -> &'static str {
        self.large.name()
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.small = SecretKey::from(*key);
        self.large.set(key);
    }

    fn encrypt(&self, number: u64, authenticated: &[u8], message: &[u8], out: &mut [u8]) -> usize {
        if message.len() <= SMALL {
            let sealed = ChaCha20Poly1305::seal(&self.small, &nonce(number), message, Some(authenticated), out);
            // It fails if `out` is too small or a length exceeds that of all memory; the other implementation handles this.
            if sealed.is_ok() {
                return message.len() + TAG;
            }
        }
        self.large.encrypt(number, authenticated, message, out)
    }

    fn decrypt(
        &self,
        number: u64,
        authenticated: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        match sealed.len().checked_sub(TAG) {
            Some(length) if length <= SMALL => {
                ChaCha20Poly1305::open(&self.small, &nonce(number), sealed, Some(authenticated), out)
                    .map(|()| length)
                    .map_err(|_| Error::Decrypt)
            }
            Some(_) => self.large.decrypt(number, authenticated, sealed, out),
            None => Err(Error::Decrypt),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use snow::params::CipherChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};

    use super::*;

    fn default(key: &[u8; 32]) -> Box<dyn Cipher> {
        let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
        cipher.set(key);
        cipher
    }

    fn chosen(key: &[u8; 32]) -> Box<dyn Cipher> {
        let mut cipher = by_size(default(&[0; 32]));
        cipher.set(key);
        cipher
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// The test vector of RFC 8439, appendix A.5, whose nonce begins with zeros as those of the Noise protocol do.
    #[test]
    fn the_known_vector_is_decrypted_and_encrypted() {
        let key = hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0");
        let authenticated = hex("f33388860000000000004e91");
        let number = u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        let sealed = hex(
            "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b01
             00d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b35
             06383606907b6a7c02b0f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f8
             3fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a67276
             27097a1049e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29a6ad5cb4022b02709beead9d67890cbb223923
             36fea1851f38",
        );
        let text = "Internet-Drafts are draft documents valid for a maximum of six months and may be updated, replaced, or \
                    obsoleted by other documents at any time. It is inappropriate to use Internet-Drafts as reference \
                    material or to cite them other than as /\u{201c}work in progress./\u{201d}";
        let cipher = chosen(key[..].try_into().unwrap());
        assert_eq!(cipher.name(), "ChaChaPoly");
        let mut out = vec![0; sealed.len() - TAG];
        assert_eq!(cipher.decrypt(number, &authenticated, &sealed, &mut out), Ok(out.len()));
        assert_eq!(core::str::from_utf8(&out).unwrap(), text);
        let mut again = vec![0; sealed.len()];
        assert_eq!(cipher.encrypt(number, &authenticated, &out, &mut again), sealed.len());
        assert_eq!(again, sealed);
    }

    #[test]
    fn both_implementations_agree_at_every_size() {
        let key: [u8; 32] = core::array::from_fn(|i| (i * 37) as u8);
        let (plain, chosen) = (default(&key), chosen(&key));
        for size in (0..SMALL + 70).chain([1024, 4096, 65519]) {
            let message: Vec<u8> = (0..size).map(|i| (i * 31 + size) as u8).collect();
            let authenticated = &message[..size.min(size % 40)];
            let number = (size as u64) << (size % 57);
            let mut sealed = [vec![0; size + TAG], vec![0; size + TAG]];
            let lengths = [
                plain.encrypt(number, authenticated, &message, &mut sealed[0]),
                chosen.encrypt(number, authenticated, &message, &mut sealed[1]),
            ];
            assert_eq!(lengths, [size + TAG; 2]);
            assert_eq!(sealed[0], sealed[1], "{size} bytes");
            let mut out = vec![0; size];
            assert_eq!(chosen.decrypt(number, authenticated, &sealed[0], &mut out), Ok(size));
            assert_eq!(out, message);
        }
    }

    #[test]
    fn changed_messages_are_rejected_at_every_size() {
        let cipher = chosen(&[9; 32]);
        for size in [0, 1, 39, SMALL, SMALL + 1, 3000] {
            let mut sealed = vec![0; size + TAG];
            cipher.encrypt(5, b"head", &vec![7; size], &mut sealed);
            let decrypt = |number, head: &[u8], sealed: &[u8]| {
                cipher.decrypt(number, head, sealed, &mut vec![0; size]).is_ok()
            };
            assert!(decrypt(5, b"head", &sealed));
            assert!(!decrypt(6, b"head", &sealed));
            assert!(!decrypt(5, b"Head", &sealed));
            assert!(!decrypt(5, b"head", &sealed[..sealed.len() - 1]));
            for at in [0, size / 2, size, size + TAG - 1] {
                sealed[at] ^= 0x10;
                assert!(!decrypt(5, b"head", &sealed), "byte {at} of {size}");
                sealed[at] ^= 0x10;
            }
        }
        assert!(cipher.decrypt(5, b"", &[0; TAG - 1], &mut []).is_err());
    }
}
