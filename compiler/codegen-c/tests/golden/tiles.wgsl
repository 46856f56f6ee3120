
// Function: tiles_kernel
// Parameters: pointer, pointer, int32, int32, blockIdx.y, threadIdx.x
struct anyfn_numbers {
  n: i32,
  k: i32,
}
var<immediate> anyfn_given: anyfn_numbers;
@group(0) @binding(0) var<storage, read> A: array<f32>;
@group(0) @binding(1) var<storage, read_write> T: array<f32>;
var<workgroup> S: array<f32, 64>;
fn anyfn_floordiv_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  let q = a / b;
  return select(q, q - 1i, a % b != 0i && (a < 0i) != (b < 0i));
}
fn anyfn_max_f32(a: f32, b: f32) -> f32 { return select(select(a, b, b > a), b, anyfn_is_nan(b)); }
fn anyfn_sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(1.0f, e, x < 0.0f) / (1.0f + e);
}
fn anyfn_is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
@compute @workgroup_size(16, 1, 1)
fn tiles_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  let n: i32 = anyfn_given.n;
  let k: i32 = anyfn_given.k;
  {
    let i: i32 = i32(anyfn_block.y);
    {
      var sum: array<f32, 4>;
      {
        let j: i32 = i32(anyfn_thread.x);
        for (var l: i32 = 0i; l < 4i; l++) {
          sum[l] = 0.0f;
        }
      }
      workgroupBarrier(); storageBarrier();
      for (var r: i32 = 0i; r < n; r++) {
        {
          {
            let j_1: i32 = i32(anyfn_thread.x);
            for (var l_1: i32 = 0i; l_1 < 4i; l_1++) {
              S[((l_1 * 16i) + j_1)] = A[r * 64i + ((l_1 * 16i) + j_1)];
            }
          }
          workgroupBarrier(); storageBarrier();
          {
            let j_2: i32 = i32(anyfn_thread.x);
            for (var l_2: i32 = 0i; l_2 < 4i; l_2++) {
              sum[l_2] = (sum[l_2] + S[((63i - (j_2 * 4i)) - l_2)]);
            }
          }
        }
        workgroupBarrier(); storageBarrier();
      }
      workgroupBarrier(); storageBarrier();
      {
        let j_3: i32 = i32(anyfn_thread.x);
        if (j_3 < 8) {
          T[i * 64i + j_3] = anyfn_max_f32(sum[0i], f32(anyfn_floordiv_i32(i32(j_3), k)));
        }
      }
      workgroupBarrier(); storageBarrier();
      {
        let thread: i32 = i32(anyfn_thread.x);
        if (thread < 1) {
          T[i * 64i + 9i] = anyfn_sigmoid(A[i * 64i + 0i]);
        }
      }
    }
  }
}

// Function: tiles_kernel_1
// Parameters: pointer, pointer, uint32, int32, threadIdx.x
struct anyfn_numbers {
  b: u32,
  n: i32,
}
var<immediate> anyfn_given: anyfn_numbers;
@group(0) @binding(0) var<storage, read> T: array<f32>;
@group(0) @binding(1) var<storage, read_write> B: array<f32>;
@compute @workgroup_size(1, 1, 1)
fn tiles_kernel_1(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  let b: bool = anyfn_given.b != 0u;
  let n: i32 = anyfn_given.n;
  {
    let thread: i32 = i32(anyfn_thread.x);
    B[0i * 64i + 0i] = select(exp(T[0i * 64i + 2i]), T[0i * 64i + 1i], b);
  }
}
