//! Makes expressions: checks operands, unifies their data types, and folds constants.

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{Array, DType, ObjectRef, Ref, Result, String, bail};

use crate::buffer::Buffer;
use crate::expr::{
    BinaryOp, Broadcast, BufferLoad, Call, Cast, DataProducer, Expr, FloatImm, IntImm, Let, Not, PrimExpr,
    ProducerLoad, Ramp, Select, StringImm, Var,
};
use crate::fold;
use crate::kind::{ExprKind, as_int};

/// Data type of addresses and texts.
pub const HANDLE: DType = DType::new(kDLOpaqueHandle, 64, 1);

/// What is asked of data types.
pub trait DTypeExt {
    /// The type of one lane.
    #[must_use]
    fn element(&self) -> DType;
    /// The same with another number of lanes.
    #[must_use]
    fn with_lanes(&self, lanes: u16) -> DType;
    /// Number of lanes.
    #[must_use]
    fn lanes(&self) -> u16;
    /// Whether it is a signed or unsigned integer; truth values are not.
    #[must_use]
    fn is_integer(&self) -> bool;
    /// Whether it is a floating-point number.
    #[must_use]
    fn is_float(&self) -> bool;
    /// Whether it is `float16` or `bfloat16`: stored, but computed with as `float32`.
    #[must_use]
    fn is_half(&self) -> bool;
    /// Whether it is a truth value.
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

/// A new variable.
#[must_use]
pub fn var(name: &str, dtype: DType) -> Ref<Var> {
    Ref::new(Var { base: PrimExpr { dtype }, name: name.into() })
}

/// An integer or truth value; for `uint64` beyond the signed range, its bits.
///
/// # Errors
/// `ValueError` if the data type cannot hold it, or is no integer.
pub fn int(value: i64, dtype: DType) -> Result<Expr> {
    let scalar = dtype.element();
    if !(scalar.is_integer() || scalar.is_bool()) {
        bail!("TypeError", "{value} is an integer, which {scalar} is not");
    }
    if !fold::fits(value, scalar) {
        bail!("ValueError", "{value} does not fit into {scalar}");
    }
    splat(Ref::new(IntImm { base: PrimExpr { dtype: scalar }, value }).into_parent(), dtype.lanes())
}

/// An integer or truth value, `uint64` included, by its value.
///
/// # Errors
/// `OverflowError` if it is beyond 64 bits; else as [`int`].
pub fn whole(value: i128, dtype: DType) -> Result<Expr> {
    let is_unsigned_64 = fold::is_unsigned_64(dtype);
    let bits = if is_unsigned_64 { u64::try_from(value).map(|bits| bits as i64) } else { i64::try_from(value) };
    match bits {
        Ok(bits) => int(bits, dtype),
        Err(_) => bail!("OverflowError", "{value} does not fit into {dtype}"),
    }
}

/// An `int32`.
#[must_use]
pub fn i32(value: i32) -> Expr {
    Ref::new(IntImm { base: PrimExpr { dtype: DType::INT32 }, value: value.into() }).into_parent()
}

/// A truth value.
#[must_use]
pub fn bool(value: bool) -> Expr {
    Ref::new(IntImm { base: PrimExpr { dtype: DType::BOOL }, value: value.into() }).into_parent()
}

/// A floating-point number.
///
/// # Errors
/// `TypeError` if the data type is none.
pub fn float(value: f64, dtype: DType) -> Result<Expr> {
    if !dtype.is_float() {
        bail!("TypeError", "{value} is a floating-point number, which {dtype} is not");
    }
    let scalar = dtype.element();
    splat(Ref::new(FloatImm { base: PrimExpr { dtype: scalar }, value }).into_parent(), dtype.lanes())
}

/// A text.
#[must_use]
pub fn string(text: &str) -> Expr {
    Ref::new(StringImm { base: PrimExpr { dtype: HANDLE }, value: text.into() }).into_parent()
}

/// Zero, one, .. of a data type: an integer as what the type has for it.
///
/// # Errors
/// `ValueError` if the data type cannot hold it.
pub fn number(value: i64, dtype: DType) -> Result<Expr> {
    if dtype.is_float() { float(value as f64, dtype) } else { int(value, dtype) }
}

/// The largest or smallest value of a data type; an infinity of floating-point numbers.
///
/// # Errors
/// `TypeError` if it is no number.
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

/// As [`limit`], but of floating-point numbers the largest or smallest finite one.
///
/// # Errors
/// `TypeError` if it is no number.
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

/// A number as the nearest one that a floating-point type has; of two the even one.
#[must_use]
pub fn rounded(value: f64, dtype: DType) -> f64 {
    match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 32) => f64::from(value as f32),
        (kDLFloat, 16) => fewer_bits(value, 10, -14, HALF_MAX),
        (kDLBfloat, 16) => fewer_bits(value, 7, -126, BFLOAT_MAX),
        _ => value,
    }
}

/// The nearest number with so many bits behind the point, a smallest exponent and a largest value; of two the even one.
fn fewer_bits(value: f64, mantissa: i32, smallest: i32, largest: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(smallest);
    let unit = f64::from(exponent - mantissa).exp2();
    let nearest = (value / unit).round_ties_even() * unit;
    if nearest.abs() > largest { f64::INFINITY.copysign(value) } else { nearest }
}

/// A value as one of another data type.
///
/// # Errors
/// `TypeError` for handles, and for another number of lanes than one or that of the value.
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

/// A vector of one value; the value itself for one lane.
///
/// # Errors
/// `TypeError` if the value is a vector already.
pub fn splat(value: Expr, lanes: u16) -> Result<Expr> {
    if lanes == 1 {
        return Ok(value);
    }
    if value.dtype.lanes() != 1 {
        bail!("TypeError", "a vector of {} cannot be an element of a vector", value.dtype);
    }
    let dtype = value.dtype.with_lanes(lanes);
    Ok(Ref::new(Broadcast { base: PrimExpr { dtype }, value, lanes: lanes.into() }).into_parent())
}

/// The vector `start`, `start + stride`, ..
///
/// # Errors
/// `TypeError` unless both are integers of the same data type; `ValueError` for less than two lanes.
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

/// Makes both operands have the same data type.
///
/// A constant takes the type of the other operand if that can hold it. An integer becomes a floating-point number, the
/// shorter of two types of a kind becomes the longer one, a single value a vector. Nothing else is converted silently.
///
/// # Errors
/// `TypeError` for other pairs of types.
pub fn unify(a: Expr, b: Expr) -> Result<(Expr, Expr)> {
    if a.dtype == b.dtype {
        return Ok((a, b));
    }
    let (left, right) = (a.dtype, b.dtype);
    let lanes = match (left.lanes(), right.lanes()) {
        (x, y) if x == y => x,
        (1, y) => y,
        (x, 1) => x,
        _ => bail!("TypeError", "vectors of {left} and {right} cannot be combined"),
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

/// A constant as one of another data type that can hold it; anything else stays.
#[must_use]
pub fn adopt(value: Expr, dtype: DType) -> Expr {
    fold::adopt(&value, dtype.element()).and_then(|value| splat(value, dtype.lanes()).ok()).unwrap_or(value)
}

fn splat_if_one(value: Expr, lanes: u16) -> Result<Expr> {
    if value.dtype.lanes() == 1 { splat(value, lanes) } else { Ok(value) }
}

/// The type that both of two scalar types become.
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

/// The operands of an operation with their data types unified, and the data type of the result.
///
/// # Errors
/// `TypeError` if the data types do not fit.
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

/// An operation on two values; of truth values, `&`, `|` and `^` are `and`, `or` and `!=`.
///
/// # Errors
/// `TypeError` if the data types do not fit; `ZeroDivisionError` for an integer division by a constant 0; `ValueError` for a
/// shift by a constant that is negative or at least the number of bits.
pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr> {
    let op = match op {
        BinaryOp::BitAnd if a.dtype.is_bool() => BinaryOp::And,
        BinaryOp::BitOr if a.dtype.is_bool() => BinaryOp::Or,
        BinaryOp::BitXor if a.dtype.is_bool() => BinaryOp::Ne,
        op => op,
    };
    let (dtype, a, b) = checked(op, a, b)?;
    if is_division(op, b.dtype) && fold::constant(&b) == Some(0) {
        bail!("ZeroDivisionError", "`{}` by zero", op.text());
    }
    if op.is_shift()
        && let Some(by) = fold::constant(&b)
        && !fold::is_shift_of(by, dtype)
    {
        bail!("ValueError", "`{}` by {by}: {} has {} bits", op.text(), dtype.element(), dtype.0.bits);
    }
    Ok(fold::binary(op, &a, &b).unwrap_or_else(|| op.node(dtype, a, b)))
}

/// As [`binary`], of operands that were changed: a division that has become one by 0 stays as it is, for it may never be
/// computed, and so does a shift by a number of bits that there are not.
///
/// # Errors
/// `TypeError` if the data types do not fit.
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
        /// As [`binary`].
        pub fn $name(a: Expr, b: Expr) -> Result<Expr> {
            binary(BinaryOp::$op, a, b)
        }
    )* };
}

binary_functions! {
    /// The sum.
    add Add
    /// The difference.
    sub Sub
    /// The product.
    mul Mul
    /// The quotient; of integers rounded towards zero.
    div Div
    /// The quotient of integers, rounded down.
    floor_div FloorDiv
    /// The remainder of [`floor_div`].
    floor_mod FloorMod
    /// The smaller one.
    min Min
    /// The larger one.
    max Max
    /// Whether the first is less.
    less Lt
    /// Whether they are equal.
    equal Eq
    /// The bits that both have.
    bit_and BitAnd
    /// The bits that one of them has.
    bit_or BitOr
    /// The bits that exactly one of them has.
    bit_xor BitXor
    /// The bits of the first, moved up.
    shift_left ShiftLeft
    /// The bits of the first, moved down, with its sign.
    shift_right ShiftRight
    /// Whether both hold.
    and And
    /// Whether one of them holds.
    or Or
}

/// The quotient of integers, rounded towards zero.
///
/// # Errors
/// `TypeError` for floating-point numbers; else as [`binary`].
pub fn trunc_div(a: Expr, b: Expr) -> Result<Expr> {
    let (a, b) = unify(a, b)?;
    if a.dtype.is_float() {
        bail!("TypeError", "`truncdiv` does not take {}; use `/`, or `tir.trunc(a / b)`", a.dtype);
    }
    div(a, b)
}

/// The value with the other sign, which a zero of floating-point numbers has, too.
///
/// # Errors
/// `TypeError` if it is no number.
pub fn neg(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    let zero = if dtype.is_float() { float(-0.0, dtype)? } else { int(0, dtype)? };
    sub(zero, a)
}

/// Whether a floating-point number is none; false for integers.
///
/// # Errors
/// `TypeError` if it is no number.
pub fn is_nan(a: Expr) -> Result<Expr> {
    if a.dtype.is_integer() {
        return splat(bool(false), a.dtype.lanes());
    }
    if !a.dtype.is_float() {
        bail!("TypeError", "`isnan` does not take {}", a.dtype);
    }
    binary(BinaryOp::Ne, a.clone(), a)
}

/// The opposite of a truth value; of an integer, all bits changed.
///
/// # Errors
/// `TypeError` if it is none.
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

/// A value without its sign; the least integer of a type stays as it is.
///
/// # Errors
/// `TypeError` if it is no number.
pub fn abs(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    match dtype.0.code {
        _ if dtype.is_float() => Ok(call(dtype, "fabs", [a.into_object()])),
        kDLInt => max(a.clone(), sub(int(0, dtype)?, a)?),
        kDLUInt => Ok(a),
        _ => bail!("TypeError", "`abs` does not take {dtype}"),
    }
}

/// A value to the power of another one: products if that is a small whole number, else `pow` of floating-point numbers.
///
/// # Errors
/// `TypeError` for integers to a power that is not a constant of 0 to 64.
pub fn power(a: Expr, b: Expr) -> Result<Expr> {
    /// Beyond, `pow` is as quick and more exact.
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
        bail!("TypeError", "`**` of {} needs a constant of 0 to 64 as power; convert both to floats", a.dtype);
    }
    Ok(call(a.dtype, "pow", [a.into_object(), b.into_object()]))
}

/// One of two values; of the other one nothing is read, so it may lie outside of a buffer.
///
/// # Errors
/// `TypeError` if the condition is no truth value, or the values cannot be unified.
pub fn select(condition: Expr, true_value: Expr, false_value: Expr) -> Result<Expr> {
    if !condition.dtype.is_bool() {
        bail!("TypeError", "a condition must be bool but got {}", condition.dtype);
    }
    let (true_value, false_value) = unify(true_value, false_value)?;
    let dtype = true_value.dtype;
    if condition.dtype.lanes() != 1 && condition.dtype.lanes() != dtype.lanes() {
        bail!("TypeError", "a condition of {} lanes cannot choose {dtype}", condition.dtype.lanes());
    }
    match as_int(&condition) {
        Some(0) => Ok(false_value),
        Some(_) => Ok(true_value),
        None => {
            Ok(Ref::new(Select { base: PrimExpr { dtype }, condition, true_value, false_value }).into_parent())
        }
    }
}

/// An element of a buffer.
///
/// # Errors
/// `ValueError` for another number of indices than dimensions, `TypeError` if one is no integer.
pub fn load(buffer: &Ref<Buffer>, indices: Array<Expr>) -> Result<Expr> {
    let dtype = buffer.dtype.with_lanes(check_indices(&buffer.name, buffer.shape.len(), &indices)?);
    Ok(Ref::new(BufferLoad { base: PrimExpr { dtype }, buffer: buffer.clone(), indices }).into_parent())
}

/// An element of a tensor of a computation.
///
/// # Errors
/// As [`load`].
pub fn produce(producer: &Ref<DataProducer>, name: &str, indices: Array<Expr>) -> Result<Expr> {
    let lanes = check_indices(name, producer.shape.len(), &indices)?;
    let base = PrimExpr { dtype: producer.dtype.with_lanes(lanes) };
    Ok(Ref::new(ProducerLoad { base, producer: producer.clone(), indices }).into_parent())
}

/// Checks the indices of an element; gives the number of lanes.
pub(crate) fn check_indices(name: &str, ndim: usize, indices: &Array<Expr>) -> Result<u16> {
    if indices.len() != ndim {
        bail!("IndexError", "`{name}` has {ndim} dimensions but got {} indices", indices.len());
    }
    let mut lanes = 1;
    for (place, index) in indices.iter().enumerate() {
        if !index.dtype.is_integer() {
            bail!("TypeError", "index {place} of `{name}` must be an integer but is {}", index.dtype);
        }
        if index.dtype.lanes() != 1 && place + 1 != ndim {
            bail!("TypeError", "index {place} of `{name}` is a vector, which only the last one can be");
        }
        lanes = index.dtype.lanes();
    }
    Ok(lanes)
}

/// Functions of floating-point numbers, whose results depend on their arguments alone and which vectors have, too.
pub const MATH: &[&str] = &[
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc",
    "round", "erf", "fabs", "pow", "atan2", "fmod", "hypot", "copysign",
];

/// A call of a function of numbers, whose data type is that of the arguments.
///
/// # Errors
/// `TypeError` for one of [`MATH`] of what is no floating-point number.
pub fn math(op: &str, args: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    let args: Vec<Expr> = args.into_iter().collect();
    let Some(dtype) = args.first().map(|arg| arg.dtype) else {
        bail!("TypeError", "the data type of `{op}()` is not known");
    };
    if MATH.contains(&op)
        && let Some(wrong) = args.iter().find(|arg| !arg.dtype.is_float())
    {
        let dtype = wrong.dtype;
        bail!("TypeError", "`{op}` does not take {dtype}; convert it, as with `astype(\"float32\")`");
    }
    Ok(call(dtype, op, args.into_iter().map(Ref::into_object)))
}

/// A call of a function that code generators know.
pub fn call(dtype: DType, op: &str, args: impl IntoIterator<Item = ObjectRef>) -> Expr {
    let args = args.into_iter().collect();
    Ref::new(Call { base: PrimExpr { dtype }, op: String::from(op), args }).into_parent()
}

/// An expression in which a variable stands for a value.
///
/// # Errors
/// `TypeError` if variable and value have different data types.
pub fn bind(var: Ref<Var>, value: Expr, body: Expr) -> Result<Expr> {
    if var.dtype != value.dtype {
        bail!("TypeError", "`{}` is {} but its value is {}", var.name, var.dtype, value.dtype);
    }
    let dtype = body.dtype;
    Ok(Ref::new(Let { base: PrimExpr { dtype }, var, value, body }).into_parent())
}
