//! Targets: for which machine code is generated, and what compiles it.

mod cpu;

use anyfn::{
    AnyView, Array, FromArg, IntoAny, Map, Mismatch, Object, Ref, Result, Schema, String, bail, methods,
};

use crate::func::IRModule;

/// The machine that code is generated for, and the C compiler that compiles it.
///
/// Without options it is this machine. Passes and code generators find it by [`Target::of`].
#[derive(Object)]
#[object(key = "tir.Target", structural = "tree", final)]
pub struct Target {
    /// Kind of code: `c`.
    pub kind: String,
    /// Kind of processor: `x86_64`, `aarch64`, ..
    pub arch: String,
    /// Which processor, as the C compiler calls it; `native` is this one, empty what the compiler chooses by itself.
    pub mcpu: String,
    /// What the processor has, of what code generators ask for: `avx2`, `fma`, `neon`, ..
    pub features: Array<String>,
    /// Size of its vector registers; 0 for code that asks nothing of the compiler but C11.
    pub vector_bytes: i64,
    /// On how many cores the code will run, as far as is known.
    pub num_cores: i64,
    /// The command that compiles C, with its first arguments; quotes keep a name with blanks together.
    pub cc: String,
    /// Further arguments of it.
    pub options: Array<String>,
}

/// What is said of a target; what is not said follows from the C compiler and this machine.
#[derive(Clone, Default, Debug)]
pub struct TargetOptions {
    /// [`Target::mcpu`]: `native` unless the compiler is one for other machines.
    pub mcpu: Option<std::string::String>,
    /// [`Target::cc`]: that of the environment variable `CC`, or `cc`.
    pub cc: Option<std::string::String>,
    /// [`Target::options`].
    pub options: Vec<std::string::String>,
    /// [`Target::num_cores`].
    pub num_cores: Option<i64>,
    /// [`Target::vector_bytes`]: 0, 16, 32 or 64.
    pub vector_bytes: Option<i64>,
}

impl Target {
    /// Kinds that there are.
    pub const KINDS: &[&str] = &["c"];

    /// Most cores of a target.
    const MOST_CORES: i64 = 1 << 16;

    /// This machine, and its C compiler.
    ///
    /// # Errors
    /// As [`Target::make`], if the environment variable `CC` names a compiler for other machines.
    pub fn host() -> Result<Ref<Target>> {
        Target::make("c", TargetOptions::default()).map(Ref::new)
    }

    /// A target of a kind.
    ///
    /// The C compiler is asked what it compiles for, once in a process, unless that is plainly this machine.
    ///
    /// # Errors
    /// `ValueError` for an unknown kind or processor, with those that are known; `RuntimeError` if the compiler is needed
    /// and cannot be started.
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

    /// The target of a module, which is its attribute `target`; this machine if it has none.
    ///
    /// # Errors
    /// As [`Target::host`]; `TypeError` if the attribute is something else.
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

    /// The module with a target as its attribute.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn put(target: &Ref<Target>, module: &IRModule) -> Result<Ref<IRModule>> {
        let mut attrs = module.attrs.clone();
        attrs.insert("target".into(), target.clone().into_any()?)?;
        Ok(Ref::new(IRModule { functions: module.functions.clone(), attrs }))
    }

    /// Checks the fields of a target that may have been loaded.
    fn check(&self) -> Result<()> {
        check_kind(&self.kind)?;
        check_cores(self.num_cores)?;
        // SVE vectors may have any multiple of 16 bytes up to 256.
        if !(0..=256).contains(&self.vector_bytes) || self.vector_bytes % 16 != 0 {
            bail!("ValueError", "the vectors of a target cannot have {} bytes", self.vector_bytes);
        }
        Ok(())
    }

    /// Whether the processor has a feature, such as `avx2`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|known| &*known == feature)
    }

    /// Arguments of the C compiler that choose the processor.
    #[must_use]
    pub fn cpu_options(&self) -> Vec<std::string::String> {
        cpu::options(&self.arch, &self.mcpu)
    }

    /// What tells this machine's processor from others if code is compiled for just that one; else empty.
    #[must_use]
    pub fn processor(&self) -> &'static str {
        if &*self.mcpu == "native" { cpu::this_one() } else { "" }
    }

    /// Whether code for it runs on this kind of processor.
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
    /// A machine that code is generated for, and the command `cc` that compiles it. What is left out follows from this
    /// machine, or from what the compiler compiles for.
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

    /// Whether the processor has a feature, such as `avx2`.
    fn supports(&self, feature: &str) -> bool {
        self.has(feature)
    }
}

/// The error that there is no such C compiler, with what to do.
#[must_use]
pub fn no_compiler(cc: &str, reason: &str) -> anyfn::Error {
    cpu::no_compiler(cc, reason)
}

/// The words of a command such as [`Target::cc`]: blanks in quotes are part of a word, and the path of a file is one word.
#[must_use]
pub fn words(command: &str) -> Vec<std::string::String> {
    cpu::words(command)
}

/// A target, or what stands for one: its kind, or a map of its kind and its options by name. The error is why there is no such
/// target, or what has interrupted finding out.
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
