
// Function: called_kernel
// Parameters: pointer, pointer, int32, blockIdx.x
struct anyfn_numbers {
  n: i32,
}
var<immediate> anyfn_given: anyfn_numbers;
@group(0) @binding(0) var<storage, read> A: array<i32>;
@group(0) @binding(1) var<storage, read_write> T: array<i32>;
fn anyfn_floordiv_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  let q = a / b;
  return select(q, q - 1i, a % b != 0i && (a < 0i) != (b < 0i));
}
@compute @workgroup_size(1, 1, 1)
fn called_kernel(@builtin(workgroup_id) anyfn_block: vec3<u32>, @builtin(local_invocation_id) anyfn_thread: vec3<u32>) {
  let n: i32 = anyfn_given.n;
  {
    let i: i32 = i32(anyfn_block.x);
    T[i] = anyfn_floordiv_i32(A[i], (A[i] - 1i));
  }
}
