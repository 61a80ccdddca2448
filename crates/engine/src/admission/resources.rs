//! Quantities of a container, as they are written.

use serde_json::{Map, Value};

use super::fields::name;
use crate::model::{Quantity, ReclaimedResource, TierAccount};

/// More than any machine has: a million million cores, or a pebibyte. Sums over a node cannot overflow below it.
pub(super) const MOST: i64 = 1_000_000_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceField {
    Requests,
    Limits,
}

impl ResourceField {
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// A resource that tiers have under names of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Native {
    Cpu,
    Memory,
}

impl Native {
    pub(super) const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    pub(super) fn in_account(self, account: TierAccount) -> &'static str {
        match self {
            Self::Cpu => account.cpu(),
            Self::Memory => account.memory(),
        }
    }

    /// The name under which a list has the tier resource: reclaimed resources have two spellings.
    pub(super) fn spelling(self, account: TierAccount, list: &Map<String, Value>) -> &str {
        let current = self.in_account(account);
        let same = |name: &&String| match account {
            TierAccount::Reclaimed => {
                ReclaimedResource::parse(name).is_some()
                    && ReclaimedResource::parse(name) == ReclaimedResource::parse(current)
            }
            _ => name.as_str() == current,
        };
        list.keys().find(same).map_or(current, String::as_str)
    }
}

/// A quantity and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenQuantity {
    pub(super) text: String,
    pub(super) amount: Quantity,
}

impl WrittenQuantity {
    pub(super) fn is_positive(&self) -> bool {
        self.amount > Quantity::ZERO
    }

    /// This amount as a tier resource: cpu in thousandths of a core, memory in bytes.
    pub(super) fn to_tier(&self, native: Native) -> Self {
        match native {
            Native::Cpu => {
                let milli = self.amount.milli();
                Self {
                    text: milli.to_string(),
                    amount: Quantity::from_units(milli),
                }
            }
            Native::Memory => self.clone(),
        }
    }

    /// The native amount of a tier resource.
    pub(super) fn to_native(&self, native: Native) -> Self {
        match native {
            Native::Cpu => {
                let milli = self.amount.units();
                let text = match milli % 1000 {
                    0 => (milli / 1000).to_string(),
                    _ => format!("{milli}m"),
                };
                Self {
                    text,
                    amount: Quantity::from_milli(milli),
                }
            }
            Native::Memory => self.clone(),
        }
    }
}

/// A quantity of a list. A number counts as its text, as for the API server.
pub(super) fn read(
    container: &Value,
    kind: ResourceField,
    resource: &str,
) -> Result<Option<WrittenQuantity>, String> {
    let text = match &container["resources"][kind.field()][resource] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let place = || format!("container {}: {}.{resource}", name(container), kind.field());
    let amount = Quantity::parse(&text).map_err(|error| format!("{}: {error}", place()))?;
    if amount < Quantity::ZERO {
        return Err(format!(
            "{} is {text}: a quantity must not be negative",
            place()
        ));
    }
    Ok(Some(WrittenQuantity { text, amount }))
}

/// A tier resource that every component can count: whole, and not larger than any machine.
pub(super) fn check_tier(
    container: &Value,
    kind: ResourceField,
    resource: &str,
    written: &WrittenQuantity,
) -> Result<(), String> {
    let place = format!("container {}: {}.{resource}", name(container), kind.field());
    let WrittenQuantity { text, amount } = written;
    if *amount > Quantity::from_units(MOST) {
        return Err(format!("{place} is {text}: the most is {MOST}"));
    }
    if Quantity::from_units(amount.units()) != *amount {
        let unit = match resource.ends_with("cpu") {
            true => "thousandths of a core, so that 1500 is one and a half cores",
            false => "bytes",
        };
        return Err(format!("{place} is {text}: use a whole number of {unit}"));
    }
    Ok(())
}

/// Writes or removes a quantity. The lists that are missing are made, and one that becomes empty is removed.
pub(super) fn set(
    container: &mut Value,
    kind: ResourceField,
    resource: &str,
    quantity: Option<Value>,
) {
    let Some(quantity) = quantity else {
        let Some(lists) = container
            .get_mut("resources")
            .and_then(Value::as_object_mut)
        else {
            return;
        };
        if let Some(list) = lists.get_mut(kind.field()).and_then(Value::as_object_mut) {
            list.shift_remove(resource);
            if list.is_empty() {
                lists.shift_remove(kind.field());
            }
        }
        return;
    };
    if let Some(container) = container.as_object_mut() {
        let lists = object_in(container, "resources");
        object_in(lists, kind.field()).insert(resource.to_owned(), quantity);
    }
}

/// The object at this key, which is made if it is missing. The caller has checked that it is nothing else.
pub(super) fn object_in<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    let value = parent.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}
