//! Sample types with methods, a constructor and writable fields.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use anyfn::reflection::{Field, FieldVisitor};
use anyfn::{
    Any, AnyView, Args, Array, Cell, Object, ObjectRef, PackedFunc, Ref, Result, String, bail, methods,
    register,
};

/// A bank account.
#[derive(Object, Debug)]
#[object(key = "testing.Account")]
pub struct Account {
    /// Name of the owner.
    pub owner: String,
    /// Balance in cents.
    #[field(default = 0)]
    pub cents: AtomicI64,
    /// Arbitrary data of the account.
    #[field(default = None)]
    pub note: Cell<Option<String>>,
    /// Other accounts to which this account refers.
    #[field(default)]
    pub others: Cell<Array<Ref<Account>>>,
}

#[methods]
impl Account {
    /// Opens an account.
    #[init]
    pub fn open(
        owner: String,
        #[default(0)] cents: i64,
        #[default(None)] note: Option<String>,
    ) -> Result<Account> {
        if owner.is_empty() {
            bail!("ValueError", "an account needs an owner");
        }
        let cents = AtomicI64::new(cents);
        Ok(Account { owner, cents, note: Cell::new(note), others: Cell::default() })
    }

    /// Adds cents and returns the new balance.
    pub fn deposit(&self, cents: i64, #[default(1)] times: u32) -> Result<i64> {
        if cents < 0 {
            bail!("ValueError", "cannot deposit {cents} cents");
        }
        let sum = cents * i64::from(times);
        Ok(self.cents.fetch_add(sum, Ordering::Relaxed) + sum)
    }

    /// Moves cents to another account and returns this account.
    pub fn transfer(this: Ref<Self>, to: Ref<Account>, cents: i64) -> Ref<Account> {
        this.cents.fetch_sub(cents, Ordering::Relaxed);
        to.cents.fetch_add(cents, Ordering::Relaxed);
        this
    }

    /// Calls `f` with the balance in cents.
    #[blocking]
    pub fn tell(&self, f: PackedFunc) -> Result<Any> {
        f.call((self.cents.load(Ordering::Relaxed),))
    }

    /// Joins the names of owners.
    pub fn names(accounts: Array<Ref<Account>>, #[default(", ")] separator: &str) -> std::string::String {
        let names: Vec<std::string::String> =
            accounts.iter().map(|account| account.owner.to_string()).collect();
        names.join(separator)
    }

    /// Calls `f` without arguments.
    pub fn run(f: PackedFunc) -> Result<Any> {
        f.call(())
    }
}

/// An account that earns interest.
#[derive(Object, Debug)]
#[object(key = "testing.Savings", parent = Account)]
#[repr(C)]
pub struct Savings {
    base: Account,
    /// Interest rate in percent per year.
    #[field(default = 1.5)]
    pub rate: f64,
}

#[methods]
impl Savings {
    /// Returns the interest of one year in cents.
    #[name = "interest"]
    pub fn gives(&self) -> f64 {
        self.cents.load(Ordering::Relaxed) as f64 * self.rate / 100.0
    }
}

/// Calls a method of an object. The method may be written in any language. Arguments: the object, the name of
/// the method, then the arguments of the method.
#[register("testing.call_method")]
fn call_method(args: Args<'_>) -> Result<Any> {
    let (object, name) = (args.get::<ObjectRef>(0)?, args.get::<&str>(1)?);
    object.call_method(name, &args.as_slice()[2..])
}

/// Returns the value of a field of an object. Arguments: the object, the name of the field.
#[register("testing.get_field")]
fn get_field(args: Args<'_>) -> Result<Any> {
    args.get::<ObjectRef>(0)?.get_field(args.get::<&str>(1)?)
}

/// Sets a field of an object. Arguments: the object, the name of the field, the new value.
#[register("testing.set_field")]
fn set_field(args: Args<'_>) -> Result<()> {
    args.get::<ObjectRef>(0)?.set_field(args.get::<&str>(1)?, args.get::<Any>(2)?)
}

/// Visitor that writes each field as `name: kind = value`.
#[derive(Default)]
struct Text(std::string::String);

impl Text {
    fn add(&mut self, field: Field, word: &str, value: impl std::fmt::Display) -> Result<()> {
        let comma = if self.0.is_empty() { "" } else { ", " };
        let _ = write!(self.0, "{comma}{}: {word} = {value}", field.name());
        Ok(())
    }
}

impl FieldVisitor for Text {
    fn visit_int(&mut self, field: Field, value: i64) -> Result<()> {
        self.add(field, "int", value)
    }
    fn visit_float(&mut self, field: Field, value: f64) -> Result<()> {
        self.add(field, "float", value)
    }
    fn visit_bool(&mut self, field: Field, value: bool) -> Result<()> {
        self.add(field, "bool", value)
    }
    fn visit_str(&mut self, field: Field, value: &String) -> Result<()> {
        self.add(field, "str", &**value)
    }
    fn visit_object(&mut self, field: Field, value: &ObjectRef) -> Result<()> {
        self.add(field, "object", value.type_key())
    }
    fn visit_other(&mut self, field: Field, value: &AnyView<'_>) -> Result<()> {
        self.add(field, "other", value.type_key())
    }
}

/// Returns all fields of an object as a string of the form `name: kind = value, ...`.
#[register("testing.fields_text")]
fn fields_text(args: Args<'_>) -> Result<std::string::String> {
    let mut text = Text::default();
    args.get::<ObjectRef>(0)?.visit_fields(&mut text)?;
    Ok(text.0)
}
