
// Device code: vulkan

// Function: softmax_kernel
// Parameters: pointer, pointer, blockIdx.x, threadIdx.x
@group(0) @binding(0) var<storage, read> X: array<f32>;
@group(0) @binding(1) var<storage, read_write> Y: array<f32>;
var<workgroup> largest: array<f32, 1>;
var<workgroup> largest_rf: array<f32, 48>;
var<workgroup> powers: array<f32, 96>;
var<workgroup> total: array<f32, 1>;
var<workgroup> total_rf: array<f32, 48>;
fn anyfn_max_f32(a: f32, b: f32) -> f32 { return select(select(a, b, b > a), b, anyfn_is_nan(b)); }
fn anyfn_is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn anyfn_bits(x: u32) -> f32 { return bitcast<f32>(x); }
@compute @workgroup_size(64, 1, 1)
fn softmax_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  {
    let i0: i32 = i32(anyfn_block.x);
    {
      {
        {
          let k_1: i32 = i32(anyfn_thread.x);
          if (k_1 < 48) {
            for (var k_0: i32 = 0i; k_0 < 2i; k_0++) {
              if ((k_0 == 0i)) {
                largest_rf[k_1 * 1i + 0i] = anyfn_bits(0xff800000u);
              }
              largest_rf[k_1 * 1i + 0i] = anyfn_max_f32(largest_rf[k_1 * 1i + 0i], X[i0 * 96i + ((k_0 * 48i) + k_1)]);
            }
          }
        }
        workgroupBarrier(); storageBarrier();
        {
          let thread: i32 = i32(anyfn_thread.x);
          if (thread < 1) {
            for (var k_1_1: i32 = 0i; k_1_1 < 48i; k_1_1++) {
              if ((k_1_1 == 0i)) {
                largest[0i] = anyfn_bits(0xff800000u);
              }
              largest[0i] = anyfn_max_f32(largest[0i], largest_rf[k_1_1 * 1i + 0i]);
            }
          }
        }
      }
      workgroupBarrier(); storageBarrier();
      {
        {
          let i1_1: i32 = i32(anyfn_thread.x);
          for (var i1_0: i32 = 0i; i1_0 < 2i; i1_0++) {
            if ((((i1_0 * 64i) + i1_1) < 96i)) {
              powers[0i * 96i + ((i1_0 * 64i) + i1_1)] = exp((X[i0 * 96i + ((i1_0 * 64i) + i1_1)] - largest[0i]));
            }
          }
        }
        workgroupBarrier(); storageBarrier();
        {
          {
            {
              let l_1: i32 = i32(anyfn_thread.x);
              if (l_1 < 48) {
                for (var l_0: i32 = 0i; l_0 < 2i; l_0++) {
                  if ((l_0 == 0i)) {
                    total_rf[l_1 * 1i + 0i] = 0.0f;
                  }
                  total_rf[l_1 * 1i + 0i] = (total_rf[l_1 * 1i + 0i] + powers[0i * 96i + ((l_0 * 48i) + l_1)]);
                }
              }
            }
            workgroupBarrier(); storageBarrier();
            {
              let thread_1: i32 = i32(anyfn_thread.x);
              if (thread_1 < 1) {
                for (var l_1_1: i32 = 0i; l_1_1 < 48i; l_1_1++) {
                  if ((l_1_1 == 0i)) {
                    total[0i] = 0.0f;
                  }
                  total[0i] = (total[0i] + total_rf[l_1_1 * 1i + 0i]);
                }
              }
            }
          }
          workgroupBarrier(); storageBarrier();
          {
            let i1_1_1: i32 = i32(anyfn_thread.x);
            for (var i1_0_1: i32 = 0i; i1_0_1 < 2i; i1_0_1++) {
              if ((((i1_0_1 * 64i) + i1_1_1) < 96i)) {
                Y[i0 * 96i + ((i1_0_1 * 64i) + i1_1_1)] = (powers[0i * 96i + ((i1_0_1 * 64i) + i1_1_1)] / total[0i]);
              }
            }
          }
        }
      }
    }
  }
}
