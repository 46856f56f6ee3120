
// Device code: vulkan

// Function: matmul_kernel
// Parameters: pointer, pointer, pointer, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y
@group(0) @binding(0) var<storage, read> A: array<f32>;
@group(0) @binding(1) var<storage, read> B: array<f32>;
@group(0) @binding(2) var<storage, read_write> relu: array<f32>;
var<workgroup> A_shared: array<f32, 640>;
var<workgroup> B_shared: array<f32, 800>;
fn anyfn_max_f32(a: f32, b: f32) -> f32 { return select(select(a, b, b > a), b, anyfn_is_nan(b)); }
fn anyfn_is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
@compute @workgroup_size(16, 16, 1)
fn matmul_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  {
    let ax0_0: i32 = i32(anyfn_block.y);
    {
      let ax1_0: i32 = i32(anyfn_block.x);
      {
        var C_local: array<f32, 16>;
        {
          let i0_0_init: i32 = i32(anyfn_thread.y);
          {
            let i1_0_init: i32 = i32(anyfn_thread.x);
            for (var i0_1_init: i32 = 0i; i0_1_init < 4i; i0_1_init++) {
              for (var i1_1_init: i32 = 0i; i1_1_init < 4i; i1_1_init++) {
                if (((((i0_0_init * 4i) + i0_1_init) < 40i) && (((i1_0_init * 4i) + i1_1_init) < 50i))) {
                  C_local[i0_1_init * 4i + i1_1_init] = 0.0f;
                }
              }
            }
          }
        }
        workgroupBarrier(); storageBarrier();
        for (var k_0: i32 = 0i; k_0 < 2i; k_0++) {
          {
            {
              let ax0_1: i32 = i32(anyfn_thread.y);
              {
                let ax1_1: i32 = i32(anyfn_thread.x);
                for (var ax0_0_1: i32 = 0i; ax0_0_1 < 4i; ax0_0_1++) {
                  if (((((k_0 * 16i) + ax1_1) < 24i) && (((ax0_0_1 * 16i) + ax0_1) < 40i))) {
                    A_shared[((ax0_0_1 * 16i) + ax0_1) * 16i + ax1_1] = A[((ax0_0_1 * 16i) + ax0_1) * 24i + ((k_0 * 16i) + ax1_1)];
                  }
                }
              }
            }
            workgroupBarrier(); storageBarrier();
            {
              {
                let ax0_1_1: i32 = i32(anyfn_thread.y);
                {
                  let ax1_1_1: i32 = i32(anyfn_thread.x);
                  for (var ax1_0_1: i32 = 0i; ax1_0_1 < 4i; ax1_0_1++) {
                    if (((((k_0 * 16i) + ax0_1_1) < 24i) && (((ax1_0_1 * 16i) + ax1_1_1) < 50i))) {
                      B_shared[ax0_1_1 * 50i + ((ax1_0_1 * 16i) + ax1_1_1)] = B[((k_0 * 16i) + ax0_1_1) * 50i + ((ax1_0_1 * 16i) + ax1_1_1)];
                    }
                  }
                }
              }
              workgroupBarrier(); storageBarrier();
              {
                let i0_0: i32 = i32(anyfn_thread.y);
                {
                  let i1_0: i32 = i32(anyfn_thread.x);
                  for (var k_1: i32 = 0i; k_1 < 16i; k_1++) {
                    for (var i0_1: i32 = 0i; i0_1 < 4i; i0_1++) {
                      for (var i1_1: i32 = 0i; i1_1 < 4i; i1_1++) {
                        if ((((((k_0 * 16i) + k_1) < 24i) && (((i0_0 * 4i) + i0_1) < 40i)) && (((i1_0 * 4i) + i1_1) < 50i))) {
                          C_local[i0_1 * 4i + i1_1] = (C_local[i0_1 * 4i + i1_1] + (A_shared[((i0_0 * 4i) + i0_1) * 16i + k_1] * B_shared[k_1 * 50i + ((i1_0 * 4i) + i1_1)]));
                        }
                      }
                    }
                  }
                }
              }
            }
          }
          workgroupBarrier(); storageBarrier();
        }
        workgroupBarrier(); storageBarrier();
        {
          let ax0_1_0: i32 = i32(anyfn_thread.y);
          {
            let ax1_1_0: i32 = i32(anyfn_thread.x);
            for (var ax0_1_1_1: i32 = 0i; ax0_1_1_1 < 4i; ax0_1_1_1++) {
              for (var ax1_1_1_1: i32 = 0i; ax1_1_1_1 < 4i; ax1_1_1_1++) {
                if (((((ax0_1_0 * 4i) + ax0_1_1_1) < 40i) && (((ax1_1_0 * 4i) + ax1_1_1_1) < 50i))) {
                  relu[((ax0_1_0 * 4i) + ax0_1_1_1) * 50i + ((ax1_1_0 * 4i) + ax1_1_1_1)] = anyfn_max_f32(C_local[ax0_1_1_1 * 4i + ax1_1_1_1], 0.0f);
                }
              }
            }
          }
        }
      }
    }
  }
}
