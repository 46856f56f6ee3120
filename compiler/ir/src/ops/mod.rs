//! Builds expressions: checks operands, unifies their data types and folds constants.

mod fold;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{Array, DType, ObjectRef, Ref, Result, String, bail};

use crate::buffer::Buffer;
use crate::expr::{
    BinaryOp, Broadcast, BufferLoad, Call, Cast, DataProducer, Expr, FloatImm, IntImm, Let, Not, PrimExpr,
    ProducerLoad, Ramp, Select, StringImm, Var, is_unsigned_64,
};
use crate::kind::{ExprKind, as_int};
use crate::words;

/// Data type of addresses and strings.
pub const HANDLE: DType = DType::new(kDLOpaqueHandle, 64, 1);

/// Queries on data types.
pub trait DTypeExt {
    /// Returns the scalar type of one lane.
    #[must_use]
    fn element(&self) -> DType;
    /// Returns the data type with the same element type and `lanes` lanes.
    #[must_use]
    fn with_lanes(&self, lanes: u16) -> DType;
    /// Returns the number of lanes.
    #[must_use]
    fn lanes(&self) -> u16;
    /// Returns true for signed and unsigned integers. Booleans are not integers.
    #[must_use]
    fn is_integer(&self) -> bool;
    /// Returns true for floating-point types.
    #[must_use]
    fn is_float(&self) -> bool;
    /// Returns true for `float16` and `bfloat16`, which are storage types: arithmetic uses `float32`.
    #[must_use]
    fn is_half(&self) -> bool;
    /// Returns true for Booleans.
    #[must_use]
    fn is_bool(&self) -> bool;
}

impl DTypeExt for DType {
    fn element(&self) -> DType {
        self.with_lanes(1)
    }
    fn with_lanes(&self, lanes: u16) -> DType {
        DType::new(self.0.code, self.0.bits, lanes)
    }
    fn lanes(&self) -> u16 {
        self.0.lanes
    }
    fn is_integer(&self) -> bool {
        matches!(self.0.code, kDLInt | kDLUInt)
    }
    fn is_float(&self) -> bool {
        !matches!(self.0.code, kDLInt | kDLUInt | kDLBool | kDLOpaqueHandle) && self.0.bits > 0
    }
    fn is_half(&self) -> bool {
        matches!(self.0.code, kDLFloat | kDLBfloat) && self.0.bits == 16
    }
    fn is_bool(&self) -> bool {
        self.0.code == kDLBool
    }
}

/// Creates a variable.
#[must_use]
pub fn var(name: &str, dtype: DType) -> Ref<Var> {
    Ref::new(Var { base: PrimExpr { dtype }, name: name.into() })
}

/// Creates an integer or Boolean constant. For `uint64`, `value` holds the bits of the unsigned value.
///
/// # Errors
/// Returns `TypeError` if the data type is neither integer nor Boolean, and `ValueError` if it cannot represent the
/// value.
pub fn int(value: i64, dtype: DType) -> Result<Expr> {
    let scalar = dtype.element();
    if !(scalar.is_integer() || scalar.is_bool()) {
        bail!("TypeError", "expected an integer type for the constant {value}, got {scalar}");
    }
    if !fold::fits(value, scalar) {
        bail!("ValueError", "{value} does not fit into {scalar}");
    }
    splat(Ref::new(IntImm { base: PrimExpr { dtype: scalar }, value }).into_parent(), dtype.lanes())
}

/// Creates an integer or Boolean constant from its value, including `uint64` values beyond the range of `int64`.
///
/// # Errors
/// Returns `OverflowError` if the value exceeds 64 bits (unsigned for `uint64`, signed for other types), or the error of
/// [`int`].
pub fn whole(value: i128, dtype: DType) -> Result<Expr> {
    let bits =
        if is_unsigned_64(dtype) { u64::try_from(value).map(|bits| bits as i64) } else { i64::try_from(value) };
    match bits {
        Ok(bits) => int(bits, dtype),
        Err(_) => bail!("OverflowError", "{value} does not fit into {dtype}"),
    }
}

/// Creates an `int32` constant.
#[must_use]
pub fn i32(value: i32) -> Expr {
    Ref::new(IntImm { base: PrimExpr { dtype: DType::INT32 }, value: value.into() }).into_parent()
}

/// Creates a Boolean constant.
#[must_use]
pub fn bool(value: bool) -> Expr {
    Ref::new(IntImm { base: PrimExpr { dtype: DType::BOOL }, value: value.into() }).into_parent()
}

/// Creates a floating-point constant.
///
/// # Errors
/// Returns `TypeError` if the data type is not a floating-point type.
pub fn float(value: f64, dtype: DType) -> Result<Expr> {
    if !dtype.is_float() {
        bail!("TypeError", "expected a floating-point type for the constant {value}, got {dtype}");
    }
    let scalar = dtype.element();
    splat(Ref::new(FloatImm { base: PrimExpr { dtype: scalar }, value }).into_parent(), dtype.lanes())
}

/// Creates a string constant.
#[must_use]
pub fn string(text: &str) -> Expr {
    Ref::new(StringImm { base: PrimExpr { dtype: HANDLE }, value: text.into() }).into_parent()
}

/// Creates a constant of an integer or floating-point type from an integer.
///
/// # Errors
/// Returns the error of [`int`].
pub fn number(value: i64, dtype: DType) -> Result<Expr> {
    if dtype.is_float() { float(value as f64, dtype) } else { int(value, dtype) }
}

/// Creates a constant: the largest value of a data type, or its smallest value if `largest` is
/// false. For floating-point types, these values are positive and negative infinity.
///
/// # Errors
/// Returns `TypeError` if the data type is not numeric.
pub fn limit(dtype: DType, largest: bool) -> Result<Expr> {
    if dtype.is_float() {
        return float(if largest { f64::INFINITY } else { f64::NEG_INFINITY }, dtype);
    }
    let bits = u32::from(dtype.0.bits);
    if !dtype.is_integer() || !(1..=64).contains(&bits) {
        bail!("TypeError", "{dtype} has no {} value", if largest { "largest" } else { "smallest" });
    }
    let value = match (dtype.0.code == kDLInt, largest) {
        (true, true) => i64::MAX >> (64 - bits),
        (true, false) => i64::MIN >> (64 - bits),
        (false, false) => 0,
        (false, true) if bits == 64 => -1,
        (false, true) => (1 << bits) - 1,
    };
    int(value, dtype)
}

/// Creates a constant: the largest finite value of a data type, or, if `largest` is false, the
/// lowest finite value, which is negative for signed types.
///
/// # Errors
/// Returns `TypeError` if the data type is not numeric.
pub fn finite_limit(dtype: DType, largest: bool) -> Result<Expr> {
    let size = match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 16) => HALF_MAX,
        (kDLFloat, 32) => f32::MAX.into(),
        (kDLFloat, 64) => f64::MAX,
        (kDLBfloat, 16) => BFLOAT_MAX,
        _ => return limit(dtype, largest),
    };
    float(if largest { size } else { -size }, dtype)
}

const HALF_MAX: f64 = 65504.0;
const BFLOAT_MAX: f64 = 3.389_531_389_251_535_5e38;

/// Rounds a number to the nearest value of a floating-point type, ties to even.
#[must_use]
pub fn rounded(value: f64, dtype: DType) -> f64 {
    match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 32) => f64::from(value as f32),
        (kDLFloat, 16) => fewer_bits(value, 10, -14, HALF_MAX),
        (kDLBfloat, 16) => fewer_bits(value, 7, -126, BFLOAT_MAX),
        _ => value,
    }
}

/// Rounds `value` to `mantissa` fraction bits, ties to even. `smallest` is the minimum exponent. A result whose
/// magnitude exceeds `largest` becomes infinite.
fn fewer_bits(value: f64, mantissa: i32, smallest: i32, largest: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(smallest);
    let unit = f64::from(exponent - mantissa).exp2();
    let nearest = (value / unit).round_ties_even() * unit;
    if nearest.abs() > largest { f64::INFINITY.copysign(value) } else { nearest }
}

/// Converts a value to another data type. A scalar that is converted to a vector type fills all lanes.
///
/// A floating-point value that is converted to an integer type is rounded towards zero. The result is unspecified if the
/// value is NaN or does not fit in the type, and differs between processors. The compiler does not fold such a conversion.
///
/// # Errors
/// Returns `TypeError` for handles, and for a vector whose number of lanes differs from that of `dtype`.
pub fn cast(value: Expr, dtype: DType) -> Result<Expr> {
    let from = value.dtype;
    if from == dtype {
        return Ok(value);
    }
    if from.lanes() == 1 && dtype.lanes() != 1 {
        return splat(cast(value, dtype.element())?, dtype.lanes());
    }
    let is_number = |dtype: DType| dtype.0.code != kDLOpaqueHandle;
    if from.lanes() != dtype.lanes() || !is_number(from) || !is_number(dtype) {
        bail!("TypeError", "a value of {from} cannot be converted to {dtype}");
    }
    if let Some(folded) = fold::cast(&value, dtype) {
        return Ok(folded);
    }
    Ok(Ref::new(Cast { base: PrimExpr { dtype }, value }).into_parent())
}

/// Creates a vector that repeats one value. For one lane, returns the value itself.
///
/// # Errors
/// Returns `TypeError` if the value is already a vector.
pub fn splat(value: Expr, lanes: u16) -> Result<Expr> {
    if lanes == 1 {
        return Ok(value);
    }
    if value.dtype.lanes() != 1 {
        bail!("TypeError", "expected a scalar as element of a vector, got {}", value.dtype);
    }
    let dtype = value.dtype.with_lanes(lanes);
    Ok(Ref::new(Broadcast { base: PrimExpr { dtype }, value, lanes: lanes.into() }).into_parent())
}

/// Creates the vector `start`, `start + stride`, and so on.
///
/// # Errors
/// Returns `TypeError` unless both are scalar integers of the same data type, and `ValueError` for fewer than two lanes.
pub fn ramp(start: Expr, stride: Expr, lanes: u16) -> Result<Expr> {
    if start.dtype != stride.dtype || !start.dtype.is_integer() || start.dtype.lanes() != 1 {
        bail!(
            "TypeError",
            "a ramp needs integers of one data type but got {} and {}",
            start.dtype,
            stride.dtype
        );
    }
    if lanes < 2 {
        bail!("ValueError", "a ramp needs at least 2 lanes but got {lanes}");
    }
    let dtype = start.dtype.with_lanes(lanes);
    Ok(Ref::new(Ramp { base: PrimExpr { dtype }, start, stride, lanes: lanes.into() }).into_parent())
}

/// Converts both operands to the same data type.
///
/// An integer constant takes the type of the other operand if that type can hold its value, and a floating-point
/// constant if that type is a floating-point type. Otherwise, the narrower of two types of the same kind is converted
/// to the wider one, an unsigned integer to a wider signed type, an integer to a floating-point type, and a scalar to a
/// vector. No other conversion is implicit.
///
/// # Errors
/// Returns `TypeError` for other pairs of types.
pub fn unify(a: Expr, b: Expr) -> Result<(Expr, Expr)> {
    if a.dtype == b.dtype {
        return Ok((a, b));
    }
    let (left, right) = (a.dtype, b.dtype);
    let lanes = match (left.lanes(), right.lanes()) {
        (x, y) if x == y => x,
        (1, y) => y,
        (x, 1) => x,
        _ => bail!("TypeError", "cannot combine vectors of {left} and {right}: their numbers of lanes differ"),
    };
    if left.element() == right.element() {
        return Ok((splat_if_one(a, lanes)?, splat_if_one(b, lanes)?));
    }
    if let Some(a) = fold::adopt(&a, right.element()) {
        return Ok((splat(a, lanes)?, splat_if_one(b, lanes)?));
    }
    if let Some(b) = fold::adopt(&b, left.element()) {
        return Ok((splat_if_one(a, lanes)?, splat(b, lanes)?));
    }
    let Some(common) = common(left.element(), right.element()) else {
        bail!("TypeError", "cannot combine {left} and {right}; convert one of them (`astype`)");
    };
    let common = common.with_lanes(lanes);
    Ok((cast(a, common)?, cast(b, common)?))
}

/// Converts an integer constant to `dtype` if that type can hold its value, and a floating-point constant if `dtype` is
/// a floating-point type. Otherwise, returns the expression unchanged.
#[must_use]
pub fn adopt(value: Expr, dtype: DType) -> Expr {
    fold::adopt(&value, dtype.element()).and_then(|value| splat(value, dtype.lanes()).ok()).unwrap_or(value)
}

fn splat_if_one(value: Expr, lanes: u16) -> Result<Expr> {
    if value.dtype.lanes() == 1 { splat(value, lanes) } else { Ok(value) }
}

/// Returns the common data type to which operands of two scalar types are converted, or `None` if there is no
/// implicit conversion.
fn common(a: DType, b: DType) -> Option<DType> {
    let longer = if a.0.bits >= b.0.bits { a } else { b };
    let is_plain_float = |dtype: DType| dtype.0.code == kDLFloat || dtype.0.code == kDLBfloat;
    match (a.0.code, b.0.code) {
        (x, y) if x == y && (a.is_integer() || x == kDLFloat) => Some(longer),
        (kDLInt, kDLUInt) if a.0.bits > b.0.bits => Some(a),
        (kDLUInt, kDLInt) if b.0.bits > a.0.bits => Some(b),
        (kDLInt | kDLUInt, _) if is_plain_float(b) => Some(b),
        (_, kDLInt | kDLUInt) if is_plain_float(a) => Some(a),
        (kDLFloat, kDLBfloat) if a.0.bits > 16 => Some(a),
        (kDLBfloat, kDLFloat) if b.0.bits > 16 => Some(b),
        _ => None,
    }
}

/// Unifies the data types of the operands. Returns the data type of the result, and the converted operands.
///
/// # Errors
/// Returns `TypeError` if the operation does not accept the data types.
pub fn checked(op: BinaryOp, a: Expr, b: Expr) -> Result<(DType, Expr, Expr)> {
    let (a, b) = unify(a, b)?;
    let dtype = a.dtype;
    let fits = match op {
        BinaryOp::And | BinaryOp::Or => dtype.is_bool(),
        BinaryOp::Eq | BinaryOp::Ne => dtype.is_integer() || dtype.is_float() || dtype.is_bool(),
        BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Mod => dtype.is_integer(),
        _ if op.is_bitwise() => dtype.is_integer(),
        _ => dtype.is_integer() || dtype.is_float(),
    };
    if !fits {
        let hint = match op {
            BinaryOp::FloorDiv if dtype.is_float() => "; use `/`, or `tir.floor(a / b)`",
            BinaryOp::FloorMod | BinaryOp::Mod if dtype.is_float() => "; use `tir.fmod(a, b)`",
            BinaryOp::And | BinaryOp::Or if dtype.is_integer() => "; compare it with 0, or use `&` and `|`",
            _ => "",
        };
        bail!("TypeError", "`{}` does not take {dtype}{hint}", op.text());
    }
    let result = if op.is_comparison() { DType::BOOL.with_lanes(dtype.lanes()) } else { dtype };
    Ok((result, a, b))
}

/// Creates a binary operation. For Booleans, `&`, `|` and `^` become `and`, `or` and `!=`.
///
/// # Errors
/// Returns `TypeError` if the operation does not accept the data types, `ZeroDivisionError` for an integer division by a
/// constant 0, and `ValueError` for a shift by a constant that is negative or at least the number of bits.
pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr> {
    let op = match op {
        BinaryOp::BitAnd if a.dtype.is_bool() => BinaryOp::And,
        BinaryOp::BitOr if a.dtype.is_bool() => BinaryOp::Or,
        BinaryOp::BitXor if a.dtype.is_bool() => BinaryOp::Ne,
        op => op,
    };
    let (dtype, a, b) = checked(op, a, b)?;
    if is_division(op, b.dtype) && fold::constant(&b) == Some(0) {
        bail!("ZeroDivisionError", "division by zero in `{}`", op.text());
    }
    if op.is_shift()
        && let Some(by) = fold::constant(&b)
        && !fold::is_shift_of(by, dtype)
    {
        bail!(
            "ValueError",
            "invalid shift `{}` by {by}: {} has {} bits",
            op.text(),
            dtype.element(),
            dtype.0.bits
        );
    }
    Ok(fold::binary(op, &a, &b).unwrap_or_else(|| op.node(dtype, a, b)))
}

/// Rebuilds a binary operation after its operands have changed.
///
/// Unlike [`binary`], this accepts an integer division by a constant 0 and a shift by an invalid constant: after a
/// transformation, such an operation may be one that is never evaluated.
///
/// # Errors
/// Returns `TypeError` if the operation does not accept the data types.
pub fn rebuilt(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr> {
    let is_refused = |by| match op {
        _ if op.is_shift() => !fold::is_shift_of(by, a.dtype),
        _ => by == 0 && is_division(op, a.dtype),
    };
    if a.dtype == b.dtype && fold::constant(&b).is_some_and(is_refused) {
        return Ok(op.node(a.dtype, a, b));
    }
    binary(op, a, b)
}

fn is_division(op: BinaryOp, dtype: DType) -> bool {
    dtype.is_integer() && matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod)
}

macro_rules! binary_functions {
    ($($(#[$doc:meta])* $name:ident $op:ident)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns the error of [`binary`].
        pub fn $name(a: Expr, b: Expr) -> Result<Expr> {
            binary(BinaryOp::$op, a, b)
        }
    )* };
}

binary_functions! {
    /// Creates the sum of two numbers.
    add Add
    /// Creates the difference of two numbers.
    sub Sub
    /// Creates the product of two numbers.
    mul Mul
    /// Creates the quotient of two numbers. Integer quotients are rounded towards zero.
    div Div
    /// Creates the quotient of two integers, rounded down.
    floor_div FloorDiv
    /// Creates the remainder of the floor division ([`floor_div`]), with the sign of the divisor.
    floor_mod FloorMod
    /// Creates the minimum of two numbers.
    min Min
    /// Creates the maximum of two numbers.
    max Max
    /// Creates the comparison `a < b`.
    less Lt
    /// Creates the comparison `a == b`.
    equal Eq
    /// Creates the bitwise AND of two integers.
    bit_and BitAnd
    /// Creates the bitwise OR of two integers.
    bit_or BitOr
    /// Creates the bitwise XOR of two integers.
    bit_xor BitXor
    /// Creates the left shift of `a` by `b` bits.
    shift_left ShiftLeft
    /// Creates the right shift of `a` by `b` bits, which preserves the sign.
    shift_right ShiftRight
    /// Creates the logical AND of two Booleans.
    and And
    /// Creates the logical OR of two Booleans.
    or Or
}

/// Creates the quotient of two integers, rounded towards zero.
///
/// # Errors
/// Returns `TypeError` for floating-point numbers, or the error of [`binary`].
pub fn trunc_div(a: Expr, b: Expr) -> Result<Expr> {
    let (a, b) = unify(a, b)?;
    if a.dtype.is_float() {
        bail!("TypeError", "`truncdiv` does not take {}; use `/`, or `tir.trunc(a / b)`", a.dtype);
    }
    div(a, b)
}

/// Negates a number. Negating a floating-point zero changes its sign.
///
/// # Errors
/// Returns `TypeError` if the value is not a number.
pub fn neg(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    let zero = if dtype.is_float() { float(-0.0, dtype)? } else { int(0, dtype)? };
    sub(zero, a)
}

/// Creates a Boolean expression that is true if a floating-point number is NaN. For an integer, the result is
/// the constant false.
///
/// # Errors
/// Returns `TypeError` if the value is not a number.
pub fn is_nan(a: Expr) -> Result<Expr> {
    if a.dtype.is_integer() {
        return splat(bool(false), a.dtype.lanes());
    }
    if !a.dtype.is_float() {
        bail!("TypeError", "`isnan` does not take {}", a.dtype);
    }
    binary(BinaryOp::Ne, a.clone(), a)
}

/// Negates a Boolean, or inverts all bits of an integer.
///
/// # Errors
/// Returns `TypeError` for other data types.
pub fn not(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    if dtype.is_integer() {
        let ones = if dtype.0.code == kDLInt { int(-1, dtype)? } else { limit(dtype, true)? };
        return bit_xor(a, ones);
    }
    if !dtype.is_bool() {
        bail!("TypeError", "`not` does not take {dtype}");
    }
    match ExprKind::of(&a) {
        ExprKind::IntImm(node) => Ok(bool(node.value == 0)),
        ExprKind::Not(node) => Ok(node.a.clone()),
        _ => Ok(Ref::new(Not { base: PrimExpr { dtype }, a }).into_parent()),
    }
}

/// Returns the absolute value of a number. The least value of a signed integer type is returned unchanged.
///
/// # Errors
/// Returns `TypeError` if the value is not a number.
pub fn abs(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    match dtype.0.code {
        _ if dtype.is_float() => Ok(call(dtype, "fabs", [a.into_object()])),
        kDLInt => max(a.clone(), sub(int(0, dtype)?, a)?),
        kDLUInt => Ok(a),
        _ => bail!("TypeError", "`abs` does not take {dtype}"),
    }
}

/// Raises a value to a power. A power whose exponent is a small non-negative integer constant is
/// expanded to products. Any other power becomes a call of the floating-point function `pow`.
///
/// # Errors
/// Returns `TypeError` for an integer base unless the exponent is a constant between 0 and 64 or a floating-point number.
pub fn power(a: Expr, b: Expr) -> Result<Expr> {
    /// Maximum exponent for which a power of a floating-point number is expanded to products. For
    /// larger exponents, `pow` is as fast as the products and more accurate.
    const MOST: i64 = 4;
    let most = if a.dtype.is_integer() { 64 } else { MOST };
    let whole = match ExprKind::of(&b) {
        ExprKind::IntImm(node) => Some(node.value),
        ExprKind::FloatImm(node) if a.dtype.is_float() && node.value.fract() == 0.0 => Some(node.value as i64),
        _ => None,
    };
    if let Some(mut left) = whole.filter(|n| (0..=most).contains(n)) {
        let (mut square, mut product) = (a.clone(), None);
        while left > 0 {
            if left % 2 == 1 {
                product = Some(match product {
                    None => square.clone(),
                    Some(product) => mul(product, square.clone())?,
                });
            }
            left /= 2;
            if left > 0 {
                square = mul(square.clone(), square)?;
            }
        }
        return product.map_or_else(|| number(1, a.dtype), Ok);
    }
    let (a, b) = unify(a, b)?;
    if !a.dtype.is_float() {
        bail!(
            "TypeError",
            "`**` of {} requires a constant exponent from 0 to 64; for other exponents, convert both \
             operands to floats",
            a.dtype
        );
    }
    Ok(call(a.dtype, "pow", [a.into_object(), b.into_object()]))
}

/// Creates a choice between two values. If the condition is a scalar, the value that is not chosen
/// is not evaluated, so it may contain an index that is out of bounds.
///
/// # Errors
/// Returns `TypeError` if the condition is not Boolean, if its number of lanes does not match, or if the values cannot be
/// unified.
pub fn select(condition: Expr, true_value: Expr, false_value: Expr) -> Result<Expr> {
    if !condition.dtype.is_bool() {
        bail!("TypeError", "a condition must be bool but got {}", condition.dtype);
    }
    let (true_value, false_value) = unify(true_value, false_value)?;
    let dtype = true_value.dtype;
    if condition.dtype.lanes() != 1 && condition.dtype.lanes() != dtype.lanes() {
        bail!(
            "TypeError",
            "a condition of {} lanes cannot select between values of {dtype}",
            condition.dtype.lanes()
        );
    }
    match as_int(&condition) {
        Some(0) => Ok(false_value),
        Some(_) => Ok(true_value),
        None => {
            Ok(Ref::new(Select { base: PrimExpr { dtype }, condition, true_value, false_value }).into_parent())
        }
    }
}

/// Creates a load of an element of a buffer.
///
/// # Errors
/// Returns `IndexError` if the number of indices differs from the number of dimensions, and `TypeError` if an index is
/// not an integer or if an index other than the last one is a vector.
pub fn load(buffer: &Ref<Buffer>, indices: Array<Expr>) -> Result<Expr> {
    let dtype = buffer.dtype.with_lanes(check_indices(&buffer.name, buffer.shape.len(), &indices)?);
    Ok(Ref::new(BufferLoad { base: PrimExpr { dtype }, buffer: buffer.clone(), indices }).into_parent())
}

/// Creates a load of an element of a tensor that a tensor expression defines.
///
/// # Errors
/// Returns the same errors as [`load`].
pub fn produce(producer: &Ref<DataProducer>, name: &str, indices: Array<Expr>) -> Result<Expr> {
    let lanes = check_indices(name, producer.shape.len(), &indices)?;
    let base = PrimExpr { dtype: producer.dtype.with_lanes(lanes) };
    Ok(Ref::new(ProducerLoad { base, producer: producer.clone(), indices }).into_parent())
}

/// Checks the indices of an access to the buffer or tensor `name`, and returns the number of lanes of the
/// access.
pub(crate) fn check_indices(name: &str, ndim: usize, indices: &Array<Expr>) -> Result<u16> {
    if indices.len() != ndim {
        let (has, got) = (words::dimensions(ndim), words::indices(indices.len()));
        bail!("IndexError", "`{name}` has {has} but got {got}");
    }
    let mut lanes = 1;
    for (place, index) in indices.iter().enumerate() {
        if !index.dtype.is_integer() {
            bail!("TypeError", "index {place} of `{name}` must be an integer but is {}", index.dtype);
        }
        if index.dtype.lanes() != 1 && place + 1 != ndim {
            bail!("TypeError", "index {place} of `{name}` is a vector, but only the last index may be one");
        }
        lanes = index.dtype.lanes();
    }
    Ok(lanes)
}

/// Names of the mathematical functions of floating-point numbers. The functions have no side effects and also
/// apply to vectors.
pub const MATH: &[&str] = &[
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "floor",
    "ceil",
    "trunc",
    "round",
    "nearbyint",
    "erf",
    "fabs",
    "pow",
    "atan2",
    "fmod",
    "hypot",
    "copysign",
];

/// Names of the functions in [`MATH`] that take two arguments. The others take one.
pub const MATH_OF_TWO: &[&str] = &["pow", "atan2", "fmod", "hypot", "copysign"];

/// Returns the number of arguments of the mathematical function `name`, or `None` if [`MATH`] does
/// not contain the name.
#[must_use]
pub fn math_arity(name: &str) -> Option<usize> {
    match name {
        _ if MATH_OF_TWO.contains(&name) => Some(2),
        _ if MATH.contains(&name) => Some(1),
        _ => None,
    }
}

/// Creates a call of a mathematical function. The result has the data type of the first argument.
///
/// # Errors
/// Returns `TypeError` if there are no arguments, or if an argument of a function in [`MATH`] is not a floating-point
/// number.
pub fn math(op: &str, args: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    let args: Vec<Expr> = args.into_iter().collect();
    let Some(dtype) = args.first().map(|arg| arg.dtype) else {
        bail!("TypeError", "cannot determine the data type of `{op}()`: expected at least one argument");
    };
    if MATH.contains(&op)
        && let Some(wrong) = args.iter().find(|arg| !arg.dtype.is_float())
    {
        let dtype = wrong.dtype;
        bail!("TypeError", "`{op}` does not take {dtype}; convert it, as with `astype(\"float32\")`");
    }
    Ok(call(dtype, op, args.into_iter().map(Ref::into_object)))
}

/// Creates a call of a function known to code generators.
pub fn call(dtype: DType, op: &str, args: impl IntoIterator<Item = ObjectRef>) -> Expr {
    let args = args.into_iter().collect();
    Ref::new(Call { base: PrimExpr { dtype }, op: String::from(op), args }).into_parent()
}

/// Creates an expression that binds a variable to a value within its body.
///
/// # Errors
/// Returns `TypeError` if the data types of the variable and the value differ.
pub fn bind(var: Ref<Var>, value: Expr, body: Expr) -> Result<Expr> {
    if var.dtype != value.dtype {
        bail!("TypeError", "variable `{}` is {} but its value is {}", var.name, var.dtype, value.dtype);
    }
    let dtype = body.dtype;
    Ok(Ref::new(Let { base: PrimExpr { dtype }, var, value, body }).into_parent())
}
