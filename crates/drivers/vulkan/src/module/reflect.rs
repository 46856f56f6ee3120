//! Properties of kernels that their code shows: buffers and numbers, the size of work groups, the features of a device that they need.

use std::collections::{HashMap, HashSet};

use anyfn::abi::{kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};
use anyfn_kernels::{Kernel, POINTER};

use super::spirv::{self, Instruction};

/// A kernel of a binary.
#[derive(Debug)]
pub(super) struct Entry {
    /// Number of work items of a group in each dimension.
    pub(super) group: [usize; 3],
    /// Data types of the elements of the buffers of the description, where the code declares a type that the runtime has.
    pub(super) elements: Vec<Option<DType>>,
    /// Bytes that each buffer of the description must have at least: up to the end of the declared type, with one element of an array
    /// whose length is that of the tensor.
    pub(super) least: Vec<u64>,
    /// Offsets of the numbers of the description in their block; none if the code reads no number.
    pub(super) offsets: Vec<u32>,
    /// Bytes of the block of numbers.
    pub(super) bytes: u32,
    /// Binding of the block of numbers, if it is a uniform block.
    pub(super) uniform: Option<u32>,
    /// Bytes of the memory that the work items of a group share.
    pub(super) shared: u64,
    /// Numbers of the capabilities that the code declares.
    pub(super) capabilities: Vec<u32>,
}

/// A type of SPIR-V.
#[derive(Clone, Debug)]
enum Type {
    Bool,
    Number(DType),
    Vector(u32, u32),
    Matrix(u32, u32),
    Array(u32),
    Runtime(u32),
    Struct(Vec<u32>),
    Pointer(u32),
}

/// The memory that a value of a type takes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes and alignment in workgroup memory.
    bytes: u64,
    alignment: u64,
    /// Bytes in a buffer, where the code declares the layout.
    declared: u64,
}

/// Maximum number of members of a block of numbers, with those of its structs, and of the structs themselves.
const MEMBERS: usize = 4096;

const UNIFORM: u32 = 2;
const WORKGROUP: u32 = 4;
const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;

/// Declarations of a binary.
#[derive(Default)]
struct Declared {
    types: HashMap<u32, Type>,
    /// Types whose size is known. Each type is declared after those that it contains.
    layouts: HashMap<u32, Layout>,
    /// A type that is declared twice.
    twice: Option<u32>,
    constants: HashMap<u32, u64>,
    composites: HashMap<u32, Vec<u32>>,
    /// Variables with their types and storage classes.
    variables: HashMap<u32, (u32, u32)>,
    bindings: HashMap<u32, u32>,
    sets: HashMap<u32, u32>,
    /// Structs of storage buffers in old code.
    buffer_blocks: HashSet<u32>,
    offsets: HashMap<(u32, u32), u32>,
    /// Bytes from one element of an array to the next.
    strides: HashMap<u32, u32>,
    /// Bytes from one column of a matrix, which is a member of a struct, to the next, or from one row to the next.
    matrix_strides: HashMap<(u32, u32), u32>,
    /// Matrices that are stored in rows.
    in_rows: HashSet<(u32, u32)>,
    /// The constant that is the size of the work groups.
    group: Option<u32>,
    /// Functions with the variables and functions that they use.
    functions: HashMap<u32, Vec<u32>>,
    /// Kernels with their functions, and the variables that each lists.
    entries: Vec<(String, u32, Vec<u32>)>,
    sizes: HashMap<u32, [u32; 3]>,
    size_ids: HashMap<u32, [u32; 3]>,
    capabilities: Vec<u32>,
}

impl Declared {
    fn of(code: &[u32]) -> Result<Declared> {
        let mut all = Declared::default();
        let mut function = None;
        for instruction in spirv::instructions(code)? {
            all.see(instruction, &mut function);
        }
        if let Some(id) = all.twice {
            bail!("ValueError", "the SPIR-V is damaged: it declares the type {id} twice");
        }
        Ok(all)
    }

    fn see(&mut self, instruction: Instruction<'_>, function: &mut Option<u32>) {
        let Instruction { op, operands } = instruction;
        let at = |index| instruction.at(index);
        match op {
            17 => self.capabilities.push(at(0)),
            // The execution model of kernels.
            15 if at(0) == 5 => {
                let (name, interface) = spirv::string(operands.get(2..).unwrap_or_default());
                self.entries.push((name, at(1), interface.to_vec()));
            }
            16 if at(1) == 17 => drop(self.sizes.insert(at(0), [at(2), at(3), at(4)])),
            331 if at(1) == 38 => drop(self.size_ids.insert(at(0), [at(2), at(3), at(4)])),
            71 => match at(1) {
                3 => drop(self.buffer_blocks.insert(at(0))),
                6 => drop(self.strides.insert(at(0), at(2))),
                11 if at(2) == 25 => self.group = Some(at(0)),
                33 => drop(self.bindings.insert(at(0), at(2))),
                34 => drop(self.sets.insert(at(0), at(2))),
                _ => {}
            },
            72 => match at(2) {
                4 => drop(self.in_rows.insert((at(0), at(1)))),
                7 => drop(self.matrix_strides.insert((at(0), at(1)), at(3))),
                35 => drop(self.offsets.insert((at(0), at(1)), at(3))),
                _ => {}
            },
            20 => self.declare(at(0), Type::Bool),
            21 => {
                let code = if at(2) == 1 { kDLInt } else { kDLUInt };
                self.declare(at(0), Type::Number(DType::new(code, at(1) as u8, 1)));
            }
            22 => self.declare(at(0), Type::Number(DType::new(kDLFloat, at(1) as u8, 1))),
            23 => self.declare(at(0), Type::Vector(at(1), at(2))),
            24 => self.declare(at(0), Type::Matrix(at(1), at(2))),
            28 => {
                let layout = self.array(at(0), at(1), self.constants.get(&at(2)).copied());
                self.declare(at(0), Type::Array(at(1)));
                self.lay_out(at(0), layout);
            }
            29 => {
                let layout = self.array(at(0), at(1), Some(1));
                self.declare(at(0), Type::Runtime(at(1)));
                self.lay_out(at(0), layout);
            }
            30 => self.declare(at(0), Type::Struct(operands.get(1..).unwrap_or_default().to_vec())),
            32 => self.declare(at(0), Type::Pointer(at(2))),
            43 | 50 => drop(self.constants.insert(at(1), u64::from(at(2)) | u64::from(at(3)) << 32)),
            44 | 51 => drop(self.composites.insert(at(1), operands.get(2..).unwrap_or_default().to_vec())),
            59 if function.is_none() => drop(self.variables.insert(at(1), (at(0), at(2)))),
            54 => *function = Some(at(1)),
            56 => *function = None,
            _ => {
                let Some(function) = *function else { return };
                let used = match op {
                    // A call: the function and its arguments.
                    57 => operands.get(2..).unwrap_or_default(),
                    // Pointer to a texel, load, access chains, length of an array, copy of a pointer, atomic operations.
                    60 | 61 | 65..=68 | 70 | 83 | 227 | 229..=242 | 6035 => {
                        operands.get(2..3).unwrap_or_default()
                    }
                    // Stores, and the result of a function.
                    62 | 228 | 254 => operands.get(..1).unwrap_or_default(),
                    // Copies of memory.
                    63 | 64 => operands.get(..2).unwrap_or_default(),
                    // A choice between pointers, and their comparison.
                    169 => operands.get(3..).unwrap_or_default(),
                    245 | 401..=403 => operands.get(2..).unwrap_or_default(),
                    _ => return,
                };
                self.functions.entry(function).or_default().extend(used);
            }
        }
    }

    fn declare(&mut self, id: u32, declared: Type) {
        let layout = self.layout(id, &declared);
        self.lay_out(id, layout);
        if self.types.insert(id, declared).is_some() {
            self.twice = Some(id);
        }
    }

    fn lay_out(&mut self, id: u32, layout: Option<Layout>) {
        if let Some(layout) = layout {
            self.layouts.insert(id, layout);
        }
    }

    /// Returns the memory that an array takes; `None` if its length or its elements are not known.
    fn array(&self, id: u32, of: u32, length: Option<u64>) -> Option<Layout> {
        let (of, length) = (self.layouts.get(&of)?, length?);
        let step = of.bytes.checked_next_multiple_of(of.alignment)?;
        let stride = self.strides.get(&id).map_or(step, |stride| u64::from(*stride));
        Some(Layout {
            bytes: step.checked_mul(length)?,
            alignment: of.alignment,
            declared: stride.checked_mul(length)?,
        })
    }

    /// Returns the memory that a type takes; `None` if it is not known, or if that of [`Declared::array`] is to be added.
    fn layout(&self, id: u32, declared: &Type) -> Option<Layout> {
        let of = |bytes: u64, alignment| Layout { bytes, alignment, declared: bytes };
        match declared {
            Type::Bool => Some(of(4, 4)),
            Type::Number(dtype) => {
                let bytes = u64::from(dtype.0.bits.div_ceil(8)).max(1);
                Some(of(bytes, bytes))
            }
            Type::Vector(element, count) => {
                let (bytes, count) = (self.layouts.get(element)?.bytes, u64::from(*count));
                Some(of(bytes.checked_mul(count)?, bytes.checked_mul(count.checked_next_power_of_two()?)?))
            }
            Type::Matrix(column, count) => {
                let column = self.layouts.get(column)?;
                let step = column.bytes.checked_next_multiple_of(column.alignment)?;
                Some(of(step.checked_mul(u64::from(*count))?, column.alignment))
            }
            Type::Struct(members) => self.structure(id, members),
            Type::Array(_) | Type::Runtime(_) | Type::Pointer(_) => None,
        }
    }

    /// Returns the memory that a struct takes.
    fn structure(&self, id: u32, members: &[u32]) -> Option<Layout> {
        let mut all = Layout { bytes: 0, alignment: 1, declared: 0 };
        for (number, member) in (0..).zip(members) {
            let layout = self.layouts.get(member)?;
            let start = all.bytes.checked_next_multiple_of(layout.alignment)?;
            let offset = self.offsets.get(&(id, number)).map_or(start, |offset| u64::from(*offset));
            let declared = match (self.types.get(member)?, self.matrix_strides.get(&(id, number))) {
                (Type::Matrix(column, columns), Some(stride)) => {
                    let Some(Type::Vector(_, rows)) = self.types.get(column) else { return None };
                    let count = if self.in_rows.contains(&(id, number)) { rows } else { columns };
                    u64::from(*stride).checked_mul(u64::from(*count))?
                }
                _ => layout.declared,
            };
            all.bytes = start.checked_add(layout.bytes)?;
            all.alignment = all.alignment.max(layout.alignment);
            all.declared = all.declared.max(offset.checked_add(declared)?);
        }
        all.bytes = all.bytes.checked_next_multiple_of(all.alignment)?;
        Some(all)
    }

    /// Returns the variables that a function and the functions that it calls use, in the order of their numbers. `listed` are those that
    /// the kernel lists: from SPIR-V 1.4 on all, before it inputs and outputs.
    fn used(&self, function: u32, listed: &[u32]) -> Vec<u32> {
        let (mut seen, mut open) = (HashSet::from([function]), vec![function]);
        let mut found = Vec::new();
        for id in listed {
            if self.variables.contains_key(id) && seen.insert(*id) {
                found.push(*id);
            }
        }
        while let Some(next) = open.pop() {
            for id in self.functions.get(&next).into_iter().flatten() {
                if seen.insert(*id) {
                    if self.variables.contains_key(id) {
                        found.push(*id);
                    } else {
                        open.push(*id);
                    }
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the type of the content of a variable.
    fn content(&self, variable: u32) -> Option<u32> {
        match self.types.get(&self.variables.get(&variable)?.0)? {
            Type::Pointer(content) => Some(*content),
            _ => None,
        }
    }

    /// Returns the data type of the elements of a buffer; `None` if they are not numbers, vectors or matrices.
    fn element(&self, id: u32, depth: usize) -> Option<DType> {
        if depth > 8 {
            return None;
        }
        match self.types.get(&id)? {
            Type::Number(dtype) => Some(*dtype),
            Type::Vector(of, _) | Type::Matrix(of, _) | Type::Array(of) | Type::Runtime(of) => {
                self.element(*of, depth + 1)
            }
            Type::Struct(members) => match members[..] {
                [only] => self.element(only, depth + 1),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds the offsets and the types of the members of a block, including those of its structs. `left` is the number of members that may
    /// still be visited; it is 0 if there are more.
    fn members(&self, id: u32, base: u32, depth: usize, left: &mut usize, out: &mut Vec<(u32, Option<DType>)>) {
        match self.types.get(&id) {
            Some(Type::Struct(members)) if depth < 8 => {
                for (number, member) in (0..).zip(members) {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        return;
                    }
                    let offset = self.offsets.get(&(id, number)).copied().unwrap_or(0);
                    self.members(*member, base.saturating_add(offset), depth + 1, left, out);
                }
            }
            Some(Type::Number(dtype)) => out.push((base, Some(*dtype))),
            _ => out.push((base, None)),
        }
    }

    /// Returns the size of the work groups of a kernel; `None` if it is not a constant.
    fn group(&self, function: u32) -> Option<[usize; 3]> {
        let of_ids = |ids: &[u32]| -> Option<[usize; 3]> {
            let [x, y, z] = ids else { return None };
            let size = |id| usize::try_from(*self.constants.get(id)?).ok();
            Some([size(x)?, size(y)?, size(z)?])
        };
        match (self.group, self.size_ids.get(&function), self.sizes.get(&function)) {
            (Some(constant), ..) => of_ids(self.composites.get(&constant)?),
            (None, Some(ids), _) => of_ids(ids),
            (None, None, size) => Some(size.copied().unwrap_or([1; 3]).map(|size| size as usize)),
        }
    }
}

/// The reason why a kernel with `var<immediate>` and `var<uniform>` is refused.
const TWO_BLOCKS: &str = "its code has two blocks of numbers; one is possible";

impl Entry {
    /// Finds a kernel in a binary, and checks it against its description.
    ///
    /// # Errors
    /// Returns `ValueError` if the words are not SPIR-V, if they contain no such kernel, or if its buffers and numbers are others.
    pub(super) fn of(code: &[u32], kernel: &Kernel) -> Result<Entry> {
        let declared = Declared::of(code)?;
        let Some((_, function, listed)) = declared.entries.iter().find(|(name, ..)| *name == kernel.name)
        else {
            let names: Vec<&str> = declared.entries.iter().map(|(name, ..)| &**name).collect();
            bail!("ValueError", "the code has no kernel `{}`, only: {}", kernel.name, names.join(", "));
        };
        let fail = |reason: String| anyfn::error!("ValueError", "kernel `{}`: {reason}", kernel.name);
        let buffers = kernel.args.iter().filter(|arg| **arg == POINTER).count();
        let numbers: Vec<DType> = kernel.args.iter().copied().filter(|arg| *arg != POINTER).collect();
        let Some(group) = declared.group(*function) else {
            return Err(fail("the size of its work groups is not a constant".into()));
        };
        let mut entry = Entry {
            group,
            elements: vec![None; buffers],
            least: vec![0; buffers],
            offsets: Vec::new(),
            bytes: 0,
            uniform: None,
            shared: 0,
            capabilities: declared.capabilities.clone(),
        };
        let mut block = None;
        for variable in declared.used(*function, listed) {
            let class = declared.variables.get(&variable).map_or(0, |(_, class)| *class);
            let Some(content) = declared.content(variable) else { continue };
            let (set, binding) =
                (declared.sets.get(&variable).copied(), declared.bindings.get(&variable).copied());
            let is_buffer =
                class == STORAGE_BUFFER || class == UNIFORM && declared.buffer_blocks.contains(&content);
            match class {
                WORKGROUP => {
                    let Some(layout) = declared.layouts.get(&content) else {
                        return Err(fail("the size of its workgroup memory is not a constant".into()));
                    };
                    let start = entry.shared.checked_next_multiple_of(layout.alignment).unwrap_or(u64::MAX);
                    entry.shared = start.saturating_add(layout.bytes);
                }
                PUSH_CONSTANT if block.is_some() => return Err(fail(TWO_BLOCKS.into())),
                PUSH_CONSTANT => block = Some((content, None)),
                _ if is_buffer => {
                    let number = binding.unwrap_or(0) as usize;
                    if set.unwrap_or(0) != 0 {
                        return Err(fail(format!(
                            "its code uses a buffer of group {}; buffers are in group 0, at the bindings 0, 1, ..",
                            set.unwrap_or(0)
                        )));
                    }
                    if number >= buffers {
                        return Err(fail(format!(
                            "its code uses a buffer at binding {number}, but its description {kernel} has {buffers} buffers, which \
                             have the bindings from 0"
                        )));
                    }
                    let (Some(Type::Struct(_)), Some(layout)) =
                        (declared.types.get(&content), declared.layouts.get(&content))
                    else {
                        return Err(fail(format!("the size of its buffer at binding {number} is not known")));
                    };
                    entry.elements[number] = declared.element(content, 0);
                    entry.least[number] = entry.least[number].max(layout.declared);
                }
                UNIFORM if block.is_some() => return Err(fail(TWO_BLOCKS.into())),
                UNIFORM => {
                    if (set.unwrap_or(0), binding.unwrap_or(0)) != (0, buffers as u32) {
                        return Err(fail(format!(
                            "its code uses a uniform block in group {} at binding {}; numbers are in group 0 at binding {buffers}, \
                             after the buffers",
                            set.unwrap_or(0),
                            binding.unwrap_or(0)
                        )));
                    }
                    block = Some((content, binding));
                }
                // Constants and inputs such as the number of the work item.
                _ if binding.is_none() => {}
                _ => {
                    return Err(fail(
                        "its code uses an image or a sampler, which kernels cannot have; only buffers are supported".into(),
                    ));
                }
            }
        }
        let Some((content, uniform)) = block else { return Ok(entry) };
        let mut members = Vec::new();
        let mut left = MEMBERS;
        declared.members(content, 0, 0, &mut left, &mut members);
        if left == 0 {
            return Err(fail("its struct of numbers has too many members".into()));
        }
        if members.len() != numbers.len() {
            return Err(fail(format!(
                "its code reads {} numbers from their struct, but its description {kernel} has {}",
                members.len(),
                numbers.len()
            )));
        }
        for (number, ((offset, dtype), described)) in members.iter().zip(&numbers).enumerate() {
            let Some(dtype) = dtype else {
                return Err(fail(format!("number {number} of its struct is not a scalar")));
            };
            // Truth values are passed as integers.
            let is_same = dtype == described;
            if !is_same {
                return Err(fail(format!(
                    "number {number} of its struct is {dtype}, but {described} in its description {kernel}"
                )));
            }
            entry.offsets.push(*offset);
            // Drivers take words.
            let end =
                offset.checked_add(u32::from(dtype.0.bits) / 8).and_then(|end| end.checked_next_multiple_of(4));
            let Some(end) = end else {
                return Err(fail(format!(
                    "number {number} of its struct is at the offset {offset}, which is too large"
                )));
            };
            entry.bytes = entry.bytes.max(end);
        }
        entry.uniform = uniform;
        Ok(entry)
    }

    /// Describes a kernel whose source is not known.
    pub(super) fn describe(&self, kernel: &Kernel, code: &[u32]) -> String {
        format!(
            "; SPIR-V {}, {} words: {kernel}, work groups of {:?}\n",
            spirv::version(code),
            code.len(),
            self.group
        )
    }
}
