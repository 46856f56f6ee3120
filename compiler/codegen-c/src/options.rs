//! What the compiler of the generated code can do.

use anyfn_ir::target::Target;

/// For which compiler and machine code is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodegenOptions {
    /// Bytes of the machine's vectors: 64, 32 or 16; 0 for code without vectors, which any C11 compiler takes.
    pub vector_bytes: u16,
}

impl CodegenOptions {
    /// Code without extensions of compilers.
    pub const PORTABLE: CodegenOptions = CodegenOptions { vector_bytes: 0 };

    /// What the compiler of a target can do.
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

    /// Whether the extensions of GCC and Clang may be used.
    pub(crate) fn has_vectors(self) -> bool {
        self.vector_bytes != 0
    }
}
