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
    /// An array with the number of its length.
    Array(u32, u32),
    Runtime(u32),
    Struct(Vec<u32>),
    Pointer(u32),
}

const UNIFORM: u32 = 2;
const WORKGROUP: u32 = 4;
const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;

/// Declarations of a binary.
#[derive(Default)]
struct Declared {
    types: HashMap<u32, Type>,
    constants: HashMap<u32, u32>,
    composites: HashMap<u32, Vec<u32>>,
    /// Variables with their types and storage classes.
    variables: HashMap<u32, (u32, u32)>,
    bindings: HashMap<u32, u32>,
    sets: HashMap<u32, u32>,
    /// Structs of storage buffers in old code.
    buffer_blocks: HashSet<u32>,
    offsets: HashMap<(u32, u32), u32>,
    /// The constant that is the size of the work groups.
    group: Option<u32>,
    /// Functions with the variables and functions that they use.
    functions: HashMap<u32, Vec<u32>>,
    /// Kernels with their functions.
    entries: Vec<(String, u32)>,
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
        Ok(all)
    }

    fn see(&mut self, instruction: Instruction<'_>, function: &mut Option<u32>) {
        let Instruction { op, operands } = instruction;
        let at = |index| instruction.at(index);
        match op {
            17 => self.capabilities.push(at(0)),
            // The execution model of kernels.
            15 if at(0) == 5 => {
                let name = spirv::string(operands.get(2..).unwrap_or_default()).0;
                self.entries.push((name, at(1)));
            }
            16 if at(1) == 17 => drop(self.sizes.insert(at(0), [at(2), at(3), at(4)])),
            331 if at(1) == 38 => drop(self.size_ids.insert(at(0), [at(2), at(3), at(4)])),
            71 => match at(1) {
                3 => drop(self.buffer_blocks.insert(at(0))),
                11 if at(2) == 25 => self.group = Some(at(0)),
                33 => drop(self.bindings.insert(at(0), at(2))),
                34 => drop(self.sets.insert(at(0), at(2))),
                _ => {}
            },
            72 if at(2) == 35 => drop(self.offsets.insert((at(0), at(1)), at(3))),
            20 => self.declare(at(0), Type::Bool),
            21 => {
                let code = if at(2) == 1 { kDLInt } else { kDLUInt };
                self.declare(at(0), Type::Number(DType::new(code, at(1) as u8, 1)));
            }
            22 => self.declare(at(0), Type::Number(DType::new(kDLFloat, at(1) as u8, 1))),
            23 => self.declare(at(0), Type::Vector(at(1), at(2))),
            28 => self.declare(at(0), Type::Array(at(1), at(2))),
            29 => self.declare(at(0), Type::Runtime(at(1))),
            30 => self.declare(at(0), Type::Struct(operands.get(1..).unwrap_or_default().to_vec())),
            32 => self.declare(at(0), Type::Pointer(at(2))),
            43 | 50 => drop(self.constants.insert(at(1), at(2))),
            44 | 51 => drop(self.composites.insert(at(1), operands.get(2..).unwrap_or_default().to_vec())),
            59 if function.is_none() => drop(self.variables.insert(at(1), (at(0), at(2)))),
            54 => *function = Some(at(1)),
            56 => *function = None,
            _ => {
                let Some(function) = *function else { return };
                let used = match op {
                    // A call: the function and its arguments.
                    57 => operands.get(2..).unwrap_or_default(),
                    // Load, access chains, length of an array, copy of a pointer, atomic operations.
                    61 | 65..=68 | 83 | 227 | 229..=242 | 6035 => operands.get(2..3).unwrap_or_default(),
                    // Stores.
                    62 | 228 => operands.get(..1).unwrap_or_default(),
                    63 => operands.get(..2).unwrap_or_default(),
                    _ => return,
                };
                self.functions.entry(function).or_default().extend(used);
            }
        }
    }

    fn declare(&mut self, id: u32, declared: Type) {
        self.types.insert(id, declared);
    }

    /// Returns the variables that a function and the functions that it calls use, in the order of their numbers.
    fn used(&self, function: u32) -> Vec<u32> {
        let (mut seen, mut open) = (HashSet::from([function]), vec![function]);
        let mut found = Vec::new();
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

    /// Returns the data type of the elements of a buffer; `None` if they are not numbers or vectors of numbers.
    fn element(&self, id: u32, depth: usize) -> Option<DType> {
        if depth > 8 {
            return None;
        }
        match self.types.get(&id)? {
            Type::Number(dtype) => Some(*dtype),
            Type::Vector(of, _) | Type::Array(of, _) | Type::Runtime(of) => self.element(*of, depth + 1),
            Type::Struct(members) => match members[..] {
                [only] => self.element(only, depth + 1),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds the offsets and the types of the members of a block, including those of its structs.
    fn members(&self, id: u32, base: u32, depth: usize, out: &mut Vec<(u32, Option<DType>)>) {
        match self.types.get(&id) {
            Some(Type::Struct(members)) if depth < 8 => {
                for (number, member) in (0..).zip(members) {
                    let offset = self.offsets.get(&(id, number)).copied().unwrap_or(0);
                    self.members(*member, base.saturating_add(offset), depth + 1, out);
                }
            }
            Some(Type::Number(dtype)) => out.push((base, Some(*dtype))),
            _ => out.push((base, None)),
        }
    }

    /// Returns the size of a value in bytes.
    fn size(&self, id: u32, depth: usize) -> u64 {
        if depth > 16 {
            return 0;
        }
        match self.types.get(&id) {
            Some(Type::Bool) => 4,
            Some(Type::Number(dtype)) => u64::from(dtype.0.bits.div_ceil(8)),
            Some(Type::Vector(of, count)) => self.size(*of, depth + 1).saturating_mul(u64::from(*count)),
            Some(Type::Array(of, length)) => {
                let length = self.constants.get(length).copied().unwrap_or(0);
                self.size(*of, depth + 1).saturating_mul(u64::from(length))
            }
            Some(Type::Struct(members)) => {
                members.iter().fold(0, |sum: u64, member| sum.saturating_add(self.size(*member, depth + 1)))
            }
            _ => 0,
        }
    }

    /// Returns the size of the work groups of a kernel.
    fn group(&self, function: u32) -> [usize; 3] {
        let of_ids = |ids: &[u32]| -> Option<[u32; 3]> {
            let ids: [u32; 3] = ids.try_into().ok()?;
            Some(ids.map(|id| self.constants.get(&id).copied().unwrap_or(1)))
        };
        let constant = self.group.and_then(|id| of_ids(self.composites.get(&id)?));
        let by_ids = self.size_ids.get(&function).and_then(|ids| of_ids(ids));
        let size = constant.or(by_ids).or_else(|| self.sizes.get(&function).copied());
        size.unwrap_or([1; 3]).map(|size| size as usize)
    }
}

impl Entry {
    /// Finds a kernel in a binary, and checks it against its description.
    ///
    /// # Errors
    /// Returns `ValueError` if the words are not SPIR-V, if they contain no such kernel, or if its buffers and numbers are others.
    pub(super) fn of(code: &[u32], kernel: &Kernel) -> Result<Entry> {
        let declared = Declared::of(code)?;
        let Some((_, function)) = declared.entries.iter().find(|(name, _)| *name == kernel.name) else {
            let names: Vec<&str> = declared.entries.iter().map(|(name, _)| &**name).collect();
            bail!("ValueError", "the code has no kernel `{}`, only: {}", kernel.name, names.join(", "));
        };
        let fail = |reason: String| anyfn::error!("ValueError", "kernel `{}`: {reason}", kernel.name);
        let buffers = kernel.args.iter().filter(|arg| **arg == POINTER).count();
        let numbers: Vec<DType> = kernel.args.iter().copied().filter(|arg| *arg != POINTER).collect();
        let mut entry = Entry {
            group: declared.group(*function),
            elements: vec![None; buffers],
            offsets: Vec::new(),
            bytes: 0,
            uniform: None,
            shared: 0,
            capabilities: declared.capabilities.clone(),
        };
        let mut block = None;
        for variable in declared.used(*function) {
            let class = declared.variables.get(&variable).map_or(0, |(_, class)| *class);
            let Some(content) = declared.content(variable) else { continue };
            let (set, binding) =
                (declared.sets.get(&variable).copied(), declared.bindings.get(&variable).copied());
            let is_buffer =
                class == STORAGE_BUFFER || class == UNIFORM && declared.buffer_blocks.contains(&content);
            match class {
                WORKGROUP => entry.shared = entry.shared.saturating_add(declared.size(content, 0)),
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
                    entry.elements[number] = declared.element(content, 0);
                }
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
        declared.members(content, 0, 0, &mut members);
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
            entry.bytes = entry.bytes.max(offset.saturating_add(u32::from(dtype.0.bits) / 8));
        }
        // Drivers take words.
        entry.bytes = entry.bytes.next_multiple_of(4);
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
