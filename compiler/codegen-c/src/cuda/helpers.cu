/* Helper functions of kernels in CUDA C, each after a line that names it. `@T` is a type, `@U` its unsigned one, `@N` the data type. */
/// div
static __device__ inline @T anyfn_div_@N(@T a, @T b) { return b == 0 ? 0 : b == (@T)-1 && (@T)-1 < 0 ? (@T)(0 - (@U)a) : a / b; }
/// mod
static __device__ inline @T anyfn_mod_@N(@T a, @T b) { return b == 0 || (b == (@T)-1 && (@T)-1 < 0) ? 0 : a % b; }
/// floordiv
static __device__ inline @T anyfn_floordiv_@N(@T a, @T b) {
  @T q;
  if (b == 0) return 0;
  if (b == (@T)-1 && (@T)-1 < 0) return (@T)(0 - (@U)a);
  q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
/// floormod
static __device__ inline @T anyfn_floormod_@N(@T a, @T b) {
  @T r;
  if (b == 0 || (b == (@T)-1 && (@T)-1 < 0)) return 0;
  r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// min
static __device__ inline @T anyfn_min_@N(@T a, @T b) {
  const @T less = b < a ? b : a;
  return b != b ? b : less;
}
/// max
static __device__ inline @T anyfn_max_@N(@T a, @T b) {
  const @T more = b > a ? b : a;
  return b != b ? b : more;
}
/// sigmoid
static __device__ inline @T anyfn_sigmoid_@N(@T x) {
  const @T e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
