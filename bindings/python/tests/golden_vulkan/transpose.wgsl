
// Device code: vulkan

// Function: transpose_kernel
// Parameters: pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
@group(0) @binding(0) var<storage, read> X: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y: array<f32>;
var<workgroup> X_shared: array<f32, 256>;
@compute @workgroup_size(16, 16, 1)
fn transpose_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  {
    let i0_0: i32 = i32(anyfn_block.y);
    {
      let i1_0: i32 = i32(anyfn_block.x);
      {
        {
          let ax0: i32 = i32(anyfn_thread.y);
          {
            let ax1: i32 = i32(anyfn_thread.x);
            if (((((i1_0 * 16i) + ax0) < 100i) && (((i0_0 * 16i) + ax1) < 37i))) {
              X_shared[ax0 * 16i + ax1] = X[((i1_0 * 16i) + ax0) * 37i + ((i0_0 * 16i) + ax1)];
            }
          }
        }
        workgroupBarrier(); storageBarrier();
        {
          let i0_1: i32 = i32(anyfn_thread.y);
          {
            let i1_1: i32 = i32(anyfn_thread.x);
            if (((((i0_0 * 16i) + i0_1) < 37i) && (((i1_0 * 16i) + i1_1) < 100i))) {
              Y[((i0_0 * 16i) + i0_1) * 100i + ((i1_0 * 16i) + i1_1)] = X_shared[i1_1 * 16i + i0_1];
            }
          }
        }
      }
    }
  }
}
