//! Detection of the processor of this machine and of the processors that C compilers target.

use std::collections::HashMap;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyfn::{Error, Result, bail};

/// Architecture, features and vector size of a processor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cpu {
    pub(super) arch: String,
    pub(super) features: Vec<&'static str>,
    pub(super) vector_bytes: i64,
}

/// Processor features, each with the macro that C compilers predefine for it.
const FEATURES: &[(&str, &str)] = &[
    ("sse4.2", "__SSE4_2__"),
    ("avx", "__AVX__"),
    ("f16c", "__F16C__"),
    ("fma", "__FMA__"),
    ("avx2", "__AVX2__"),
    ("bmi2", "__BMI2__"),
    ("avxvnni", "__AVXVNNI__"),
    ("avx512f", "__AVX512F__"),
    ("avx512bw", "__AVX512BW__"),
    ("avx512dq", "__AVX512DQ__"),
    ("avx512vl", "__AVX512VL__"),
    ("avx512vnni", "__AVX512VNNI__"),
    ("avx512bf16", "__AVX512BF16__"),
    ("avx512fp16", "__AVX512FP16__"),
    ("neon", "__ARM_NEON"),
    ("dotprod", "__ARM_FEATURE_DOTPROD"),
    ("fp16", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC"),
    ("bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC"),
    ("i8mm", "__ARM_FEATURE_MATMUL_INT8"),
    ("sve", "__ARM_FEATURE_SVE"),
    ("sve2", "__ARM_FEATURE_SVE2"),
    ("rvv", "__riscv_vector"),
];

/// Processor architectures, each with the macro that C compilers predefine for it.
const ARCHS: &[(&str, &str)] = &[
    ("x86_64", "__x86_64__"),
    ("aarch64", "__aarch64__"),
    ("x86", "__i386__"),
    ("arm", "__arm__"),
    ("wasm32", "__wasm32__"),
    ("powerpc64", "__powerpc64__"),
    ("s390x", "__s390x__"),
    ("loongarch64", "__loongarch64"),
];

/// Returns the name and properties of the processor for which a compiler command generates code.
pub(super) fn of(cc: &str, mcpu: Option<String>, extra: &[String]) -> Result<(String, Cpu)> {
    if let Some(bad) =
        mcpu.as_ref().filter(|name| !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)))
    {
        bail!("ValueError", "option `mcpu` of a target: expected the name of a processor, got `{bad}`");
    }
    let is_here = compiles_for_this_machine(&words(cc)?);
    let mcpu =
        mcpu.unwrap_or_else(|| if is_here && has_native() { "native".to_owned() } else { String::new() });
    if is_here && extra.is_empty() && mcpu == "native" {
        return Ok((mcpu, this()));
    }
    let cpu = ask(cc, &mcpu, extra)?;
    Ok((mcpu, cpu))
}

/// Returns the compiler arguments that select a processor.
pub(crate) fn options(arch: &str, mcpu: &str) -> Vec<String> {
    match (mcpu, arch) {
        ("", _) => Vec::new(),
        (_, "x86_64" | "x86") => vec![format!("-march={mcpu}")],
        _ => vec![format!("-mcpu={mcpu}")],
    }
}

/// Returns true if the words of a compiler command indicate that the compiler generates code for
/// this machine. The name of a cross compiler contains its target, as in `aarch64-linux-gnu-gcc`.
fn compiles_for_this_machine(words: &[String]) -> bool {
    let name = name(words);
    let is_cross =
        name.contains("-gcc") || name.contains("-clang") || name.contains("-cc") || name.contains("emcc");
    !is_cross
        && !words
            .iter()
            .any(|word| word.trim_start_matches('-').starts_with("target") || word.starts_with("-m"))
}

/// Returns true if compilers for the architecture of this machine accept `native` as a processor name.
const fn has_native() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64"))
}

/// Detects the architecture, features and vector size of the processor of this machine.
fn this() -> Cpu {
    let mut features: Vec<&'static str> = Vec::new();
    macro_rules! ask {
        ($detect:ident: $($feature:tt)*) => { $(
            if std::arch::$detect!($feature) { features.push($feature); }
        )* };
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    ask!(is_x86_feature_detected: "sse4.2" "avx" "f16c" "fma" "avx2" "bmi2" "avxvnni" "avx512f" "avx512bw" "avx512dq"
        "avx512vl" "avx512vnni" "avx512bf16" "avx512fp16");
    #[cfg(target_arch = "aarch64")]
    ask!(is_aarch64_feature_detected: "neon" "dotprod" "fp16" "bf16" "i8mm" "sve" "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    features.clear();
    Cpu { arch: std::env::consts::ARCH.to_owned(), vector_bytes: vector_bytes(&features, None), features }
}

/// Returns the size of a vector register in bytes, which is 16 unless `features` or `sve_bits` imply another
/// size. If the registers of a processor are smaller, compilers use several registers for one vector.
fn vector_bytes(features: &[&str], sve_bits: Option<i64>) -> i64 {
    match features {
        _ if features.contains(&"avx512f") => 64,
        _ if features.contains(&"avx") => 32,
        // SVE is used only if its vector length is specified, because the length is otherwise unknown at
        // compile time.
        _ if sve_bits.is_some_and(|bits| bits >= 128) => sve_bits.unwrap_or(128) / 8,
        _ => 16,
    }
}

/// Determines the processor that a compiler targets from its predefined macros. The result is cached.
fn ask(cc: &str, mcpu: &str, extra: &[String]) -> Result<Cpu> {
    type Known = HashMap<(String, String, Vec<String>), Cpu>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let key = (cc.to_owned(), mcpu.to_owned(), extra.to_vec());
    let known = KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|known| known.get(&key).cloned());
    if let Some(cpu) = known {
        return Ok(cpu);
    }
    // The name of the option depends on the architecture, which the compiler reports without the option.
    let arch = if mcpu.is_empty() { String::new() } else { read(&macros(cc, &[], extra)?).arch };
    let cpu = match macros(cc, &options(&arch, mcpu), extra) {
        Ok(text) => read(&text),
        Err(error) if mcpu.is_empty() => return Err(error),
        Err(error) => bail!("ValueError", "unknown processor `{mcpu}`: {}", error.message()),
    };
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key, cpu.clone());
    Ok(cpu)
}

/// Runs a compiler to list its predefined macros, and returns the list.
fn macros(cc: &str, cpu: &[String], extra: &[String]) -> Result<String> {
    let words = words(cc)?;
    let mut command = Command::new(words.first().map_or("cc", String::as_str));
    command.args(words.iter().skip(1)).args(cpu).args(extra).args(["-dM", "-E", "-x", "c", "-"]);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    match output(&mut command)? {
        Ok((status, output, _)) if status.success() => Ok(output),
        Ok((_, _, text)) => bail!("RuntimeError", "`{cc}` failed:\n{}", text.trim_end()),
        Err(error) => Err(no_compiler(cc, &error.to_string())),
    }
}

/// Runs a command and returns its exit status, standard output and standard error. If a signal
/// interrupts the calling thread, kills the command and returns the error of the signal.
fn output(command: &mut Command) -> Result<std::io::Result<(ExitStatus, String, String)>> {
    fn reader(pipe: Option<impl Read + Send + 'static>) -> std::io::Result<JoinHandle<String>> {
        std::thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    }
    let mut begin = || {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let readers = reader(child.stdout.take()).and_then(|out| Ok((out, reader(child.stderr.take())?)));
        Ok((child, readers?))
    };
    let (mut child, (out, err)) = match begin() {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(error)),
    };
    while !(out.is_finished() && err.is_finished()) {
        if let Err(error) = anyfn::check_signals() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let read = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(child.wait().map(|status| (status, read(out), read(err))))
}

/// Splits the command `Target::cc` into words.
///
/// # Errors
/// Returns `ValueError` if the command ends within a quotation or after a backslash.
pub(crate) fn words(cc: &str) -> Result<Vec<String>> {
    match anyfn_command::words(cc) {
        // Only a comment. An empty command means `cc`.
        Ok(words) if words.is_empty() && !cc.trim().is_empty() => {
            bail!(
                "ValueError",
                "cannot run the C compiler: expected the name of a program in the command `{cc}`"
            )
        }
        Ok(words) => Ok(words),
        Err(incomplete) => bail!("ValueError", "cannot run the C compiler: {incomplete}"),
    }
}

/// Returns the file name of the executable of a command, without its directory.
fn name(words: &[String]) -> &str {
    words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

/// Returns the error for a C compiler that cannot be started, with advice for the user.
#[cold]
pub(crate) fn no_compiler(cc: &str, reason: &str) -> Error {
    let text = format!(
        "cannot start the C compiler `{cc}`: {reason}; install one (`apt-get install {}`), or select \
         another with the option `cc` of the target or the environment variable CC",
        package(cc)
    );
    Error::new("RuntimeError", &text)
}

/// Returns the name of the Debian package that contains a compiler, derived from the name of the compiler.
fn package(cc: &str) -> String {
    let words = words(cc).unwrap_or_default();
    match name(&words).split_once("-linux-") {
        Some((arch, rest)) if rest.contains("-gcc") => {
            let system = rest.split_once("-gcc").map_or(rest, |(system, _)| system);
            format!("gcc-{}-linux-{system}", arch.replace('_', "-"))
        }
        _ if name(&words).starts_with("clang") => "clang".to_owned(),
        _ => "gcc".to_owned(),
    }
}

/// Returns a string that identifies the processor of this machine. The string also distinguishes
/// processors whose [`FEATURES`] are equal, since compilers use further features.
pub(super) fn this_one() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            let (kind, more, last) = (__cpuid(1), __cpuid_count(7, 0), __cpuid_count(7, 1));
            format!(
                "{:x} {:x} {:x} {:x} {:x} {:x} {:x}",
                kind.eax, kind.ecx, kind.edx, more.ebx, more.ecx, more.edx, last.eax
            )
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // The file has one paragraph per core, with the same lines.
            let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let is_told =
                |line: &&str| ["CPU", "Features", "isa", "uarch"].iter().any(|name| line.starts_with(name));
            let mut lines: Vec<&str> = text.lines().filter(is_told).collect();
            lines.sort_unstable();
            lines.dedup();
            lines.join("; ")
        }
    })
}

/// Determines the properties of a processor from the macros that a compiler predefines for it.
fn read(macros: &str) -> Cpu {
    let defined: HashMap<&str, &str> = macros
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.split_once(' ').or(Some((line, ""))))
        .collect();
    let named = |table: &[(&'static str, &str)]| -> Vec<&'static str> {
        table.iter().filter(|(_, name)| defined.contains_key(name)).map(|(feature, _)| *feature).collect()
    };
    let features = named(FEATURES);
    let riscv = defined.get("__riscv_xlen").map(|bits| format!("riscv{bits}"));
    let arch =
        named(ARCHS).first().map(|name| (*name).to_owned()).or(riscv).unwrap_or_else(|| "unknown".to_owned());
    let sve_bits = defined.get("__ARM_FEATURE_SVE_BITS").and_then(|bits| bits.parse().ok());
    Cpu { arch, vector_bytes: vector_bytes(&features, sve_bits), features }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers_tell_for_which_machine_they_are() {
        for here in ["cc", "gcc-12", "/usr/bin/clang", "ccache gcc", "zig cc"] {
            assert!(compiles_for_this_machine(&words(here).unwrap()), "{here}");
        }
        let quoted = words("'/opt/my tools/aarch64-linux-gnu-gcc' -O1").unwrap();
        assert!(!compiles_for_this_machine(&quoted));
        for other in
            ["aarch64-linux-gnu-gcc", "/opt/x/riscv64-linux-gnu-gcc-12", "clang --target=aarch64", "gcc -m32"]
        {
            assert!(!compiles_for_this_machine(&words(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(words("  ccache\tgcc -O1 ").unwrap(), ["ccache", "gcc", "-O1"]);
        assert_eq!(words("'/a b/my cc' -D'X=\"1 2\"' \"\"").unwrap(), ["/a b/my cc", "-DX=\"1 2\"", ""]);
        assert_eq!(words(" ").unwrap(), [""; 0]);
        let error = words("#gcc").unwrap_err();
        assert!(error.message().ends_with("expected the name of a program in the command `#gcc`"), "{error}");
        let error = of("\"/a b", None, &[]).unwrap_err();
        let expected =
            "cannot run the C compiler: expected a closing quotation mark at the end of the command `\"/a b`";
        assert_eq!((error.kind(), error.message()), ("ValueError", expected));
    }

    #[test]
    fn packages_of_compilers_for_other_machines() {
        for (cc, name) in [
            ("cc", "gcc"),
            ("/opt/my-cc -O2", "gcc"),
            ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
            ("/usr/bin/x86_64-linux-gnu-gcc-12 -m32", "gcc-x86-64-linux-gnu"),
        ] {
            assert!(no_compiler(cc, "").message().contains(&format!("`apt-get install {name}`")), "{cc}");
        }
    }

    #[test]
    fn processors_are_read_from_macros() {
        let arm = read(
            "#define __aarch64__ 1\n#define __ARM_NEON 1\n#define __ARM_FEATURE_SVE_BITS 256\n#define __ARM_FEATURE_SVE 1\n",
        );
        assert_eq!((arm.arch.as_str(), arm.vector_bytes), ("aarch64", 32));
        assert_eq!(arm.features, ["neon", "sve"]);
        let pc = read("#define __x86_64__ 1\n#define __AVX__ 1\n#define __AVX2__ 1\n#define __FMA__ 1\n");
        assert_eq!((pc.arch.as_str(), pc.vector_bytes), ("x86_64", 32));
        assert_eq!(pc.features, ["avx", "fma", "avx2"]);
        assert_eq!(read("#define __riscv_xlen 64\n").arch, "riscv64");
        assert_eq!(read("").vector_bytes, 16);
    }

    #[test]
    fn this_machine_is_what_the_compiler_says_of_it() {
        if std::process::Command::new("cc").arg("--version").output().is_err() {
            anyfn_skip::skip!("no C compiler");
        }
        let asked = ask("cc", "native", &[]).unwrap();
        let here = this();
        assert_eq!((asked.arch, asked.vector_bytes), (here.arch, here.vector_bytes));
        // A compiler that is older than the processor may know only some of its features.
        assert!(asked.features.iter().all(|feature| here.features.contains(feature)));
    }
}
