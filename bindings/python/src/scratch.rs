//! Memory on the stack in which a call stores the descriptions of its array arguments.

use std::mem::MaybeUninit;
use std::ptr;

use anyfn::TensorView;
use anyfn::access::ReadOnly;

use crate::error;
use crate::py::Res;

/// Number of 64-bit words on the stack for array views: enough for eight arrays of four dimensions.
const SCRATCH: usize = 112;

/// Memory on the stack for array views. It must be a separate variable of the calling function: if it were a
/// field of a struct with initialised fields, the compiler would clear it in each call.
pub(crate) type Words = [MaybeUninit<u64>; SCRATCH];

/// Uninitialised memory for array views.
pub(crate) const WORDS: Words = [const { MaybeUninit::uninit() }; SCRATCH];

/// Allocator for array views. The views never move after their allocation. Memory on the stack is used first,
/// and then the heap.
pub(crate) struct Scratch<'a> {
    words: &'a mut Words,
    used: usize,
    /// Fields of the allocator that are rarely needed. They are boxed so that most calls have
    /// little to drop.
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    words: Vec<Box<[u64]>>,
    /// Guards that prevent callbacks from writing to read-only memory.
    read_only: Vec<ReadOnly>,
}

impl<'a> Scratch<'a> {
    #[inline(always)]
    pub(crate) fn new(words: &'a mut Words) -> Scratch<'a> {
        Scratch { words, used: 0, rest: None }
    }

    /// Prevents callbacks from writing to the memory of a tensor, for as long as `self` lives.
    #[cold]
    pub(crate) fn protect(&mut self, tensor: &TensorView<'_>) -> Res<()> {
        if let Some(region) = tensor.host_region() {
            let protected = ReadOnly::begin(region).map_err(error::raise)?;
            self.rest.get_or_insert_default().read_only.push(protected);
        }
        Ok(())
    }

    /// Allocates `count` 64-bit words, which stay valid as long as `self`. The caller must write
    /// the words before reading them.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> *mut u64 {
        if count <= SCRATCH - self.used {
            let start = self.used;
            self.used += count;
            return self.words[start..].as_mut_ptr().cast();
        }
        self.take_more(count)
    }

    /// Returns true if the allocator has allocated or protected any memory.
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.used > 0 || self.rest.is_some()
    }

    #[cold]
    fn take_more(&mut self, count: usize) -> *mut u64 {
        let words = &mut self.rest.get_or_insert_default().words;
        words.push(vec![0; count].into_boxed_slice());
        words.last_mut().map_or(ptr::null_mut(), |words| words.as_mut_ptr())
    }
}
