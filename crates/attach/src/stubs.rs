//! Hidden symbols for the functions of the ABI. Each symbol jumps to an address in a function table.
//!
//! The table has the layout of [`AnyfnApi`]. It and the stubs are written in assembly because a jump leaves arguments and results
//! of every signature untouched, and because symbols defined here can be hidden: a `#[no_mangle]` function in Rust would be
//! exported by the extension and could capture the calls of other libraries.

use anyfn_abi::{AnyfnApi, for_each_function};

/// Aborts the process, because a function of the ABI was called before [`crate::attach`] had succeeded.
extern "C" fn unattached() -> ! {
    eprintln!("anyfn: a function of the runtime was called before the runtime was attached");
    std::process::abort()
}

const FIRST: usize = std::mem::offset_of!(AnyfnApi, TVMFFIGetVersion);
const COUNT: usize = (size_of::<AnyfnApi>() - FIRST) / size_of::<usize>();

unsafe extern "C" {
    /// Function table through which the stubs jump. At first, all its entries contain the address
    /// of [`unattached`].
    static mut anyfn_attach_table: AnyfnApi;
}

std::arch::global_asm!(
    ".pushsection .data.anyfn_attach,\"aw\"",
    ".balign 8",
    ".hidden anyfn_attach_table",
    ".globl anyfn_attach_table",
    ".type anyfn_attach_table,%object",
    "anyfn_attach_table:",
    ".zero {first}",
    ".rept {count}",
    ".quad {unattached}",
    ".endr",
    ".size anyfn_attach_table, .-anyfn_attach_table",
    ".popsection",
    first = const FIRST,
    count = const COUNT,
    unattached = sym unattached,
);

macro_rules! stubs {
    ($($name:ident),*) => { $( stub!($name); )* };
}

#[cfg(target_arch = "x86_64")]
macro_rules! stub {
    ($name:ident) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($name)),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            "jmp *anyfn_attach_table+{offset}(%rip)",
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            ".popsection",
            offset = const std::mem::offset_of!(AnyfnApi, $name),
            options(att_syntax),
        );
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! stub {
    ($name:ident) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($name)),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            // x16 may be changed between a call and its target.
            "adrp x16, anyfn_attach_table+{offset}",
            "ldr x16, [x16, :lo12:anyfn_attach_table+{offset}]",
            "br x16",
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            ".popsection",
            offset = const std::mem::offset_of!(AnyfnApi, $name),
        );
    };
}

for_each_function!(stubs);

/// Makes the stubs jump to the functions of `api`. The caller has checked the size of `api`.
pub(crate) fn fill(api: &AnyfnApi) {
    let table = &raw mut anyfn_attach_table;
    // SAFETY: both are tables of this size. The caller holds the lock, and no function of the ABI is called before this copy is
    // complete, so nothing reads the table meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(api, table, 1) };
}

/// Returns a copy of the table before [`fill`], for tests.
#[cfg(test)]
pub(crate) fn initial() -> AnyfnApi {
    let table = &raw const anyfn_attach_table;
    // SAFETY: zeros are valid for the members before the functions, all functions are `unattached`, and nothing writes meanwhile: one test uses
    // the table.
    unsafe { table.read() }
}
