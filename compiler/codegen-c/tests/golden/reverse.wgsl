
// Function: reverse_kernel
// Parameters: pointer, pointer, int32, blockIdx.x, threadIdx.x
struct anyfn_numbers {
  n: i32,
}
var<immediate> anyfn_given: anyfn_numbers;
@group(0) @binding(0) var<storage, read> A: array<f32>;
@group(0) @binding(1) var<storage, read_write> B: array<f32>;
var<workgroup> S: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn reverse_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  let n: i32 = anyfn_given.n;
  {
    let i: i32 = i32(anyfn_block.x);
    {
      {
        let j: i32 = i32(anyfn_thread.x);
        S[j] = A[i * 64i + j];
      }
      workgroupBarrier(); storageBarrier();
      {
        let k: i32 = i32(anyfn_thread.x);
        {
          var t: array<f32, 1>;
          t[0i] = S[(63i - k)];
          B[i * 64i + k] = (t[0i] * 2.0f);
        }
      }
    }
  }
}
