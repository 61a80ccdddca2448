//! Strategic merge patches: merge patches that also merge lists by their keys.
//!
//! Directives: `$patch: replace|delete|merge` in a map or list element, `$retainKeys` in a map,
//! `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>` beside a list.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::objects::fields::JsonObject;
use crate::objects::golang;
use crate::objects::schema::{PatchStrategy, Schema, Struct, StructTypes, Type};
use crate::objects::status::Status;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

pub(super) fn apply(schema: &Schema, object: Value, patch: JsonObject) -> Result<Value, Status> {
    let mut map = match object {
        Value::Object(map) => map,
        _ => JsonObject::new(),
    };
    let merger = Merger {
        types: schema.types(),
    };
    merger.map(EntryTypes::Struct(schema.root()), &mut map, patch)?;
    Ok(Value::Object(map))
}

/// What is known about the entries of a map.
#[derive(Clone, Copy)]
enum EntryTypes<'a> {
    Struct(&'a Struct),
    Entries(&'a Type),
    Unknown,
}

struct Merger<'a> {
    types: &'a StructTypes,
}

impl<'a> Merger<'a> {
    fn shape(&self, ty: Option<&'a Type>) -> EntryTypes<'a> {
        match ty {
            Some(Type::Struct(id)) => EntryTypes::Struct(self.types.get(*id)),
            Some(Type::Map(map)) => EntryTypes::Entries(&map.value),
            _ => EntryTypes::Unknown,
        }
    }

    fn map(
        &self,
        shape: EntryTypes<'a>,
        target: &mut JsonObject,
        mut patch: JsonObject,
    ) -> Result<(), Status> {
        match patch.get(PATCH).map(|directive| directive.as_str()) {
            None => (),
            Some(Some("merge")) => drop(patch.shift_remove(PATCH)),
            Some(Some("replace")) => {
                patch.shift_remove(PATCH);
                *target = patch;
                return Ok(());
            }
            Some(Some("delete")) => {
                target.clear();
                return Ok(());
            }
            Some(_) => return Err(unknown_directive(&patch)),
        }
        if let Some(keys) = patch.shift_remove(RETAIN_KEYS) {
            retain_keys(target, &keys, &patch)?;
        }
        let (beside, ordinary): (JsonObject, JsonObject) = patch
            .into_iter()
            .partition(|(key, _)| key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM_LIST));
        for (key, values) in &beside {
            if let Some(list) = key.strip_prefix(DELETE_FROM_LIST)
                && let (Some(Value::Array(items)), Value::Array(gone)) =
                    (target.get_mut(list), values)
            {
                items.retain(|item| !gone.contains(item));
            }
        }
        for (key, value) in ordinary {
            let order = beside.get(&format!("{SET_ORDER}{key}"));
            self.entry(shape, target, key, value, order)?;
        }
        // An order may come without changes to the list itself.
        for (key, order) in &beside {
            if let Some(list) = key.strip_prefix(SET_ORDER)
                && let (Some(Value::Array(items)), Value::Array(order)) =
                    (target.get_mut(list), order)
            {
                let key = self.merge_key(shape, list);
                let before = items.clone();
                reorder(items, &before, order, key);
            }
        }
        Ok(())
    }

    fn merge_key(&self, shape: EntryTypes<'a>, list: &str) -> Option<&'a str> {
        let EntryTypes::Struct(holder) = shape else {
            return None;
        };
        match &holder.field(list)?.patch {
            Some(PatchStrategy::MergeByKey(key)) => Some(key),
            _ => None,
        }
    }

    fn entry(
        &self,
        shape: EntryTypes<'a>,
        target: &mut JsonObject,
        key: String,
        value: Value,
        order: Option<&Value>,
    ) -> Result<(), Status> {
        let (ty, strategy) = match shape {
            EntryTypes::Struct(holder) => {
                let field = holder.field(&key);
                (field.map(|f| &f.ty), field.and_then(|f| f.patch.as_ref()))
            }
            EntryTypes::Entries(ty) => (Some(ty), None),
            EntryTypes::Unknown => (None, None),
        };
        match value {
            Value::Null => drop(target.shift_remove(&key)),
            Value::Object(patch) if strategy != Some(&PatchStrategy::Replace) => {
                let mut old = match target.get_mut(&key).map(Value::take) {
                    Some(Value::Object(old)) => old,
                    _ => JsonObject::new(),
                };
                self.map(self.shape(ty), &mut old, patch)?;
                target.insert(key, Value::Object(old));
            }
            Value::Array(patch) => {
                let mut old = match target.get_mut(&key).map(Value::take) {
                    Some(Value::Array(old)) => old,
                    _ => Vec::new(),
                };
                let order = match order {
                    Some(Value::Array(order)) => Some(order.as_slice()),
                    _ => None,
                };
                match strategy {
                    Some(PatchStrategy::MergeByKey(merge_key)) => {
                        let item = match ty {
                            Some(Type::List(list)) => Some(&list.item),
                            _ => None,
                        };
                        self.list(self.shape(item), merge_key, &mut old, patch, order)?;
                    }
                    Some(PatchStrategy::MergeAsSet) => merge_set(&mut old, patch, order)?,
                    _ => old = patch,
                }
                target.insert(key, Value::Array(old));
            }
            other => drop(target.insert(key, other)),
        }
        Ok(())
    }

    /// Merges a list of objects by `key`.
    fn list(
        &self,
        shape: EntryTypes<'a>,
        key: &str,
        target: &mut Vec<Value>,
        patch: Vec<Value>,
        order: Option<&[Value]>,
    ) -> Result<(), Status> {
        if !target.iter().chain(&patch).all(Value::is_object) {
            let lists = Value::from(vec![Value::from(target.clone()), Value::from(patch)]);
            let lists = golang::text(&lists);
            return Err(Status::internal(format!(
                "list element types are not identical: {lists}"
            )));
        }
        let mut before = target.clone();
        let mut changed = Vec::new();
        let mut deleted = HashSet::new();
        let mut replace = false;
        for element in patch {
            let Value::Object(element) = element else {
                continue;
            };
            match element.get(PATCH).map(|directive| directive.as_str()) {
                None => changed.push(element),
                Some(Some("replace")) => replace = true,
                Some(Some("delete")) => {
                    let name = element
                        .get(key)
                        .ok_or_else(|| no_merge_key(&element, key))?;
                    deleted.insert(name.to_string());
                }
                Some(Some("merge")) => {
                    return Err(Status::internal(
                        "merging lists cannot yet be specified in the patch",
                    ));
                }
                Some(_) => return Err(unknown_directive(&element)),
            }
        }
        if replace {
            *target = changed.into_iter().map(Value::Object).collect();
            return Ok(());
        }
        target.retain(|item| !deleted.contains(&identity(item, Some(key))));
        let patched: Vec<Value> = changed.iter().cloned().map(Value::Object).collect();
        let mut places = places(target, Some(key));
        for element in changed {
            let name = element
                .get(key)
                .ok_or_else(|| no_merge_key(&element, key))?;
            let place = *places.entry(name.to_string()).or_insert(target.len());
            if place == target.len() {
                target.push(Value::Object(JsonObject::new()));
            }
            if let Value::Object(old) = &mut target[place] {
                self.map(shape, old, element)?;
            }
        }
        if let Some(order) = order {
            check_order(&patched, order, Some(key))?;
            // A patch that deletes and orders finds its new elements at the end already.
            if !deleted.is_empty() {
                before = target.clone();
            }
        }
        reorder(target, &before, order.unwrap_or(&patched), Some(key));
        Ok(())
    }
}

fn retain_keys(target: &mut JsonObject, keys: &Value, patch: &JsonObject) -> Result<(), Status> {
    let invalid = || Status::bad_request("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(invalid)?;
    let listed = |key: &str| keys.iter().any(|listed| listed == key);
    if patch
        .keys()
        .any(|key| !key.starts_with('$') && !listed(key))
    {
        return Err(invalid());
    }
    target.retain(|key, _| listed(key));
    Ok(())
}

/// Merges a list of plain values as a set.
fn merge_set(
    target: &mut Vec<Value>,
    patch: Vec<Value>,
    order: Option<&[Value]>,
) -> Result<(), Status> {
    let before = target.clone();
    let mut known: HashSet<String> = target.iter().map(Value::to_string).collect();
    target.extend(
        patch
            .iter()
            .filter(|value| known.insert(value.to_string()))
            .cloned(),
    );
    if let Some(order) = order {
        check_order(&patch, order, None)?;
    }
    reorder(target, &before, order.unwrap_or(&patch), None);
    Ok(())
}

/// What identifies an element: the value of the merge key, or the value itself.
fn identity(element: &Value, key: Option<&str>) -> String {
    match key {
        Some(key) => element.get(key).unwrap_or(&Value::Null).to_string(),
        None => element.to_string(),
    }
}

/// Where each element stands; the first of two with the same identity counts.
fn places(list: &[Value], key: Option<&str>) -> HashMap<String, usize> {
    let elements = list.iter().enumerate().rev();
    elements
        .map(|(place, element)| (identity(element, key), place))
        .collect()
}

/// Elements named by `order` come in that order; the others keep their place before those that they stood
/// before. What was not there before comes first.
fn reorder(items: &mut Vec<Value>, before: &[Value], order: &[Value], key: Option<&str>) {
    let before = places(before, key);
    let turns = places(order, key);
    let mut ordered: Vec<Option<Value>> = vec![None; order.len()];
    let mut others = Vec::new();
    for element in items.drain(..) {
        let identity = identity(&element, key);
        match turns.get(&identity) {
            Some(turn) => ordered[*turn] = Some(element),
            None => others.push((before.get(&identity).copied(), element)),
        }
    }
    let mut others = others.into_iter().peekable();
    for (name, element) in order.iter().zip(ordered) {
        if let Some(place) = before.get(&identity(name, key)) {
            while let Some((_, other)) = others.next_if(|(other, _)| *other < Some(*place)) {
                items.push(other);
            }
        }
        items.extend(element);
    }
    items.extend(others.map(|(_, element)| element));
}

/// The elements of a patch must stand in the order that it asks for.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Status> {
    let mut rest = order.iter();
    let matches = patch.iter().all(|element| {
        let element = identity(element, key);
        rest.any(|name| identity(name, key) == element)
    });
    if matches {
        return Ok(());
    }
    let [patch, order] = [patch, order].map(|list| golang::text(&Value::from(list.to_vec())));
    Err(Status::internal(format!(
        "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
    )))
}

fn no_merge_key(element: &JsonObject, key: &str) -> Status {
    let element = golang::text(&Value::Object(element.clone()));
    Status::internal(format!(
        "map: {element} does not contain declared merge key: {key}"
    ))
}

fn unknown_directive(map: &JsonObject) -> Status {
    let directive = golang::text(map.get(PATCH).unwrap_or(&Value::Null));
    let map = golang::text(&Value::Object(map.clone()));
    Status::internal(format!("unknown patch type: {directive} in map: {map}"))
}

#[cfg(test)]
mod tests;
