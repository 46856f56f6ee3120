//! The bytes of saved modules, in the format of Apache TVM: the format of the code, a table of kernels, and the code. A string is its
//! length in 8 bytes and its bytes; a vector is its length in 8 bytes and its elements.

use anyfn::abi::DLDataType;
use anyfn::{DType, Error, Result, bail};

use crate::{Extent, Kernel};

/// Writes the format of the code and the table of kernels, with which a module begins. Equal modules have equal bytes.
#[must_use]
pub fn write_table(format: &str, kernels: &[Kernel]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_bytes(&mut bytes, format.as_bytes());
    write_length(&mut bytes, kernels.len());
    for kernel in kernels {
        write_bytes(&mut bytes, kernel.name.as_bytes());
        write_bytes(&mut bytes, kernel.name.as_bytes());
        write_length(&mut bytes, kernel.args.len());
        for DType(DLDataType { code, bits, lanes }) in &kernel.args {
            bytes.extend([*code, *bits]);
            bytes.extend(lanes.to_le_bytes());
        }
        write_length(&mut bytes, kernel.extents.len());
        for extent in &kernel.extents {
            write_bytes(&mut bytes, extent.to_string().as_bytes());
        }
        // Properties of arguments, none of which concerns these devices.
        write_length(&mut bytes, kernel.args.len());
        for _ in &kernel.args {
            bytes.extend(0_i32.to_le_bytes());
        }
    }
    bytes
}

/// Writes the length of a vector.
pub fn write_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u64).to_le_bytes());
}

/// Writes a string of bytes.
pub fn write_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    write_length(bytes, content.len());
    bytes.extend(content);
}

/// Reader of the bytes of a module. Each error is a `ValueError` with the position.
pub struct Reader<'a> {
    kind: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins to read a module of the given kind.
    #[must_use]
    pub fn new(kind: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { kind, bytes, at: 0 }
    }

    /// Reads what [`write_table`] or Apache TVM has written. The code must have the format `expected`.
    ///
    /// # Errors
    /// Returns `ValueError` if the bytes are damaged or in another format.
    pub fn table(&mut self, expected: &str) -> Result<Vec<Kernel>> {
        let format = self.text()?;
        if format != expected {
            bail!(
                "ValueError",
                "cannot load a module of kind `{}`: expected code in the format `{expected}` but got `{}`",
                self.kind,
                format.escape_debug()
            );
        }
        let mut kernels = Vec::new();
        for _ in 0..self.length(8)? {
            self.text()?;
            let name = self.text()?.to_owned();
            let mut args = Vec::new();
            for _ in 0..self.length(4)? {
                let [code, bits, low, high] = *self.array()?;
                args.push(DType::new(code, bits, u16::from_le_bytes([low, high])));
            }
            let mut extents = Vec::new();
            for _ in 0..self.length(8)? {
                extents.push(self.text()?.parse::<Extent>()?);
            }
            for _ in 0..self.length(4)? {
                self.array::<4>()?;
            }
            kernels.push(Kernel::new(name, args, extents)?);
        }
        Ok(kernels)
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// Returns `ValueError` if more bytes follow.
    pub fn finish(&self) -> Result<()> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.damaged()) }
    }

    /// Returns the error for bytes that are damaged.
    #[must_use]
    pub fn damaged(&self) -> Error {
        let (kind, at, all) = (self.kind, self.at, self.bytes.len());
        anyfn::error!(
            "ValueError",
            "cannot load a module of kind `{kind}`: its {all} bytes are damaged or in another format, at byte {at}"
        )
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or_else(|| self.damaged())?;
        let found = self.bytes.get(self.at..end).ok_or_else(|| self.damaged())?;
        self.at = end;
        Ok(found)
    }

    /// Reads a fixed number of bytes.
    ///
    /// # Errors
    /// Returns `ValueError` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let found = self.take(N)?;
        found.first_chunk().ok_or_else(|| self.damaged())
    }

    /// Reads the number of elements that follow, each of which takes at least `bytes` bytes.
    ///
    /// # Errors
    /// Returns `ValueError` if there are fewer.
    pub fn length(&mut self, bytes: usize) -> Result<usize> {
        let length = u64::from_le_bytes(*self.array()?);
        let rest = (self.bytes.len() - self.at) / bytes;
        usize::try_from(length).ok().filter(|length| *length <= rest).ok_or_else(|| self.damaged())
    }

    /// Reads a string of bytes.
    ///
    /// # Errors
    /// Returns `ValueError` if it is incomplete.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length(1)?;
        self.take(length)
    }

    /// Reads a string.
    ///
    /// # Errors
    /// Returns `ValueError` if it is incomplete or not UTF-8.
    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::POINTER;

    fn write(kernels: &[Kernel], source: &str) -> Vec<u8> {
        let mut bytes = write_table("cl", kernels);
        write_bytes(&mut bytes, source.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Kernel>, String)> {
        let mut reader = Reader::new("opencl", bytes);
        let kernels = reader.table("cl")?;
        let source = reader.text()?.to_owned();
        reader.finish()?;
        Ok((kernels, source))
    }

    fn kernels() -> Vec<Kernel> {
        let extents = ["blockIdx.x", "threadIdx.x"].map(|tag| tag.parse().unwrap()).to_vec();
        vec![Kernel::new("add".into(), vec![POINTER, DType::INT32], extents).unwrap()]
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = write(&kernels(), "kernel void add() {}");
        let (read, source) = read(&bytes).unwrap();
        assert_eq!((read, &*source), (kernels(), "kernel void add() {}"));
    }

    #[test]
    fn the_bytes_are_those_of_apache_tvm() {
        let number = |number: u64| number.to_le_bytes().to_vec();
        let text = |text: &str| [number(text.len() as u64), text.as_bytes().to_vec()].concat();
        let expected = [
            text("cl"),
            number(1),
            text("add"),
            text("add"),
            number(2),
            vec![3, 64, 1, 0, 0, 32, 1, 0],
            number(2),
            text("blockIdx.x"),
            text("threadIdx.x"),
            number(2),
            vec![0; 8],
            text("code"),
        ];
        assert_eq!(write(&kernels(), "code"), expected.concat());
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let bytes = write(&kernels(), "code");
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]).unwrap_err().kind(), "ValueError", "{end}");
        }
        assert!(read(&[&*bytes, &[0]].concat()).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xFF;
            // Not everything is an error, but nothing may panic or allocate without limit.
            drop(read(&damaged));
        }
    }
}
