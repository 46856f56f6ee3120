//! Options of the code generator for the host.

use anyfn_ir::target::Target;

/// Options that describe the C compiler and the processor for which code is generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CodegenOptions {
    /// Size of the processor's vectors in bytes: 64, 32 or 16. If the size is 0, the generated code
    /// has no vectors and is accepted by any C11 compiler.
    pub(crate) vector_bytes: u16,
}

impl CodegenOptions {
    /// Options for code that any C11 compiler accepts.
    pub(crate) const PORTABLE: CodegenOptions = CodegenOptions { vector_bytes: 0 };

    /// Returns the options for the C compiler and processor of a target.
    pub(crate) fn of(target: &Target) -> CodegenOptions {
        let vector_bytes = match target.vector_bytes {
            64.. => 64,
            32.. => 32,
            16.. => 16,
            _ => 0,
        };
        CodegenOptions { vector_bytes }
    }

    /// Returns true if generated code may use the vector extensions of GCC and Clang.
    pub(crate) fn has_vectors(self) -> bool {
        self.vector_bytes != 0
    }
}
