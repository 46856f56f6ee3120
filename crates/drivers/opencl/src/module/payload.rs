//! The bytes of a module of kind `opencl`, in the format of Apache TVM: the format of the code (`cl`), a table of kernels,
//! and the code. A string is its length in 8 bytes and its bytes; a vector is its length in 8 bytes and its elements.

use anyfn::abi::DLDataType;
use anyfn::{DType, Result, bail};

use super::kernel::{Extent, Kernel};

/// Format of the code of modules that contain OpenCL C.
const SOURCE: &str = "cl";

/// Writes a module to bytes. Equal modules have equal bytes.
pub(super) fn write(kernels: &[Kernel], source: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    text(&mut bytes, SOURCE);
    length(&mut bytes, kernels.len());
    for kernel in kernels {
        text(&mut bytes, &kernel.name);
        text(&mut bytes, &kernel.name);
        length(&mut bytes, kernel.args.len());
        for DType(DLDataType { code, bits, lanes }) in &kernel.args {
            bytes.extend([*code, *bits]);
            bytes.extend(lanes.to_le_bytes());
        }
        length(&mut bytes, kernel.extents.len());
        for extent in &kernel.extents {
            text(&mut bytes, &extent.to_string());
        }
        // Properties of arguments, none of which concerns OpenCL.
        length(&mut bytes, kernel.args.len());
        for _ in &kernel.args {
            bytes.extend(0_i32.to_le_bytes());
        }
    }
    text(&mut bytes, source);
    bytes
}

fn length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u64).to_le_bytes());
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    length(bytes, text.len());
    bytes.extend(text.as_bytes());
}

/// Reads the kernels and the source that [`write`] or Apache TVM has written.
///
/// # Errors
/// Returns `ValueError` with the position if the bytes are damaged or in another format.
pub(super) fn read(bytes: &[u8]) -> Result<(Vec<Kernel>, String)> {
    let mut reader = Reader { bytes, at: 0 };
    let format = reader.text()?;
    if format != SOURCE {
        bail!(
            "ValueError",
            "cannot load a module of kind `opencl`: expected code in the format `{SOURCE}` but got `{}`",
            format.escape_debug()
        );
    }
    let mut kernels = Vec::new();
    for _ in 0..reader.length(8)? {
        reader.text()?;
        let name = reader.text()?.to_owned();
        let mut args = Vec::new();
        for _ in 0..reader.length(4)? {
            let [code, bits, low, high] = *reader.array()?;
            args.push(DType::new(code, bits, u16::from_le_bytes([low, high])));
        }
        let mut extents = Vec::new();
        for _ in 0..reader.length(8)? {
            extents.push(reader.text()?.parse::<Extent>()?);
        }
        for _ in 0..reader.length(4)? {
            reader.array::<4>()?;
        }
        kernels.push(Kernel::new(name, args, extents)?);
    }
    let source = reader.text()?.to_owned();
    if reader.at != bytes.len() {
        return Err(reader.damaged());
    }
    Ok((kernels, source))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn damaged(&self) -> anyfn::Error {
        let (at, all) = (self.at, self.bytes.len());
        anyfn::error!(
            "ValueError",
            "cannot load a module of kind `opencl`: its {all} bytes are damaged or in another format, at byte {at}"
        )
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or_else(|| self.damaged())?;
        let found = self.bytes.get(self.at..end).ok_or_else(|| self.damaged())?;
        self.at = end;
        Ok(found)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let found = self.take(N)?;
        found.first_chunk().ok_or_else(|| self.damaged())
    }

    /// Reads the number of elements that follow, each of which takes at least `bytes` bytes.
    fn length(&mut self, bytes: usize) -> Result<usize> {
        let length = u64::from_le_bytes(*self.array()?);
        let rest = (self.bytes.len() - self.at) / bytes;
        usize::try_from(length).ok().filter(|length| *length <= rest).ok_or_else(|| self.damaged())
    }

    fn text(&mut self) -> Result<&'a str> {
        let length = self.length(1)?;
        let found = self.take(length)?;
        std::str::from_utf8(found).map_err(|_| self.damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels() -> Vec<Kernel> {
        let extents = ["blockIdx.x", "threadIdx.x"].map(|tag| tag.parse().unwrap()).to_vec();
        vec![Kernel::new("add".into(), vec![super::super::kernel::POINTER, DType::INT32], extents).unwrap()]
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
