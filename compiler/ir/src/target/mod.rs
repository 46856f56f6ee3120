//! Targets: the machine that code is generated for, and the C compiler.

mod cpu;

use anyfn::{
    AnyView, Array, FromArg, IntoAny, Map, Mismatch, Object, Ref, Result, Schema, String, bail, methods,
};

use crate::func::IRModule;

/// Target: the machine that code is generated for, and the C compiler that compiles the code.
///
/// The default is this machine. Passes and code generators obtain the target of a module by [`Target::of`].
#[derive(Object)]
#[object(key = "tir.Target", structural = "tree", final)]
pub struct Target {
    /// Target kind, which is `c`.
    pub kind: String,
    /// Architecture of the processor, such as `x86_64` or `aarch64`.
    pub arch: String,
    /// Name of the processor, as the C compiler expects it. `native` is the processor of this machine. If it is empty,
    /// the compiler chooses.
    pub mcpu: String,
    /// Features of the processor that code generators use, such as `avx2`, `fma` and `neon`.
    pub features: Array<String>,
    /// Size of the vector registers in bytes; 0 for code that requires nothing but C11 of the compiler.
    pub vector_bytes: i64,
    /// Expected number of cores that run the code.
    pub num_cores: i64,
    /// Command of the C compiler, with its first arguments. A name that contains blanks is quoted.
    pub cc: String,
    /// Further arguments of the C compiler.
    pub options: Array<String>,
}

/// Options of a target. Omitted options are derived from the C compiler and this machine.
#[derive(Clone, Default, Debug)]
pub struct TargetOptions {
    /// Value of [`Target::mcpu`]. The default is `native`, unless the compiler is a cross compiler.
    pub mcpu: Option<std::string::String>,
    /// Value of [`Target::cc`]. The default is the environment variable `CC`, or else `cc`.
    pub cc: Option<std::string::String>,
    /// Value of [`Target::options`].
    pub options: Vec<std::string::String>,
    /// Value of [`Target::num_cores`]. The default is the number of cores of this machine.
    pub num_cores: Option<i64>,
    /// Value of [`Target::vector_bytes`]: 0, 16, 32 or 64.
    pub vector_bytes: Option<i64>,
}

impl Target {
    /// Supported target kinds.
    pub const KINDS: &[&str] = &["c"];

    /// Maximum number of cores of a target.
    const MOST_CORES: i64 = 1 << 16;

    /// Returns the target for this machine and its C compiler.
    ///
    /// # Errors
    /// Returns the error of [`Target::make`] if the environment variable `CC` names a cross compiler.
    pub fn host() -> Result<Ref<Target>> {
        Target::make("c", TargetOptions::default()).map(Ref::new)
    }

    /// Creates a target of the given kind.
    ///
    /// Runs the C compiler to determine the processor that it targets, and caches the result. The compiler is not run
    /// if its name shows that it compiles for this machine, `mcpu` is `native` and there are no further options.
    ///
    /// # Errors
    /// Returns `ValueError` for an invalid option, and for an unknown kind or processor. Returns `RuntimeError` if the
    /// compiler must be run and cannot be started.
    pub fn make(kind: &str, options: TargetOptions) -> Result<Target> {
        check_kind(kind)?;
        if options.cc.as_ref().is_some_and(|cc| cc.trim().is_empty()) {
            bail!("ValueError", "option `cc` of a target is the command of a C compiler, not an empty text");
        }
        let cc = options.cc.or_else(|| std::env::var("CC").ok()).filter(|cc| !cc.trim().is_empty());
        let cc = cc.unwrap_or_else(|| "cc".to_owned());
        let (mcpu, cpu) = cpu::of(&cc, options.mcpu, &options.options)?;
        let cores = || std::thread::available_parallelism().map_or(1, |n| i64::try_from(n.get()).unwrap_or(1));
        let num_cores = options.num_cores.unwrap_or_else(cores);
        check_cores(num_cores)?;
        let vector_bytes = options.vector_bytes.unwrap_or(cpu.vector_bytes);
        if options.vector_bytes.is_some() && !matches!(vector_bytes, 0 | 16 | 32 | 64) {
            bail!("ValueError", "vectors have 16, 32 or 64 bytes, or 0 for none, not {vector_bytes}");
        }
        Ok(Target {
            kind: kind.into(),
            arch: cpu.arch.as_str().into(),
            mcpu: mcpu.as_str().into(),
            features: cpu.features.iter().map(|name| String::from(*name)).collect(),
            vector_bytes,
            num_cores,
            cc: cc.as_str().into(),
            options: options.options.iter().map(|option| String::from(option.as_str())).collect(),
        })
    }

    /// Returns the target of a module: its attribute `target`, or the target of this machine if there is no such
    /// attribute.
    ///
    /// # Errors
    /// Returns the error of [`Target::host`], `TypeError` if the attribute is not a target, and `ValueError` if a field
    /// of the target is out of range.
    pub fn of(module: &IRModule) -> Result<Ref<Target>> {
        match module.attrs.get_any("target")? {
            Some(target) => {
                let target = target.get::<Ref<Target>>()?;
                target.check()?;
                Ok(target)
            }
            None => Target::host(),
        }
    }

    /// Returns a copy of a module whose attribute `target` is the given target.
    ///
    /// # Errors
    /// Returns `MemoryError` when memory runs out.
    pub fn put(target: &Ref<Target>, module: &IRModule) -> Result<Ref<IRModule>> {
        let mut attrs = module.attrs.clone();
        attrs.insert("target".into(), target.clone().into_any()?)?;
        Ok(Ref::new(IRModule { functions: module.functions.clone(), attrs }))
    }

    /// Checks the fields of a target, which may have been deserialised.
    fn check(&self) -> Result<()> {
        check_kind(&self.kind)?;
        check_cores(self.num_cores)?;
        // SVE vectors may have any multiple of 16 bytes up to 256.
        if !(0..=256).contains(&self.vector_bytes) || self.vector_bytes % 16 != 0 {
            bail!("ValueError", "the vectors of a target cannot have {} bytes", self.vector_bytes);
        }
        Ok(())
    }

    /// Returns true if the processor has a feature, such as `avx2`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|known| &*known == feature)
    }

    /// Returns the compiler arguments that choose the processor.
    #[must_use]
    pub fn cpu_options(&self) -> Vec<std::string::String> {
        cpu::options(&self.arch, &self.mcpu)
    }

    /// Returns a string that identifies the processor of this machine if `mcpu` is `native`. Otherwise, returns an
    /// empty string.
    #[must_use]
    pub fn processor(&self) -> &'static str {
        if &*self.mcpu == "native" { cpu::this_one() } else { "" }
    }

    /// Returns true if the architecture of the target is that of this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        &*self.arch == std::env::consts::ARCH
    }
}

fn check_kind(kind: &str) -> Result<()> {
    if !Target::KINDS.contains(&kind) {
        let known = Target::KINDS.join("`, `");
        bail!("ValueError", "there is no target kind `{kind}`; known is `{known}`");
    }
    Ok(())
}

fn check_cores(num_cores: i64) -> Result<()> {
    if num_cores < 1 {
        bail!("ValueError", "a target has at least one core, not {num_cores}");
    }
    if num_cores > Target::MOST_CORES {
        bail!("ValueError", "a target has at most {} cores, not {num_cores}", Target::MOST_CORES);
    }
    Ok(())
}

#[methods]
impl Target {
    /// Creates a target: the machine that code is generated for, and the command `cc` that compiles the code. Omitted
    /// arguments are derived from this machine, or from the machine that the compiler targets.
    #[init]
    #[blocking]
    fn new(
        #[default("c")] kind: String,
        #[default(None)] mcpu: Option<String>,
        #[default(None)] cc: Option<String>,
        #[default(None)] options: Option<Vec<String>>,
        #[default(None)] num_cores: Option<i64>,
        #[default(None)] vector_bytes: Option<i64>,
    ) -> Result<Target> {
        let text = |text: String| text.to_string();
        let options = options.unwrap_or_default().into_iter().map(text).collect();
        let (mcpu, cc) = (mcpu.map(text), cc.map(text));
        Target::make(&kind, TargetOptions { mcpu, cc, options, num_cores, vector_bytes })
    }

    /// Returns true if the processor has a feature, such as `avx2`.
    fn supports(&self, feature: &str) -> bool {
        self.has(feature)
    }
}

/// Returns the error for a C compiler that cannot be started, with advice for the user.
#[must_use]
pub fn no_compiler(cc: &str, reason: &str) -> anyfn::Error {
    cpu::no_compiler(cc, reason)
}

/// Splits a command such as [`Target::cc`] into words. Blanks in quotes are part of a word, and the path of an existing
/// file is one word.
#[must_use]
pub fn words(command: &str) -> Vec<std::string::String> {
    cpu::words(command)
}

/// Target, or a value that converts to one: its kind, or a map of its kind and its options by name. It holds an error if
/// the target is invalid or if its detection was interrupted.
pub struct AsTarget(pub Result<Ref<Target>>);

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
            return Ok(AsTarget(Target::make(kind, TargetOptions::default()).map(Ref::new)));
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
            other => bail!(
                "ValueError",
                "a target has no option `{other}`; known are `kind`, `mcpu`, `cc`, `options`, `num_cores`, `vector_bytes`"
            ),
        }
    }
    Target::make(&kind, options)
}
