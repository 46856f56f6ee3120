/* Helper functions of kernels in WGSL, each after a line that names it. `@T` is a type. */
/// div_i32
fn anyfn_div_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  return a / b;
}
/// div_u32
fn anyfn_div_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a / b;
}
/// mod_i32
fn anyfn_mod_i32(a: i32, b: i32) -> i32 {
  if (b == 0i || b == -1i) { return 0i; }
  return a % b;
}
/// mod_u32
fn anyfn_mod_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a % b;
}
/// floordiv_i32
fn anyfn_floordiv_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  let q = a / b;
  return select(q, q - 1i, a % b != 0i && (a < 0i) != (b < 0i));
}
/// floormod_i32
fn anyfn_floormod_i32(a: i32, b: i32) -> i32 {
  if (b == 0i || b == -1i) { return 0i; }
  let r = a % b;
  return select(r, r + b, r != 0i && (r < 0i) != (b < 0i));
}
/// min_i32
fn anyfn_min_i32(a: i32, b: i32) -> i32 { return min(a, b); }
/// max_i32
fn anyfn_max_i32(a: i32, b: i32) -> i32 { return max(a, b); }
/// min_u32
fn anyfn_min_u32(a: u32, b: u32) -> u32 { return min(a, b); }
/// max_u32
fn anyfn_max_u32(a: u32, b: u32) -> u32 { return max(a, b); }
/// min_f32
fn anyfn_min_f32(a: f32, b: f32) -> f32 { return select(select(a, b, b < a), b, anyfn_is_nan(b)); }
/// max_f32
fn anyfn_max_f32(a: f32, b: f32) -> f32 { return select(select(a, b, b > a), b, anyfn_is_nan(b)); }
/// sigmoid
fn anyfn_sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(1.0f, e, x < 0.0f) / (1.0f + e);
}
/// log1p
fn anyfn_log1p(x: f32) -> f32 {
  let u = 1.0f + x;
  if (u == 1.0f || !(u > 0.0f) || u > 3.0e38f) { return select(log(u), x, u == 1.0f); }
  return log(u) * (x / (u - 1.0f));
}
/// expm1
fn anyfn_expm1(x: f32) -> f32 {
  if (abs(x) < 0.5f) {
    // The series of exp(x) - 1; its last term is below the precision.
    var sum = 1.0f;
    for (var k = 9; k > 1; k--) { sum = 1.0f + sum * x / f32(k); }
    return x * sum;
  }
  return exp(x) - 1.0f;
}
/// erf
fn anyfn_erf(x: f32) -> f32 {
  let z = abs(x);
  if (anyfn_is_nan(x)) { return x; }
  if (z > 4.0f) { return select(1.0f, -1.0f, x < 0.0f); }
  // The series of Kummer, whose terms are all positive: exp(-z*z) * 2z/sqrt(pi) * (1 + 2zz/3 + (2zz)^2/15 + ..).
  var term = 1.0f;
  var sum = 1.0f;
  for (var k = 1; k < 80; k++) {
    term = term * 2.0f * z * z / f32(2 * k + 1);
    sum = sum + term;
  }
  let y = min(1.1283791671f * z * exp(-z * z) * sum, 1.0f);
  return select(y, -y, x < 0.0f);
}
/// pow
fn anyfn_pow(x: f32, y: f32) -> f32 {
  if (y == 0.0f || x == 1.0f) { return 1.0f; }
  if (anyfn_is_nan(x) || anyfn_is_nan(y)) { return anyfn_bits(0x7fc00000u); }
  let is_whole = floor(y) == y;
  let is_odd = is_whole && abs(y) < 16777216.0f && floor(y * 0.5f) != y * 0.5f;
  if (x == 0.0f) {
    let size = select(0.0f, anyfn_bits(0x7f800000u), y < 0.0f);
    return select(size, anyfn_copysign(size, x), is_odd);
  }
  if (x > 0.0f) { return pow(x, y); }
  if (!is_whole) { return anyfn_bits(0x7fc00000u); }
  let size = pow(-x, y);
  return select(size, -size, is_odd);
}
/// hypot
fn anyfn_hypot(x: f32, y: f32) -> f32 {
  let a = max(abs(x), abs(y));
  let b = min(abs(x), abs(y));
  if (a == 0.0f || a > 3.0e38f) { return a; }
  let r = b / a;
  return a * sqrt(1.0f + r * r);
}
/// round
fn anyfn_round(x: f32) -> f32 {
  let t = trunc(x);
  return select(t, t + sign(x), abs(x - t) >= 0.5f);
}
/// copysign
fn anyfn_copysign(x: f32, y: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}
/// is_nan
fn anyfn_is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
/// bits
fn anyfn_bits(x: u32) -> f32 { return bitcast<f32>(x); }
