//! Detection of CPU features, so that the peer can compile code for this machine.

use anyfn::register;

/// Returns the names of the CPU features of this machine beyond the baseline of its architecture, in Rust's
/// spelling.
#[register("rpc.processor_features")]
pub(crate) fn features() -> Vec<&'static str> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    macro_rules! detected {
        ($detect:ident: $($feature:tt)*) => {
            [$((std::arch::$detect!($feature), $feature)),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    let all = detected!(is_x86_feature_detected: "sse3" "ssse3" "sse4.1" "sse4.2" "sse4a" "popcnt" "lzcnt" "bmi1" "bmi2" "movbe"
        "adx" "aes" "pclmulqdq" "rdrand" "rdseed" "sha" "avx" "avx2" "f16c" "fma" "avxvnni" "gfni" "vaes" "vpclmulqdq" "avx512f"
        "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vnni" "avx512bitalg"
        "avx512vpopcntdq" "avx512bf16" "avx512fp16" "avx512vp2intersect" "cmpxchg16b" "xsave" "xsavec" "xsaveopt" "tbm" "rtm");
    #[cfg(target_arch = "aarch64")]
    let all = detected!(is_aarch64_feature_detected: "neon" "crc" "lse" "rdm" "rcpc" "rcpc2" "dotprod" "fp16" "fhm" "fcma" "jsconv"
        "bf16" "i8mm" "aes" "sha2" "sha3" "sm4" "dit" "flagm" "frintts" "paca" "bti" "mte" "sve" "sve2" "f32mm" "f64mm");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(bool, &'static str); 0] = [];
    all.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect()
}
