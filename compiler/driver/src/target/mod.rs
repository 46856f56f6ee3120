//! Construction of targets. Omitted options are detected on this machine or reported by the C compiler.

mod cpu;

use anyfn::{AnyView, Array, FromArg, Map, Mismatch, Ref, Result, Schema, String, bail, methods};
use anyfn_ir::func::IRModule;
use anyfn_ir::target::Target;

pub(crate) use cpu::{no_compiler, options as cpu_options, words};

/// Options of a target. Omitted options are derived from the C compiler and this machine.
#[derive(Clone, Default, Debug)]
pub struct TargetOptions {
    /// Name of the processor: see [`Target::mcpu`]. The default is `native` if the compiler compiles for this
    /// machine and accepts that name. Otherwise, the default is the processor that the compiler selects.
    pub mcpu: Option<std::string::String>,
    /// Command of the C compiler: see [`Target::cc`]. The default is the environment variable `CC`, or else
    /// `cc`; for WebAssembly it is Clang.
    pub cc: Option<std::string::String>,
    /// Further arguments of the C compiler: see [`Target::options`].
    pub options: Vec<std::string::String>,
    /// Number of cores: see [`Target::num_cores`]. The default is the number of cores of this machine.
    pub num_cores: Option<i64>,
    /// Size of the vector registers in bytes: 16, 32 or 64, or 0 for no vectors. See
    /// [`Target::vector_bytes`]. The default depends on the processor.
    pub vector_bytes: Option<i64>,
    /// Maximum number of threads of a block on a device: see [`Target::max_threads`]. The default depends on the device
    /// kind.
    pub max_threads: Option<i64>,
    /// Size in bytes of the memory that the threads of a block share on a device: see [`Target::local_memory`]. The default
    /// depends on the device kind.
    pub local_memory: Option<i64>,
    /// Architecture of the device, such as `sm_80`: see [`Target::device_arch`]. The default is no certain one.
    pub device_arch: Option<std::string::String>,
}

/// Command of the compiler for WebAssembly, unless another one is given. Only for this system does Clang generate code that may be
/// placed anywhere.
const WASM_COMPILER: &str = "clang --target=wasm32-unknown-emscripten";

/// Returns the target for this machine and its C compiler.
///
/// # Errors
/// Returns the error of [`make`] if the environment variable `CC` names a cross compiler.
pub fn host() -> Result<Ref<Target>> {
    make("c", TargetOptions::default()).map(Ref::new)
}

/// Creates a target of the given kind, which may be followed by options, as in
/// `c -mcpu=x86-64-v3 -O2`. The options `-mcpu`, `-cc`, `-num-cores`, `-vector-bytes`, `-max-threads`,
/// `-local-memory` and `-arch` set the fields of [`TargetOptions`]. The option `-shader-f16` of the kind `webgpu` permits `float16`.
/// All other options are passed to the C compiler.
///
/// Runs the C compiler to determine the processor that it targets, and caches the result. The compiler is not run if
/// its name shows that it compiles for this machine, `mcpu` is `native` and there are no further options.
///
/// # Errors
/// Returns `ValueError` for an invalid option, for one that is given twice, and for an unknown kind or processor. Returns
/// `RuntimeError` if the compiler must be run and cannot be started.
pub fn make(kind: &str, options: TargetOptions) -> Result<Target> {
    let (kind, options) = with_options_of(kind, options)?;
    let kind = kind.as_str();
    Target::check_kind(kind)?;
    if Target::FOR_TESTS.contains(&kind) {
        return without_compiler(kind, &options);
    }
    if options.cc.as_ref().is_some_and(|cc| cc.trim().is_empty()) {
        bail!(
            "ValueError",
            "option `cc` of a target: expected the command of a C compiler, got an empty string"
        );
    }
    let is_wasm = matches!(kind, "wasm" | "webgpu");
    let mut options = options;
    let has_f16 = kind == "webgpu" && {
        let given = options.options.len();
        options.options.retain(|option| option.trim_start_matches('-') != Target::SHADER_F16);
        options.options.len() < given
    };
    let cc =
        options.cc.or_else(|| std::env::var("CC").ok().filter(|_| !is_wasm)).filter(|cc| !cc.trim().is_empty());
    let cc = cc.unwrap_or_else(|| if is_wasm { WASM_COMPILER } else { "cc" }.to_owned());
    let (mcpu, cpu) = cpu::of(&cc, options.mcpu, &options.options)?;
    // A WebAssembly module has one thread.
    let cores = || if is_wasm { 1 } else { available_cores() };
    let num_cores = options.num_cores.unwrap_or_else(cores);
    Target::check_cores(num_cores)?;
    let vector_bytes = options.vector_bytes.unwrap_or(cpu.vector_bytes);
    if options.vector_bytes.is_some() && !matches!(vector_bytes, 0 | 16 | 32 | 64) {
        bail!(
            "ValueError",
            "option `vector_bytes` of a target: expected 16, 32 or 64, or 0 for no vectors, got {vector_bytes}"
        );
    }
    let (max_threads, local_memory) = limits(kind, options.max_threads, options.local_memory)?;
    let device_arch = options.device_arch.unwrap_or_default();
    match Target::DEVICES.iter().find(|device| device.kind == kind) {
        Some(device) => device.check(max_threads, local_memory, &device_arch)?,
        None if !device_arch.is_empty() => {
            bail!("ValueError", "a target of kind `{kind}` has no option `device_arch`")
        }
        None => {}
    }
    Ok(Target {
        kind: kind.into(),
        arch: cpu.arch.as_str().into(),
        mcpu: mcpu.as_str().into(),
        features: cpu
            .features
            .iter()
            .copied()
            .chain(has_f16.then_some(Target::SHADER_F16))
            .map(String::from)
            .collect(),
        vector_bytes,
        num_cores,
        cc: cc.as_str().into(),
        options: options.options.iter().map(|option| String::from(option.as_str())).collect(),
        max_threads,
        local_memory,
        device_arch: device_arch.as_str().into(),
    })
}

/// Returns the number of cores of this machine.
fn available_cores() -> i64 {
    std::thread::available_parallelism().map_or(1, |n| i64::try_from(n.get()).unwrap_or(1))
}

/// Returns the limits of a device: the maximum number of threads of a block and the bytes of memory that they share. Both
/// are 0 for a target that is not a device.
fn limits(kind: &str, max_threads: Option<i64>, local_memory: Option<i64>) -> Result<(i64, i64)> {
    let device = Target::DEVICES.iter().find(|device| device.kind == kind);
    let limit = |name: &str, given: Option<i64>, default: Option<i64>| match (given, default) {
        (Some(_), None) => bail!("ValueError", "a target of kind `{kind}` has no option `{name}`"),
        (Some(given), Some(_)) => Ok(given),
        (None, default) => Ok(default.unwrap_or(0)),
    };
    Ok((
        limit("max_threads", max_threads, device.map(|device| device.max_threads))?,
        limit("local_memory", local_memory, device.map(|device| device.local_memory))?,
    ))
}

/// Parses a target kind that may be followed by options. Returns the kind, and `options` with the parsed options added.
fn with_options_of(text: &str, mut options: TargetOptions) -> Result<(std::string::String, TargetOptions)> {
    if !text.contains(char::is_whitespace) {
        return Ok((text.to_owned(), options));
    }
    let words = match anyfn_command::words(text) {
        Ok(words) => words,
        Err(incomplete) => bail!("ValueError", "cannot parse the target: {incomplete}"),
    };
    let mut words = words.into_iter();
    let kind = words.next().unwrap_or_default();
    let mut arguments = Vec::new();
    for word in words {
        let Some(option) = word.strip_prefix('-') else {
            bail!(
                "ValueError",
                "cannot parse the target `{text}`: expected an option such as `-mcpu=x86-64-v3`, got `{word}`"
            )
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        match (name.trim_start_matches('-'), value) {
            ("mcpu", Some(value)) => once("mcpu", &mut options.mcpu, value.to_owned())?,
            ("cc", Some(value)) => once("cc", &mut options.cc, value.to_owned())?,
            ("num-cores" | "num_cores", Some(value)) => {
                once("num_cores", &mut options.num_cores, number("num_cores", value)?)?;
            }
            ("vector-bytes" | "vector_bytes", Some(value)) => {
                once("vector_bytes", &mut options.vector_bytes, number("vector_bytes", value)?)?;
            }
            ("max-threads" | "max_threads", Some(value)) => {
                once("max_threads", &mut options.max_threads, number("max_threads", value)?)?;
            }
            ("local-memory" | "local_memory", Some(value)) => {
                once("local_memory", &mut options.local_memory, number("local_memory", value)?)?;
            }
            ("arch" | "device-arch" | "device_arch", Some(value)) => {
                once("device_arch", &mut options.device_arch, value.to_owned())?;
            }
            ("mattr", _) => bail!(
                "ValueError",
                "a target has no option `mattr`; select features by arguments of the C compiler, such as `-mavx2`"
            ),
            ("mtriple", _) => bail!(
                "ValueError",
                "a target has no option `mtriple`; select the compiler of the other machine, as in \
                 `-cc=aarch64-linux-gnu-gcc`"
            ),
            (name @ ("keys" | "libs" | "device" | "model" | "host" | "runtime" | "system-lib"), _) => bail!(
                "ValueError",
                "a target has no option `{name}`; its options are `-mcpu`, `-cc`, `-num-cores`, `-vector-bytes` and \
                 arguments of the C compiler"
            ),
            _ => arguments.push(word.clone()),
        }
    }
    arguments.append(&mut options.options);
    options.options = arguments;
    Ok((kind, options))
}

/// Sets an option of a target, or returns an error if the option has already been set.
fn once<T>(name: &str, option: &mut Option<T>, value: T) -> Result<()> {
    if option.replace(value).is_some() {
        bail!("ValueError", "option `{name}` of a target is given twice");
    }
    Ok(())
}

/// Parses an option of a target whose value is a number.
fn number(name: &str, value: &str) -> Result<i64> {
    match value.parse() {
        Ok(number) => Ok(number),
        Err(_) => bail!("ValueError", "option `{name}` of a target: expected an integer, got `{value}`"),
    }
}

/// Creates a target of a kind for which no compiler exists, such as `null`. Returns an error if an option is
/// given.
fn without_compiler(kind: &str, options: &TargetOptions) -> Result<Target> {
    let given = [
        ("mcpu", options.mcpu.is_some()),
        ("cc", options.cc.is_some()),
        ("options", !options.options.is_empty()),
        ("num_cores", options.num_cores.is_some()),
        ("vector_bytes", options.vector_bytes.is_some()),
        ("max_threads", options.max_threads.is_some()),
        ("local_memory", options.local_memory.is_some()),
        ("device_arch", options.device_arch.is_some()),
    ];
    if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
        bail!("ValueError", "a target of kind `{kind}` has no option `{name}`");
    }
    Ok(Target {
        kind: kind.into(),
        arch: kind.into(),
        mcpu: "".into(),
        features: Array::new(),
        vector_bytes: 0,
        num_cores: 1,
        cc: "".into(),
        options: Array::new(),
        max_threads: 0,
        local_memory: 0,
        device_arch: "".into(),
    })
}

/// Returns the target of a module: its attribute `target`, or the target of this machine if there is no such attribute.
///
/// # Errors
/// Returns the errors of [`Target::of`] and [`host`].
pub fn of(module: &IRModule) -> Result<Ref<Target>> {
    Target::of(module)?.map_or_else(host, Ok)
}

/// Returns a string that identifies the processor of this machine if the target's `mcpu` is `native`. Otherwise, returns
/// an empty string.
pub(crate) fn processor(target: &Target) -> &'static str {
    if &*target.mcpu == "native" { cpu::this_one() } else { "" }
}

#[methods(of = Target)]
impl TargetOptions {
    /// Creates a target, which consists of the processor for which code is generated and the
    /// command `cc` that compiles the code. An omitted `cc` is the value of the environment
    /// variable `CC`, or else `cc`. Other omitted properties are detected on this machine, or
    /// reported by the C compiler. The options may follow the kind in one string, such as
    /// `c -mcpu=x86-64-v3 -O2`. For a device such as `opencl`, the processor runs the host code;
    /// `max_threads` and `local_memory` are limits of the device, and `device_arch` is its
    /// architecture, such as `sm_80`, which in a string is the option `-arch`.
    #[init]
    #[blocking]
    #[name = "new"]
    #[expect(clippy::too_many_arguments, reason = "each is an option that callers name")]
    fn construct(
        #[default("c")] kind: String,
        #[default(None)] mcpu: Option<String>,
        #[default(None)] cc: Option<String>,
        #[default(None)] options: Option<Vec<String>>,
        #[default(None)] num_cores: Option<i64>,
        #[default(None)] vector_bytes: Option<i64>,
        #[default(None)] max_threads: Option<i64>,
        #[default(None)] local_memory: Option<i64>,
        #[default(None)] device_arch: Option<String>,
    ) -> Result<Target> {
        let text = |text: String| text.to_string();
        let options = options.unwrap_or_default().into_iter().map(text).collect();
        let (mcpu, cc, device_arch) = (mcpu.map(text), cc.map(text), device_arch.map(text));
        make(
            &kind,
            TargetOptions {
                mcpu,
                cc,
                options,
                num_cores,
                vector_bytes,
                max_threads,
                local_memory,
                device_arch,
            },
        )
    }
}

/// Target as a function argument: a target object, a target kind with or without options, or a map of options. Holds
/// an error if the target is invalid or if its detection was interrupted.
pub(crate) struct AsTarget(pub(crate) Result<Ref<Target>>);

impl FromArg for AsTarget {
    type Arg<'a> = AsTarget;

    fn schema() -> Schema {
        <Ref<Target> as FromArg>::schema()
    }

    fn from_arg(view: &AnyView<'_>) -> Result<AsTarget, Mismatch> {
        if let Ok(target) = Ref::<Target>::from_arg(view) {
            return Ok(AsTarget(Ok(target)));
        }
        if let Ok(kind) = <&str as FromArg>::from_arg(view) {
            return Ok(AsTarget(make(kind, TargetOptions::default()).map(Ref::new)));
        }
        let Ok(map) = Map::<String, anyfn::Any>::from_arg(view) else {
            return Err(Mismatch::of_type::<Self>(view));
        };
        Ok(AsTarget(from_map(&map).map(Ref::new)))
    }
}

fn option<T: for<'a> FromArg<Arg<'a> = T>>(name: &str, value: &anyfn::Any) -> Result<T> {
    let value = value.get::<T>();
    value.map_err(|error| anyfn::error!(error.kind(), "option `{name}` of a target: {}", error.message()))
}

fn from_map(map: &Map<String, anyfn::Any>) -> Result<Target> {
    let mut kind = "c".to_owned();
    let mut options = TargetOptions::default();
    for (name, value) in map.iter() {
        match &*name {
            "kind" => kind = option(&name, &value)?,
            "mcpu" => options.mcpu = option(&name, &value)?,
            "cc" => options.cc = option(&name, &value)?,
            "options" => options.options = option(&name, &value)?,
            "num_cores" => options.num_cores = option(&name, &value)?,
            "vector_bytes" => options.vector_bytes = option(&name, &value)?,
            "max_threads" => options.max_threads = option(&name, &value)?,
            "local_memory" => options.local_memory = option(&name, &value)?,
            "device_arch" => options.device_arch = option(&name, &value)?,
            other => bail!(
                "ValueError",
                "a target has no option `{other}`; known options are `kind`, `mcpu`, `cc`, `options`, \
                 `num_cores`, `vector_bytes`, `max_threads`, `local_memory`, `device_arch`"
            ),
        }
    }
    make(&kind, options)
}
