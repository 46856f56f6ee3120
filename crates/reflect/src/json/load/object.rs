//! Loading of objects whose nodes list their fields by name.

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::{Any, DType, Error, ObjectRef, Result};

use super::super::UnknownFields;
use super::super::inline::Inline;
use super::super::kept::{self, KeptField};
use super::super::save::with_place;
use super::super::tape::{At, TokenKind};
use super::{FieldPositions, LoadedField, Loader, Node, Other, Part};

impl Loader<'_> {
    /// Finds the fields of an object in the data of its node and records the token of each value in `places`.
    pub(super) fn match_fields(&mut self, node: Node) -> Result<()> {
        let tape = self.tape;
        let data = self.data(node, TokenKind::Object, "Map<Any, Any>")?;
        let mut places = core::mem::take(&mut self.places);
        let count = self.plans[node.plan].fields.len();
        places.known.clear();
        places.known.resize(count, (0, None));
        places.unknown.clear();
        let kept = self.tag.as_ref().and_then(|tag| tag.kept.get(&node.index)).copied();
        let mut expected = 0;
        for (name, value) in tape.pairs(data) {
            let fields = &self.plans[node.plan].fields;
            let text = tape.bytes(name);
            // As a rule, fields are in the order of the type.
            let is_field = |loaded: &LoadedField| loaded.field.name().as_bytes() == text;
            let found = match fields.get(expected) {
                Some(loaded) if is_field(loaded) => Some(expected),
                _ => fields.iter().position(is_field),
            };
            let (place, inline) = match found {
                Some(place) => (place, fields[place].inline),
                None => match self.other(node, name)? {
                    Other::Alias(place, inline) => (place, inline),
                    Other::Unknown => {
                        self.stranger(node, name, value, &mut places)?;
                        continue;
                    }
                },
            };
            // The writer did not know the field, and recorded its inline kind for this object only.
            let inline = kept.and_then(|kept| self.kept_inline(kept, name)).or(inline);
            expected = place + 1;
            if places.known[place].0 != 0 {
                return Err(self.fail("duplicate field", name));
            }
            places.known[place] = (value, inline);
        }
        self.places = places;
        Ok(())
    }

    /// Resolves a name in the file that no field of the type has. The name is either a former name of a field
    /// or the name of an unknown field.
    #[cold]
    fn other(&mut self, node: Node, name: At) -> Result<Other> {
        let Some(name) = self.tape.str(name) else { return Ok(Other::Unknown) };
        let plan = &self.plans[node.plan];
        if let Some(other) = plan.others.get(name) {
            return Ok(*other);
        }
        let alias = kept::field_of(plan.info, name);
        let place = alias.and_then(|alias| plan.fields.iter().position(|loaded| loaded.field.name() == alias));
        let other = match place {
            Some(place) => Other::Alias(place, self.inline_of(&plan.told, name, plan.fields[place].field)),
            None => Other::Unknown,
        };
        self.plans[node.plan].others.insert(StdString::from(name), other);
        Ok(other)
    }

    /// Handles an unknown field, that is, one that the type does not have. Depending on the options and the
    /// type, records it in `places`, discards it, or returns an error.
    #[cold]
    fn stranger(&self, node: Node, name: At, value: At, places: &mut FieldPositions) -> Result<()> {
        let (tape, plan) = (self.tape, &self.plans[node.plan]);
        match plan.unknown {
            UnknownFields::Keep => {}
            UnknownFields::Drop => return Ok(()),
            UnknownFields::Refuse => {
                let shown = anyfn::__private::shorten(tape.str(name).unwrap_or("")).into_owned();
                let names = plan.fields.iter().map(|loaded| loaded.field.name());
                let near = anyfn::__private::nearest(&shown, names);
                let hint = near.map_or_else(StdString::new, |near| format!("; did you mean `{near}`?"));
                let message = format!("Type `{}` has no field `{shown}`{hint}", plan.info.key());
                return Err(tape.error("TypeError", &message, name));
            }
        }
        let inline = match &self.tag {
            Some(tag) => {
                let told = tag.kept.get(&node.index).and_then(|kept| self.kept_inline(*kept, name));
                told.or_else(|| plan.told.get(tape.bytes(name)).copied())
            }
            // Without a record, a number may be an int or the index of a node, so it is not kept.
            None => match tape.kind(value) {
                TokenKind::Null => Some(Inline::None),
                TokenKind::True | TokenKind::False => Some(Inline::Bool),
                TokenKind::Float => Some(Inline::Float),
                _ if tape.str(value).is_some_and(|name| name.parse::<DType>().is_ok()) => Some(Inline::DType),
                _ => return Ok(()),
            },
        };
        places.unknown.push((name, value, inline));
        Ok(())
    }

    /// Returns the inline type that `kept` records for the field `name`; `None` if `kept` does not
    /// contain the field. `kept` is the token of a JSON object from the file's metadata. It lists
    /// the inline fields of one node that the type did not have in the writer's process.
    #[cold]
    fn kept_inline(&self, kept: At, name: At) -> Option<Inline> {
        let kind = self.tape.get(kept, self.tape.str(name)?)?;
        Inline::of_key(self.tape.str(kind)?)
    }

    fn field_value(&self, value: At, inline: Option<Inline>) -> Result<Any> {
        match inline {
            Some(inline) => self.inline(value, inline),
            None => self.child(value),
        }
    }

    /// Creates the object of a node and sets the fields that the step `part` must set. In the second of two
    /// steps, the object already exists and only its fields are set.
    pub(super) fn object(&mut self, node: Node, part: Part) -> Result<Any> {
        self.match_fields(node)?;
        let (tape, plan) = (self.tape, &self.plans[node.plan]);
        let made = match part {
            Part::Second => self.made[node.index].clone().into_object(),
            _ => {
                let made = plan.info.make();
                Some(made.map_err(|error| with_place(&error, &tape.place(node.at)))?)
            }
        };
        let Some(object) = made else { return Ok(Any::NONE) };
        for ((value, inline), loaded) in self.places.known.iter().zip(&plan.fields) {
            if part != Part::All && !part.has(loaded.late) {
                continue;
            }
            let value = match *value {
                0 => match loaded.field.default()? {
                    Some(default) => default,
                    None => return Err(self.missing(node, loaded)),
                },
                value => self.field_value(value, *inline)?,
            };
            // SAFETY: the field belongs to the object's type. A field that is not writable is set in the first part,
            // before the object is shared.
            let set = unsafe { loaded.field.set_unchecked(&object, &value.as_view()) };
            set.map_err(|error| self.not_set(&error, node, loaded))?;
        }
        if part.second() && !self.places.unknown.is_empty() {
            self.keep(&object)?;
        }
        Ok(if part == Part::Second { Any::NONE } else { object.into() })
    }

    #[cold]
    fn missing(&self, node: Node, loaded: &LoadedField) -> Error {
        let (field, key) = (loaded.field.name(), self.plans[node.plan].info.key());
        let data = node.data.unwrap_or(node.at);
        self.tape.error("TypeError", &format!("Required field `{field}` not set in type `{key}`"), data)
    }

    #[cold]
    fn not_set(&self, error: &Error, node: Node, loaded: &LoadedField) -> Error {
        let data = node.data.unwrap_or(node.at);
        let at = self.tape.get(data, loaded.field.name()).unwrap_or(data);
        with_place(error, &self.tape.place(at))
    }

    #[cold]
    fn keep(&self, object: &ObjectRef) -> Result<()> {
        let mut fields: Vec<KeptField> = Vec::with_capacity(self.places.unknown.len());
        for (name, value, inline) in &self.places.unknown {
            let value = self.field_value(*value, *inline)?;
            let name = StdString::from(self.tape.str(*name).unwrap_or(""));
            fields.push(KeptField { name, inline: *inline, value });
        }
        kept::keep(object, fields)
    }
}
