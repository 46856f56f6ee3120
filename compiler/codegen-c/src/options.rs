//! Options of the C code generator.

use anyfn_ir::target::Target;

/// Compiler and machine for which code is generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodegenOptions {
    /// Length of the machine's vectors in bytes: 64, 32 or 16, or 0 for code without vectors, which any C11 compiler
    /// accepts.
    pub vector_bytes: u16,
}

impl CodegenOptions {
    /// Options for code without compiler extensions.
    pub const PORTABLE: CodegenOptions = CodegenOptions { vector_bytes: 0 };

    /// Returns the options for the compiler and machine of a target.
    #[must_use]
    pub fn of(target: &Target) -> CodegenOptions {
        let vector_bytes = match target.vector_bytes {
            64.. => 64,
            32.. => 32,
            16.. => 16,
            _ => 0,
        };
        CodegenOptions { vector_bytes }
    }

    /// Returns true if the extensions of GCC and Clang may be used.
    pub(crate) fn has_vectors(self) -> bool {
        self.vector_bytes != 0
    }
}
