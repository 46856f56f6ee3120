//! Names of variables and buffers in C.

use std::collections::{HashMap, HashSet};

use anyfn::{Object, Ref};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

/// Words that are no names in C or that the prelude uses.
const RESERVED: &str = "auto break case char const continue default do double else enum extern float for goto if inline int \
                        long register restrict return short signed sizeof static struct switch typedef union unsigned void \
                        volatile while bool true false main args num_args result self asm typeof linux unix \
                        int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t size_t \
                        task group data shared end at stdin stdout stderr errno math_errhandling signgam M_E L_tmpnam L_ctermid \
                        exp exp2 log log2 log10 log1p expm1 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh \
                        atanh floor ceil trunc round erf fabs pow atan2 fmod hypot copysign expf exp2f logf log2f log10f \
                        log1pf expm1f sqrtf sinf cosf tanf asinf acosf atanf sinhf coshf tanhf asinhf acoshf atanhf \
                        floorf ceilf truncf roundf erff fabsf powf atan2f fmodf hypotf copysignf";

/// A name for each variable and buffer: its own if it is free.
pub(crate) struct Names {
    given: HashMap<usize, String>,
    taken: HashSet<String>,
}

impl Names {
    pub(crate) fn new() -> Names {
        Names { given: HashMap::new(), taken: RESERVED.split_whitespace().map(str::to_owned).collect() }
    }

    pub(crate) fn var(&mut self, var: &Ref<Var>) -> String {
        self.of(var, &var.name)
    }

    pub(crate) fn buffer(&mut self, buffer: &Ref<Buffer>) -> String {
        self.of(&buffer.data, &buffer.name)
    }

    fn of<T: Object>(&mut self, object: &Ref<T>, own: &str) -> String {
        let key = object.as_object().as_handle().addr();
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        let name = self.fresh(own);
        self.given.insert(key, name.clone());
        name
    }

    /// A name that nothing has, like one that is wished.
    pub(crate) fn fresh(&mut self, own: &str) -> String {
        let mut own: String =
            own.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        // Names that begin with two underscores, or with one and a capital letter, belong to the compiler; headers define many
        // without small letters.
        if own.is_empty()
            || own.starts_with(|c: char| c.is_ascii_digit() || c == '_')
            || own.starts_with("anyfn_")
            || (own.matches(|c: char| c.is_ascii_uppercase()).count() > 2
                && !own.contains(|c: char| c.is_ascii_lowercase()))
        {
            own.insert(0, 'v');
        }
        let mut name = own.clone();
        let mut number = 0;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{own}_{number}");
        }
        name
    }
}
