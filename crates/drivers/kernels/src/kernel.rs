//! The description of a kernel: its name, its arguments, and the extents of a launch.

use std::fmt;
use std::str::FromStr;

use anyfn::abi::{kDLBfloat, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{DType, Error, Result, bail};

/// Data type of an argument that is a buffer.
pub const POINTER: DType = DType::new(kDLOpaqueHandle, 64, 1);
/// Name of [`POINTER`] in a table of kernels.
const POINTER_NAME: &str = "pointer";

/// An extent of a launch, which follows the arguments of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Number of work groups in a dimension from 0 to 2: `blockIdx.x`, `blockIdx.y`, `blockIdx.z`.
    Groups(u8),
    /// Number of work items of a group in a dimension from 0 to 2: `threadIdx.x`, `threadIdx.y`, `threadIdx.z`.
    Items(u8),
}

const DIMENSIONS: [&str; 3] = ["x", "y", "z"];

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Groups(dimension) => write!(f, "blockIdx.{}", DIMENSIONS[usize::from(*dimension)]),
            Extent::Items(dimension) => write!(f, "threadIdx.{}", DIMENSIONS[usize::from(*dimension)]),
        }
    }
}

impl FromStr for Extent {
    type Err = Error;
    fn from_str(text: &str) -> Result<Extent> {
        let known = (0..3).flat_map(|dimension| [Extent::Groups(dimension), Extent::Items(dimension)]);
        let found = known.into_iter().find(|extent| extent.to_string() == text);
        found.ok_or_else(|| {
            anyfn::error!(
                "ValueError",
                "expected an extent from blockIdx.x to blockIdx.z or threadIdx.x to threadIdx.z but got `{}`; kernels \
                 have no other launch parameters",
                text.escape_debug()
            )
        })
    }
}

/// Description of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the kernel in the source.
    pub name: String,
    /// Data types of the arguments; [`POINTER`] is a buffer.
    pub args: Vec<DType>,
    /// Extents that follow the arguments in a call.
    pub extents: Vec<Extent>,
}

impl Kernel {
    /// Creates a description and checks it.
    ///
    /// # Errors
    /// Returns `ValueError` for a name or a parameter that a kernel cannot have.
    pub fn new(name: String, args: Vec<DType>, extents: Vec<Extent>) -> Result<Kernel> {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !is_name {
            bail!("ValueError", "expected the name of a kernel but got `{}`", name.escape_debug());
        }
        for arg in &args {
            let is_scalar = arg.0.lanes == 1
                && match arg.0.code {
                    kDLInt | kDLUInt => matches!(arg.0.bits, 8 | 16 | 32 | 64),
                    kDLFloat => matches!(arg.0.bits, 32 | 64),
                    _ => false,
                };
            if *arg != POINTER && !is_scalar {
                let hint = match arg.0.code {
                    kDLFloat | kDLBfloat => "; pass a float32, and convert it in the kernel",
                    _ => "",
                };
                bail!(
                    "ValueError",
                    "kernel `{name}`: expected `{POINTER_NAME}`, an integer type, float32 or float64 but got `{arg}`{hint}"
                );
            }
        }
        if !args.contains(&POINTER) {
            bail!("ValueError", "kernel `{name}`: at least one argument must be a `{POINTER_NAME}`");
        }
        for (at, extent) in extents.iter().enumerate() {
            if extents[..at].contains(extent) {
                bail!("ValueError", "kernel `{name}`: {extent} occurs twice");
            }
        }
        Ok(Kernel { name, args, extents })
    }

    /// Creates a description from the name of a kernel and its parameters: `pointer` for each buffer, the data type of
    /// each scalar, then the extents of a launch (`blockIdx.x`, `threadIdx.x` and so on).
    ///
    /// # Errors
    /// Returns `ValueError` for a parameter that a kernel cannot have.
    pub fn parse<'a>(name: &str, params: impl IntoIterator<Item = &'a str>) -> Result<Kernel> {
        let (mut args, mut extents) = (Vec::new(), Vec::new());
        for param in params {
            if param.contains("Idx") {
                extents.push(param.parse()?);
            } else if !extents.is_empty() {
                bail!(
                    "ValueError",
                    "kernel `{name}`: expected an extent after {} but got `{param}`",
                    extents[0]
                );
            } else if param == POINTER_NAME {
                args.push(POINTER);
            } else {
                args.push(param.parse()?);
            }
        }
        Kernel::new(name.to_owned(), args, extents)
    }

    /// Returns true if the size of a work group is a parameter of a launch.
    #[must_use]
    pub fn has_items(&self) -> bool {
        self.extents.iter().any(|extent| matches!(extent, Extent::Items(_)))
    }

    /// Returns the number of dimensions of a launch, from 1 to 3.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        let dimension = |extent: &Extent| match extent {
            Extent::Groups(dimension) | Extent::Items(dimension) => usize::from(*dimension) + 1,
        };
        self.extents.iter().map(dimension).max().unwrap_or(1)
    }
}

impl fmt::Display for Kernel {
    /// Writes the parameters of a call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arg = |arg: &DType| if *arg == POINTER { POINTER_NAME.to_owned() } else { arg.to_string() };
        let params: Vec<String> =
            self.args.iter().map(arg).chain(self.extents.iter().map(Extent::to_string)).collect();
        write!(f, "{}({})", self.name, params.join(", "))
    }
}

/// Returns the line before each kernel in the code that compilers generate. Each part is a source of its own.
fn marker(kernel: &Kernel) -> String {
    format!("// Function: {}\n", kernel.name)
}

/// Returns the part of a source that contains a kernel: from its line `// Function: NAME` to the next one, or, if not each of `kernels` has
/// such a line, the whole source.
#[must_use]
pub fn source_of<'a>(source: &'a str, kernel: &Kernel, kernels: &[Kernel]) -> &'a str {
    let start = |kernel: &Kernel| {
        let marker = marker(kernel);
        let found = source.match_indices(&marker).map(|(at, _)| at);
        found.into_iter().find(|at| *at == 0 || source.as_bytes()[at - 1] == b'\n')
    };
    let Some(starts) = kernels.iter().map(start).collect::<Option<Vec<usize>>>() else {
        return source;
    };
    let Some(own) = start(kernel) else { return source };
    let end = starts.into_iter().filter(|start| *start > own).min().unwrap_or(source.len());
    &source[own..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_parts_are_sources_of_their_own() {
        let kernels = |names: &[&str]| -> Vec<Kernel> {
            names.iter().map(|name| Kernel::parse(name, ["pointer"]).unwrap()).collect()
        };
        let source = "lost\n// Function: a\nA\n// Function: ab\nAB\n";
        let marked = kernels(&["a", "ab"]);
        assert_eq!(source_of(source, &marked[0], &marked), "// Function: a\nA\n");
        assert_eq!(source_of(source, &marked[1], &marked), "// Function: ab\nAB\n");
        let other = kernels(&["a", "b"]);
        assert_eq!(source_of(source, &other[0], &other), source);
    }

    #[test]
    fn descriptions_are_checked() {
        let kernel = Kernel::parse("f", ["pointer", "int32", "blockIdx.y", "threadIdx.x"]).unwrap();
        assert_eq!(kernel.to_string(), "f(pointer, int32, blockIdx.y, threadIdx.x)");
        assert_eq!(kernel.dimensions(), 2);
        for (name, params) in [
            ("", &["pointer"][..]),
            ("1f", &["pointer"]),
            ("f g", &["pointer"]),
            ("f", &[]),
            ("f", &["int32"]),
            ("f", &["pointer", "float16"]),
            ("f", &["pointer", "bool"]),
            ("f", &["pointer", "int32x4"]),
            ("f", &["pointer", "number"]),
            ("f", &["pointer", "blockIdx.w"]),
            ("f", &["pointer", "blockIdx.x", "blockIdx.x"]),
            ("f", &["blockIdx.x", "pointer"]),
        ] {
            assert_eq!(
                Kernel::parse(name, params.iter().copied()).unwrap_err().kind(),
                "ValueError",
                "{name} {params:?}"
            );
        }
    }
}
