//! Printing of values that are not nodes: annotations, and fields of nodes whose types this crate does not
//! define.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, DType, Map, ObjectRef, PackedFunc, Result, bail};

use super::{LOOSE, Printer, is_word};
use crate::buffer::{Buffer, BufferRegion};
use crate::expr::Expr;
use crate::kind::ExprKind;
use crate::stack::on_enough_stack;

/// Maximum depth of nested objects that are printed with their fields.
const DEEPEST: usize = 16;

impl Printer {
    /// Prints the value of an annotation or field. The printed form distinguishes a plain value,
    /// such as `1`, from a constant node, such as `int32(1)`.
    pub(super) fn value(&mut self, value: &Any, depth: usize) {
        if self.is_full() {
            return;
        }
        let _ = match value.type_key() {
            "bool" => {
                write!(self.out, "{}", if value.get::<bool>().unwrap_or(false) { "True" } else { "False" })
            }
            "float" => match value.get::<f64>() {
                Ok(number) if number.is_finite() => write!(self.out, "{number:?}"),
                Ok(number) => write!(self.out, "float({:?})", number.to_string()),
                Err(_) => Ok(()),
            },
            "DataType" => write!(self.out, "dtype(\"{value:?}\")"),
            _ => match (value.get::<&str>(), value.as_object()) {
                (Ok(text), _) => write!(self.out, "{text:?}"),
                (Err(_), Some(object)) => {
                    on_enough_stack(|| self.part(object, depth));
                    Ok(())
                }
                (Err(_), None) => write!(self.out, "{value:?}"),
            },
        };
    }

    /// Prints an object that is contained in another object, such as a list or a node.
    fn part(&mut self, object: &ObjectRef, depth: usize) {
        if let Ok(expr) = Expr::try_from_object(object.clone()) {
            match ExprKind::of(&expr) {
                // Constant nodes are printed with their data type, to distinguish them from values.
                ExprKind::IntImm(node) if node.dtype == DType::INT32 || node.dtype == DType::BOOL => {
                    let _ = write!(self.out, "{}({})", node.dtype, node.value);
                }
                ExprKind::FloatImm(node) => {
                    let text = self.number(node.value);
                    let _ = write!(self.out, "{}({text})", node.dtype);
                }
                ExprKind::StringImm(node) => {
                    let _ = write!(self.out, "text({:?})", &*node.value);
                }
                _ => self.expr(&expr, LOOSE),
            }
        } else if let Ok(array) = Array::<Any>::try_from_object(object.clone()) {
            self.put("[");
            self.list(array.as_slice(), |p, item| p.value(item, depth + 1));
            self.put("]");
        } else if let Ok(map) = Map::<Any, Any>::try_from_object(object.clone()) {
            self.put("{");
            self.list(map.iter_any(), |p, (key, value)| {
                p.value(key, depth + 1);
                p.put(": ");
                p.value(value, depth + 1);
            });
            self.put("}");
        } else if let Ok(region) = anyfn::Ref::<BufferRegion>::try_from_object(object.clone()) {
            self.put("region(");
            self.region(&region);
            self.put(")");
        } else if object.type_key().starts_with("ffi.")
            || depth > DEEPEST
            || anyfn::Ref::<Buffer>::try_from_object(object.clone()).is_ok()
        {
            self.object(object);
        } else {
            self.foreign(object, depth + 1);
        }
    }

    /// Prints a node whose type this crate does not define: by the hook `__ffi_repr__` of the type, or as its type key and
    /// its fields.
    pub(super) fn foreign(&mut self, object: &ObjectRef, depth: usize) {
        let hook =
            TypeInfo::of(object).attribute("__ffi_repr__").and_then(|hook| hook.get::<PackedFunc>().ok());
        let key = object.type_key();
        if let Some(hook) = hook {
            let text = self.printed_by(&hook, object, depth);
            return self.put(&text.unwrap_or_else(|error| {
                format!("<{key}: `__ffi_repr__` raised {}: {}>", error.kind(), error.message())
            }));
        }
        let mut is_first = true;
        // A key without a dot would look like a call.
        if key.split('.').all(is_word) && key.contains('.') {
            let _ = write!(self.out, "{key}(");
        } else {
            let _ = write!(self.out, "node({key:?}");
            is_first = false;
        }
        for field in TypeInfo::of(object).fields() {
            if !is_first {
                self.put(", ");
            }
            is_first = false;
            let _ = write!(self.out, "{}=", field.name());
            match object.get_field(field.name()) {
                Ok(value) => self.value(&value, depth),
                Err(error) => self.put(error.message()),
            }
        }
        self.put(")");
    }

    /// Calls the hook `__ffi_repr__` of an object's type and returns the text. The hook receives
    /// the object, and a callback that prints values such as children of the object in the style of
    /// this printer.
    fn printed_by(&mut self, hook: &PackedFunc, object: &ObjectRef, depth: usize) -> Result<String> {
        let before = std::mem::take(&mut self.out);
        // The callback may outlive this call, so it owns the printer until the hook has returned.
        let lent = Arc::new(Mutex::new(Some(std::mem::take(self))));
        let printer = Arc::clone(&lent);
        let show = PackedFunc::new(move |args| {
            let value = args.get::<Any>(0)?;
            let Ok(mut printer) = printer.try_lock() else {
                bail!("RuntimeError", "the callback of a hook `__ffi_repr__` is in use");
            };
            let Some(printer) = &mut *printer else {
                bail!(
                    "RuntimeError",
                    "the callback of a hook `__ffi_repr__` was called after the hook returned"
                );
            };
            match value.as_object().and_then(|object| Expr::try_from_object(object.clone()).ok()) {
                Some(expr) => printer.expr(&expr, LOOSE),
                None => printer.value(&value, depth + 1),
            }
            Any::new(std::mem::take(&mut printer.out))
        });
        let text = hook.call((object, &show)).and_then(|text| text.get::<String>());
        if let Some(printer) = lent.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *self = printer;
        }
        self.out = before;
        text
    }
}
