/* Helper functions of kernels in OpenCL C, each after a line that names it. `@T` is a type. */
/// div
static inline @T anyfn_div_@T(@T a, @T b) { return b == 0 ? 0 : b == (@T)-1 && (@T)-1 < 0 ? (@T)(0 - (@U)a) : a / b; }
/// mod
static inline @T anyfn_mod_@T(@T a, @T b) { return b == 0 || (b == (@T)-1 && (@T)-1 < 0) ? 0 : a % b; }
/// floordiv
static inline @T anyfn_floordiv_@T(@T a, @T b) {
  @T q;
  if (b == 0) return 0;
  if (b == (@T)-1 && (@T)-1 < 0) return (@T)(0 - (@U)a);
  q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
/// floormod
static inline @T anyfn_floormod_@T(@T a, @T b) {
  @T r;
  if (b == 0 || (b == (@T)-1 && (@T)-1 < 0)) return 0;
  r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// min
static inline @T anyfn_min_@T(@T a, @T b) {
  const @T less = b < a ? b : a;
  return b != b ? b : less;
}
/// max
static inline @T anyfn_max_@T(@T a, @T b) {
  const @T more = b > a ? b : a;
  return b != b ? b : more;
}
/// sigmoid
static inline @T anyfn_sigmoid_@T(@T x) {
  const @T e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
