//! Measures what a launch takes beyond the calls of Vulkan that it makes:
//! `cargo test --profile demo -p anyfn-vulkan --lib overhead -- --ignored --nocapture`.

use std::time::Instant;

use anyfn::abi::kDLVulkan;
use anyfn::{DType, Device, Tensor};
use anyfn_kernels::doctor;
use ash::vk;

use crate::memory;
use crate::module::spirv_module;
use crate::system::available;

/// Launches in a round, after which the device is waited for.
const LAUNCHES: usize = 32;
const ROUNDS: usize = 30;

/// Runs `launch` in rounds and returns the shortest time of a launch in nanoseconds.
fn measured(launch: &mut dyn FnMut(usize), finish: &dyn Fn()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..LAUNCHES).for_each(&mut *launch);
        finish();
        best = best.min(start.elapsed().as_nanos() as f64 / LAUNCHES as f64);
    }
    best
}

#[test]
#[ignore = "a measurement"]
fn overhead_of_a_launch() {
    let (device, logical) = available(0).unwrap();
    let place = Device::new(kDLVulkan, 0);
    let x = Tensor::zeros_on(DType::INT32, &[64], place).unwrap();
    let y = Tensor::zeros_on(DType::INT32, &[64], place).unwrap();
    let finish = || logical.finish().unwrap();
    let code = include_bytes!("doctor.spv");
    let f =
        spirv_module(code, vec![doctor::kernel().unwrap()], None).unwrap().get_function(doctor::NAME).unwrap();
    let mut ours = |_| drop(f.call((&x, &y, 64, 1, 64)).unwrap());
    ours(0);

    let api = &logical.api;
    let binding = |number| {
        vk::DescriptorSetLayoutBinding::default()
            .binding(number)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
    };
    let bindings = [binding(0), binding(1)];
    let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: the device is alive.
    let sets = [unsafe { api.create_descriptor_set_layout(&info, None) }.unwrap()];
    let ranges = [vk::PushConstantRange { stage_flags: vk::ShaderStageFlags::COMPUTE, offset: 0, size: 4 }];
    let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&ranges);
    // SAFETY: the layout of the set is alive.
    let layout = unsafe { api.create_pipeline_layout(&info, None) }.unwrap();
    let words: Vec<u32> =
        code.chunks_exact(4).filter_map(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word)).collect();
    // SAFETY: the code is correct.
    let shader =
        unsafe { api.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&words), None) }.unwrap();
    let stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(shader)
        .name(c"anyfn_doctor");
    let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
    // SAFETY: the layout is that of the code.
    let pipeline = unsafe { api.create_compute_pipelines(vk::PipelineCache::null(), &info, None) }.unwrap()[0];
    let count = LAUNCHES as u32;
    let sizes =
        [vk::DescriptorPoolSize { ty: vk::DescriptorType::STORAGE_BUFFER, descriptor_count: 2 * count }];
    let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
    // SAFETY: the device is alive.
    let pool = unsafe { api.create_descriptor_pool(&info, None) }.unwrap();
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(device.family);
    // SAFETY: the device has queues of the family.
    let commands = unsafe { api.create_command_pool(&info, None) }.unwrap();
    let info = vk::CommandBufferAllocateInfo::default().command_pool(commands).command_buffer_count(count);
    // SAFETY: the pool is alive.
    let buffers = unsafe { api.allocate_command_buffers(&info) }.unwrap();
    let infos = [&x, &y].map(|tensor| vk::DescriptorBufferInfo {
        buffer: memory::at(tensor.view().as_dl().data).unwrap().buffer,
        offset: 0,
        range: 256,
    });
    let mut raw = |number: usize| {
        let commands = buffers[number];
        if number == 0 {
            // SAFETY: the work of the last round has finished.
            unsafe { api.reset_descriptor_pool(pool, vk::DescriptorPoolResetFlags::empty()) }.unwrap();
        }
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&sets);
        // SAFETY: the pool has room for a set of each launch.
        let set = unsafe { api.allocate_descriptor_sets(&info) }.unwrap()[0];
        let write = vk::WriteDescriptorSet::default()
            .dst_set(set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&infos);
        // SAFETY: the set is new, and the buffers are alive.
        unsafe { api.update_descriptor_sets(&[write], &[]) };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the work of the last round has finished.
        unsafe { api.begin_command_buffer(commands, &info) }.unwrap();
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the command buffer is being recorded.
        unsafe { api.cmd_bind_pipeline(commands, point, pipeline) };
        // SAFETY: the set has the layout of the pipeline.
        unsafe { api.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]) };
        let stage = vk::ShaderStageFlags::COMPUTE;
        // SAFETY: the layout has push constants of this size.
        unsafe { api.cmd_push_constants(commands, layout, stage, 0, &64_i32.to_ne_bytes()) };
        // SAFETY: the command buffer is being recorded.
        unsafe { api.cmd_dispatch(commands, 1, 1, 1) };
        let barrier =
            [vk::MemoryBarrier::default().src_access_mask(vk::AccessFlags::SHADER_WRITE).dst_access_mask(
                vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::HOST_READ,
            )];
        let at = vk::PipelineStageFlags::COMPUTE_SHADER;
        let flags = vk::DependencyFlags::empty();
        // SAFETY: the command buffer is being recorded.
        unsafe {
            api.cmd_pipeline_barrier(commands, at, at | vk::PipelineStageFlags::HOST, flags, &barrier, &[], &[])
        };
        // SAFETY: the command buffer is being recorded.
        unsafe { api.end_command_buffer(commands) }.unwrap();
        let all = [commands];
        let submit = [vk::SubmitInfo::default().command_buffers(&all)];
        let queue = logical.queue(0);
        // SAFETY: the queue is locked, and the command buffer was recorded for its family.
        unsafe { api.queue_submit(*queue, &submit, vk::Fence::null()) }.unwrap();
    };
    let wait = || {
        // SAFETY: no other thread uses a queue.
        unsafe { api.device_wait_idle() }.unwrap();
    };
    // Alternately, so that both see the same load of the machine.
    let mut best = [f64::INFINITY; 2];
    for _ in 0..5 {
        best[0] = best[0].min(measured(&mut raw, &wait));
        best[1] = best[1].min(measured(&mut ours, &finish));
    }
    let [raw, ours] = best;
    println!(
        "launch and its share of waiting: {raw:.0} ns by Vulkan alone, {ours:.0} ns by a function of a module, {:.2} x",
        ours / raw
    );
}
