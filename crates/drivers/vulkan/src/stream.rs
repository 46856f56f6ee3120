//! Streams: what is recorded and submitted to a queue, in order.
//!
//! Each piece of work is a command buffer of its own, which increases the timeline semaphore of the stream when it has finished.
//! It ends with a barrier, so that later work and the host see what it has written.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Error, Result};
use ash::prelude::VkResult;
use ash::vk;

use crate::logical::Logical;
use crate::memory::Buffer;
use crate::system::is_forked;
use crate::work::Timer;

/// Maximum number of command buffers of a stream. Submitting more waits for the oldest.
const SLOTS: usize = 64;

/// A stream of a device.
pub(crate) struct Stream {
    pub(crate) logical: &'static Logical,
    queue: usize,
    semaphore: vk::Semaphore,
    /// Value of the semaphore after the last work that was submitted.
    last: AtomicU64,
    /// A value that the semaphore has reached.
    finished: AtomicU64,
    state: Mutex<State>,
}

struct State {
    pool: vk::CommandPool,
    free: Vec<Slot>,
    /// Submitted command buffers, each with the value of the semaphore after it.
    busy: VecDeque<(u64, Slot)>,
    /// Work of other streams that the next work waits for.
    waits: Vec<Marker>,
}

/// A command buffer, and what it uses.
struct Slot {
    commands: vk::CommandBuffer,
    /// Pool of descriptors for one set, with its number of buffers.
    sets: Option<(vk::DescriptorPool, u32)>,
    uniform: Option<Buffer>,
    /// A buffer for tensors without elements, and its size.
    zeros: Option<(Buffer, usize)>,
    kept: Vec<Arc<dyn Any + Send + Sync>>,
}

/// A point in the work of a stream.
#[derive(Clone)]
pub(crate) struct Marker {
    stream: Arc<Stream>,
    value: u64,
}

/// Work of a stream, for messages and profiles.
#[derive(Clone, Copy)]
pub(crate) enum Task<'a> {
    /// A kernel with its name.
    Kernel(&'a str),
    /// A copy of a number of bytes, and where it takes place.
    Copy(usize, &'static str),
    /// The recording of an event.
    Event,
}

impl Task<'_> {
    /// Returns the name of the work in a profile.
    pub(crate) fn name(&self) -> String {
        match self {
            Task::Kernel(name) => (*name).to_owned(),
            _ => self.text(),
        }
    }

    /// Returns the work as a phrase for messages.
    pub(crate) fn text(&self) -> String {
        match self {
            Task::Kernel(name) => format!("launch the kernel `{name}`"),
            Task::Copy(bytes, at) => format!("copy {bytes} bytes {at} the device"),
            Task::Event => "record an event".to_owned(),
        }
    }
}

/// A command buffer that is being recorded.
pub(crate) struct Recording<'a> {
    pub(crate) api: &'a ash::Device,
    pub(crate) commands: vk::CommandBuffer,
    pub(crate) logical: &'static Logical,
    slot: &'a mut Slot,
}

impl Recording<'_> {
    /// Keeps a value until the work has finished.
    pub(crate) fn keep(&mut self, value: Arc<dyn Any + Send + Sync>) {
        self.slot.kept.push(value);
    }

    /// Returns a set of descriptors with the given layout, which has `buffers` storage buffers and at most one uniform buffer.
    pub(crate) fn set(&mut self, layout: vk::DescriptorSetLayout, buffers: u32) -> VkResult<vk::DescriptorSet> {
        let pool = match self.slot.sets {
            Some((pool, most)) if most >= buffers => {
                // SAFETY: the sets of the pool were used by work that has finished.
                unsafe { self.api.reset_descriptor_pool(pool, vk::DescriptorPoolResetFlags::empty()) }?;
                pool
            }
            old => {
                let most = buffers.max(8);
                let size = |ty, descriptor_count| vk::DescriptorPoolSize { ty, descriptor_count };
                let sizes = [
                    size(vk::DescriptorType::STORAGE_BUFFER, most),
                    size(vk::DescriptorType::UNIFORM_BUFFER, 1),
                ];
                let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
                // SAFETY: the device is alive.
                let pool = unsafe { self.api.create_descriptor_pool(&info, None) }?;
                self.slot.sets = Some((pool, most));
                if let Some((old, _)) = old {
                    // SAFETY: the sets of the pool were used by work that has finished.
                    unsafe { self.api.destroy_descriptor_pool(old, None) };
                }
                pool
            }
        };
        let layouts = [layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool is empty and has room for a set of this layout.
        let sets = unsafe { self.api.allocate_descriptor_sets(&info) }?;
        Ok(sets[0])
    }

    /// Returns a buffer with the given bytes, at most 1024, for a uniform block of the kernel.
    pub(crate) fn uniform(&mut self, bytes: &[u8]) -> VkResult<vk::Buffer> {
        if self.slot.uniform.is_none() {
            let made = Buffer::for_host(self.logical, UNIFORM);
            self.slot.uniform = Some(made.map_err(|_| vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?);
        }
        let Some(buffer) = &self.slot.uniform else { return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY) };
        let to = buffer.visible();
        if to.is_null() || bytes.len() > UNIFORM {
            return Err(vk::Result::ERROR_MEMORY_MAP_FAILED);
        }
        // SAFETY: the buffer has this many bytes, which the host may write because the work that used them has finished.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(buffer.handle)
    }

    /// Returns a buffer of `bytes` zeros, which only this work uses.
    pub(crate) fn zeros(&mut self, bytes: usize) -> VkResult<vk::Buffer> {
        if self.slot.zeros.as_ref().is_none_or(|(_, size)| *size < bytes) {
            let made = Buffer::for_host(self.logical, bytes);
            self.slot.zeros = Some((made.map_err(|_| vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?, bytes));
        }
        let Some((buffer, _)) = &self.slot.zeros else { return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY) };
        let to = buffer.visible();
        if to.is_null() {
            return Err(vk::Result::ERROR_MEMORY_MAP_FAILED);
        }
        // SAFETY: the buffer has this many bytes, which the host may write because the work that used them has finished.
        unsafe { to.write_bytes(0, bytes) };
        Ok(buffer.handle)
    }
}

/// Bytes of the numbers that a launch can pass in a uniform block.
pub(crate) const UNIFORM: usize = 1024;

impl Stream {
    /// Creates a stream whose work runs in the given queue.
    pub(crate) fn new(logical: &'static Logical, queue: usize) -> Result<Stream> {
        let (api, error) = (&logical.api, |code| logical.device.error(code, "create a stream"));
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores.
        let semaphore = unsafe { api.create_semaphore(&info, None) }.map_err(error)?;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(logical.device.family);
        // SAFETY: the device was created with queues of this family.
        let pool = unsafe { api.create_command_pool(&info, None) }.map_err(error)?;
        let state = State { pool, free: Vec::new(), busy: VecDeque::new(), waits: Vec::new() };
        let (last, finished) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Stream { logical, queue, semaphore, last, finished, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn error(&self, code: vk::Result, what: &str) -> Error {
        self.logical.device.error(code, what)
    }

    /// Records work and submits it.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub(crate) fn submit(
        self: &Arc<Stream>,
        task: Task<'_>,
        record: impl FnOnce(&mut Recording<'_>) -> VkResult<()>,
    ) -> Result<Marker> {
        let timer = Timer::of(self, task)?;
        let mut state = self.lock();
        let mut slot = match self.slot(&mut state) {
            Ok(slot) => slot,
            Err(code) => return Err(self.error(code, &task.text())),
        };
        let value = self.last.load(Ordering::Relaxed) + 1;
        for marker in &state.waits {
            slot.kept.push(marker.stream.clone());
        }
        let result = self
            .record(&mut slot, timer.as_ref(), record)
            .and_then(|()| self.enqueue(&mut state, slot.commands, value));
        if let Err(code) = result {
            slot.kept.clear();
            // A lost device uses no command buffer again.
            if code != vk::Result::ERROR_DEVICE_LOST {
                // SAFETY: the work was not submitted, and the pool of the command buffer is locked.
                let reset = unsafe {
                    self.logical.api.reset_command_buffer(slot.commands, vk::CommandBufferResetFlags::empty())
                };
                match reset {
                    Ok(()) => state.free.push(slot),
                    // It stays in the pool, but is not used again.
                    Err(_) => self.discard(slot),
                }
            }
            return Err(self.error(code, &task.text()));
        }
        state.busy.push_back((value, slot));
        self.last.store(value, Ordering::Release);
        drop(state);
        let marker = Marker { stream: self.clone(), value };
        if let Some(timer) = timer {
            timer.submitted(marker.clone());
        }
        Ok(marker)
    }

    /// Frees what a command buffer has, which no work uses.
    fn discard(&self, slot: Slot) {
        if let Some((pool, _)) = slot.sets {
            // SAFETY: no work uses the sets of the pool.
            unsafe { self.logical.api.destroy_descriptor_pool(pool, None) };
        }
    }

    /// Returns a command buffer that no work uses.
    fn slot(&self, state: &mut State) -> VkResult<Slot> {
        if let Some(slot) = state.free.pop() {
            return Ok(slot);
        }
        if let Some((value, _)) = state.busy.front() {
            let value = *value;
            if state.busy.len() >= SLOTS {
                self.wait_for(value)?;
            }
            if self.has_finished(value)? {
                self.reclaim(state)?;
                if let Some(slot) = state.free.pop() {
                    return Ok(slot);
                }
            }
        }
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(state.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is alive, and locked.
        let commands = unsafe { self.logical.api.allocate_command_buffers(&info) }?;
        Ok(Slot { commands: commands[0], sets: None, uniform: None, zeros: None, kept: Vec::new() })
    }

    /// Makes the command buffers whose work has finished available.
    fn reclaim(&self, state: &mut State) -> VkResult<()> {
        while let Some((value, _)) = state.busy.front() {
            if !self.has_finished(*value)? {
                break;
            }
            if let Some((_, mut slot)) = state.busy.pop_front() {
                slot.kept.clear();
                state.free.push(slot);
            }
        }
        Ok(())
    }

    fn record(
        &self,
        slot: &mut Slot,
        timer: Option<&Timer>,
        record: impl FnOnce(&mut Recording<'_>) -> VkResult<()>,
    ) -> VkResult<()> {
        let (api, commands) = (&self.logical.api, slot.commands);
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the work that used the command buffer has finished, and its pool is locked.
        unsafe { api.begin_command_buffer(commands, &info) }?;
        let mut recording = Recording { api, commands, logical: self.logical, slot };
        if let Some(timer) = timer {
            timer.begin(&mut recording);
        }
        record(&mut recording)?;
        if let Some(timer) = timer {
            timer.end(&mut recording);
        }
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        let barriers = [vk::MemoryBarrier::default()
            .src_access_mask(Access::SHADER_WRITE | Access::TRANSFER_WRITE)
            .dst_access_mask(
                Access::SHADER_READ
                    | Access::SHADER_WRITE
                    | Access::UNIFORM_READ
                    | Access::TRANSFER_READ
                    | Access::TRANSFER_WRITE
                    | Access::HOST_READ,
            )];
        let from = Stage::COMPUTE_SHADER | Stage::TRANSFER;
        // SAFETY: the command buffer is being recorded.
        unsafe {
            api.cmd_pipeline_barrier(
                commands,
                from,
                from | Stage::HOST,
                vk::DependencyFlags::empty(),
                &barriers,
                &[],
                &[],
            );
        };
        // SAFETY: the command buffer is being recorded.
        unsafe { api.end_command_buffer(commands) }
    }

    fn enqueue(&self, state: &mut State, commands: vk::CommandBuffer, value: u64) -> VkResult<()> {
        let waits: Vec<vk::Semaphore> = state.waits.iter().map(|marker| marker.stream.semaphore).collect();
        let values: Vec<u64> = state.waits.iter().map(|marker| marker.value).collect();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let (commands, signals, signalled) = ([commands], [self.semaphore], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&signalled);
        let submit = [vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline)];
        let queue = self.logical.queue(self.queue);
        // SAFETY: the queue is locked, the command buffer was recorded for its family, and the semaphores are alive: the slot of the
        // command buffer keeps those that are waited for.
        unsafe { self.logical.api.queue_submit(*queue, &submit, vk::Fence::null()) }?;
        state.waits.clear();
        Ok(())
    }

    /// Makes the next work of the stream wait for a point in the work of another.
    pub(crate) fn wait_before_next(&self, marker: Marker) {
        if std::ptr::eq(self, Arc::as_ptr(&marker.stream)) {
            return;
        }
        let mut state = self.lock();
        match state.waits.iter_mut().find(|known| Arc::ptr_eq(&known.stream, &marker.stream)) {
            Some(known) => known.value = known.value.max(marker.value),
            None => state.waits.push(marker),
        }
    }

    /// Returns true if the semaphore has reached a value.
    fn has_finished(&self, value: u64) -> VkResult<bool> {
        if self.finished.load(Ordering::Acquire) >= value {
            return Ok(true);
        }
        if self.logical.device.is_lost() {
            return Err(vk::Result::ERROR_DEVICE_LOST);
        }
        // SAFETY: the semaphore is alive.
        let now = unsafe { self.logical.api.get_semaphore_counter_value(self.semaphore) }?;
        self.finished.fetch_max(now, Ordering::AcqRel);
        Ok(now >= value)
    }

    /// Waits until the semaphore has reached a value.
    fn wait_for(&self, value: u64) -> VkResult<()> {
        if self.finished.load(Ordering::Acquire) >= value {
            return Ok(());
        }
        // The driver may never return from waiting for a lost device.
        if self.logical.device.is_lost() {
            return Err(vk::Result::ERROR_DEVICE_LOST);
        }
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is alive, and work that increases it to this value was submitted.
        unsafe { self.logical.api.wait_semaphores(&info, u64::MAX) }?;
        self.finished.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Waits until the submitted work has finished. `what` is the purpose, for messages.
    pub(crate) fn finish(&self, what: &str) -> Result<()> {
        // Work of other streams for which the next work would wait comes before what the caller does next.
        let waits = self.lock().waits.clone();
        waits.iter().try_for_each(|marker| marker.wait(what))?;
        self.wait_for(self.last.load(Ordering::Acquire)).map_err(|code| self.error(code, what))?;
        let mut state = self.lock();
        let (over, left) = std::mem::take(&mut state.waits).into_iter().partition(Marker::is_complete);
        state.waits = left;
        let reclaimed = self.reclaim(&mut state);
        drop(state);
        // Not under the lock, because this may drop streams.
        let over: Vec<Marker> = over;
        drop(over);
        reclaimed.map_err(|code| self.error(code, what))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What a lost device or a forked process has is not freed.
        if is_forked() || self.wait_for(self.last.load(Ordering::Acquire)).is_err() {
            return;
        }
        let api = &self.logical.api;
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pool = state.pool;
        let busy = std::mem::take(&mut state.busy).into_iter().map(|(_, slot)| slot);
        let free = std::mem::take(&mut state.free);
        busy.chain(free).for_each(|slot| self.discard(slot));
        // SAFETY: all work has finished.
        unsafe { api.destroy_command_pool(pool, None) };
        // SAFETY: nobody has the stream any more, so nobody waits for it.
        unsafe { api.destroy_semaphore(self.semaphore, None) };
    }
}

impl Marker {
    /// Returns the point after all work that was submitted to a stream so far.
    pub(crate) fn last(stream: &Arc<Stream>) -> Marker {
        Marker { stream: stream.clone(), value: stream.last.load(Ordering::Acquire) }
    }

    /// Returns true if the work before the point has finished.
    pub(crate) fn is_complete(&self) -> bool {
        self.stream.has_finished(self.value).unwrap_or(false)
    }

    /// Waits until the work before the point has finished. `what` is the purpose, for messages.
    pub(crate) fn wait(&self, what: &str) -> Result<()> {
        self.stream.wait_for(self.value).map_err(|code| self.stream.error(code, what))
    }

    /// Returns the number that identifies the stream in profiles.
    pub(crate) fn stream_number(&self) -> usize {
        stream_number(&self.stream)
    }
}

/// Returns the number that identifies a stream in profiles.
pub(crate) fn stream_number(stream: &Arc<Stream>) -> usize {
    Arc::as_ptr(stream).addr()
}

#[cfg(test)]
mod tests {
    use anyfn::Device;
    use anyfn::abi::kDLVulkan;
    use anyfn_runtime::device::why_missing;

    use super::{Marker, Task};
    use crate::system::available;

    #[test]
    fn each_stream_is_waited_for_once() {
        if let Some(reason) = why_missing(Device::new(kDLVulkan, 0)) {
            return anyfn_skip::report(&format!("vulkan: {reason}"));
        }
        let logical = available(0).unwrap().1;
        let (first, second) = (logical.create_stream().unwrap(), logical.create_stream().unwrap());
        for _ in 0..100 {
            second.submit(Task::Event, |_| Ok(())).unwrap();
            first.wait_before_next(Marker::last(&second));
        }
        assert_eq!(first.lock().waits.iter().map(|marker| marker.value).collect::<Vec<_>>(), [100]);
        first.finish("test").unwrap();
        assert!(first.lock().waits.is_empty() && Marker::last(&second).is_complete());
        for stream in [&first, &second] {
            logical.forget_stream(std::sync::Arc::as_ptr(stream).cast_mut().cast());
        }
    }
}
