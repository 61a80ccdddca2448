//! Field ownership: `metadata.managedFields`, and server-side apply.
//!
//! The manager of a plain write becomes the only owner of the fields it changes. An applied configuration owns
//! the fields it contains, and may not change fields of other owners unless it is forced.

mod check;
mod compare;
mod entry;
mod merge;
mod set;

use serde_json::Value;

use self::compare::FieldChanges;
use self::entry::{ManagedFieldsEntry, Operation};
use self::set::{FieldSet, field_element};
use crate::objects::decode;
use crate::objects::schema::Schema;
use crate::objects::status::{Cause, Details, Status};

/// Fields of `metadata` that only the server sets, as elements of a path.
const NOT_RECORDED: [&str; 9] = [
    "f:clusterName",
    "f:creationTimestamp",
    "f:generation",
    "f:managedFields",
    "f:name",
    "f:namespace",
    "f:resourceVersion",
    "f:selfLink",
    "f:uid",
];

/// The manager of a write, and the path it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// Empty on the main path.
    pub(crate) subresource: &'a str,
    /// The kind has a `status` subresource, so that its main path neither writes nor owns `status`.
    pub(crate) has_status: bool,
    pub(crate) now: jiff::Timestamp,
}

/// Records a plain write in `new.metadata.managedFields`.
///
/// `new` is decoded and defaulted. On create (`old` is `None`) call it before `Rules::prepare`, for
/// what strategy and admission add has no owner; on update call it after `Rules::prepare`, so
/// that what the path may not change counts as unchanged, and before `Rules::admit`. A write through
/// `scale` is recorded on the scaled object.
///
/// An object that has no record gets none by an update: it was cleared, or holds nothing to own.
pub(crate) fn update(schema: &Schema, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let given = take_managed_fields(new);
    let Some((mut entries, raw)) = recorded(old, given, writer) else {
        return;
    };
    let zero;
    let before = match old {
        Some(old) => old,
        None => {
            zero = empty_object(schema);
            &zero
        }
    };
    let mut changes = compare::compare(schema, before, new);
    strip(&mut changes.changed, writer);
    strip(&mut changes.removed, writer);
    let unchanged = changes == FieldChanges::default();
    if unchanged || writer.subresource == "scale" && !entries.iter().any(owns_replicas) {
        set_managed_fields(new, raw);
        return;
    }
    let mine = |entry: &ManagedFieldsEntry| {
        entry.operation == Operation::Update
            && entry.manager == writer.manager
            && entry.api_version == writer.api_version
            && entry.subresource == writer.subresource
    };
    for entry in &mut entries {
        entry.fields.subtract(&changes.changed);
        entry.fields.subtract(&changes.removed);
    }
    if !changes.changed.is_empty() {
        let entry = match entries.iter_mut().find(|entry| mine(entry)) {
            Some(entry) => entry,
            None => {
                entries.push(new_entry(Operation::Update, writer));
                let last = entries.len() - 1;
                &mut entries[last]
            }
        };
        entry.fields.unite(changes.changed);
        // A scale is another object, and its time is not that of the scaled one.
        if writer.subresource != "scale" {
            entry.time = time_text(writer);
        }
    }
    set_managed_fields(new, entry::write(entries));
}

/// Merges an applied configuration into the stored object. The result is normalised, but neither
/// defaulted nor prepared; its `managedFields` are final, so `update` must not follow.
pub(crate) fn apply(
    schema: &Schema,
    old: Option<&Value>,
    applied: Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    check::check(schema, &applied)?;
    let applied = within_subresource(schema, applied, writer);
    let mut owned = compare::applied_fields(schema, &applied);
    strip(&mut owned, writer);
    let mut entries = match old {
        None => Vec::new(),
        Some(old) => entries_before_apply(schema, old, writer),
    };
    let mine = |entry: &ManagedFieldsEntry| {
        entry.operation == Operation::Apply
            && entry.manager == writer.manager
            && entry.subresource == writer.subresource
    };
    let previous = entries
        .iter()
        .position(mine)
        .map(|index| entries.remove(index));

    let before = old.cloned().unwrap_or_else(|| empty_object(schema));
    let mut object = merge::merge(schema, before.clone(), &applied);
    if let Some(previous) = &previous {
        let_go(schema, &mut object, &previous.fields, &owned, &entries);
    }

    // As the real server, before the object has its canonical form.
    let touched = old != Some(&object);
    let mut changes = compare::compare(schema, &before, &object);
    strip(&mut changes.changed, writer);
    if !force {
        refuse_conflicts(&entries, &changes.changed)?;
    }
    for entry in &mut entries {
        entry.fields.subtract(&changes.changed);
        entry.fields.subtract(&changes.removed);
    }
    decode::try_normalize(schema, &mut object).map_err(|why| {
        let text = |field: &str| applied[field].as_str().unwrap_or_default();
        let kind = decode::group_version_kind(text("apiVersion"), text("kind"));
        let why =
            format!(" to proper version: unable to convert unstructured object to {kind}: {why}");
        check::failed("convert new object", &applied, &why)
    })?;

    let mut entry = new_entry(Operation::Apply, writer);
    entry.fields = owned;
    // Applying values that the object already has does not change the time.
    entry.time = match previous {
        _ if touched => time_text(writer),
        Some(previous) => previous.time,
        None => String::new(),
    };
    entries.push(entry);
    take_managed_fields(&mut object);
    set_managed_fields(&mut object, entry::write(entries));
    Ok(object)
}

/// Removes the fields that were applied before and are not now, unless another manager owns them.
fn let_go(
    schema: &Schema,
    object: &mut Value,
    previous: &FieldSet,
    owned: &FieldSet,
    others: &[ManagedFieldsEntry],
) {
    let mut gone = previous.clone();
    gone.subtract(owned);
    let mut kept = owned.clone();
    for entry in others {
        kept.unite(entry.fields.clone());
    }
    // The name, at least, is always there.
    kept.insert("f:metadata");
    merge::prune(schema, object, &gone, &kept);
}

/// The entries that a plain write starts from, and the same as they were written. `None` means that
/// nothing is to be recorded.
fn recorded(
    old: Option<&Value>,
    given: Option<Value>,
    writer: &Writer<'_>,
) -> Option<(Vec<ManagedFieldsEntry>, Value)> {
    let stored = old.map(|old| &old["metadata"]["managedFields"]);
    // The main path may set the record, or clear it by an empty list or an empty entry.
    let given = given.filter(|_| writer.subresource.is_empty());
    if old.is_some() && given.as_ref().is_some_and(is_reset) {
        return None;
    }
    let set_by_client = given.and_then(|given| Some((entry::read(&given)?, given)));
    let (entries, raw) = match (set_by_client, stored) {
        (Some((entries, raw)), _) if !entries.is_empty() => (entries, raw),
        (_, Some(stored)) => (entry::read(stored).unwrap_or_default(), stored.clone()),
        (_, None) => (Vec::new(), Value::Null),
    };
    (old.is_none() || !entries.is_empty()).then_some((entries, raw))
}

fn is_reset(managed_fields: &Value) -> bool {
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// An object without a record was written before the first apply: its present state has one owner.
fn entries_before_apply(
    schema: &Schema,
    old: &Value,
    writer: &Writer<'_>,
) -> Vec<ManagedFieldsEntry> {
    let entries = entry::read(&old["metadata"]["managedFields"]).unwrap_or_default();
    if !entries.is_empty() {
        return entries;
    }
    let mut before = new_entry(Operation::Update, writer);
    before.manager = "before-first-apply".to_owned();
    before.subresource = String::new();
    before.time = time_text(writer);
    before.fields = compare::compare(schema, &empty_object(schema), old).changed;
    strip(&mut before.fields, writer);
    vec![before]
}

fn new_entry(operation: Operation, writer: &Writer<'_>) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        operation,
        time: String::new(),
        manager: writer.manager.to_owned(),
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
        fields: FieldSet::default(),
    }
}

fn time_text(writer: &Writer<'_>) -> String {
    let time = decode::seconds(writer.now);
    time.as_str().unwrap_or_default().to_owned()
}

/// What an object is compared with before it exists: structs that are always there are not created.
fn empty_object(schema: &Schema) -> Value {
    if schema.is_typed() {
        decode::zero(schema)
    } else {
        Value::Object(serde_json::Map::new())
    }
}

fn owns_replicas(entry: &ManagedFieldsEntry) -> bool {
    let spec = entry.fields.get("f:spec");
    spec.is_some_and(|spec| spec.below.get("f:replicas").is_some())
}

/// Removes the fields that have no owner, and those that this path does not write.
fn strip(fields: &mut FieldSet, writer: &Writer<'_>) {
    fields.remove("f:apiVersion");
    fields.remove("f:kind");
    fields.change("f:metadata", |metadata| {
        metadata.member = false;
        for name in NOT_RECORDED {
            metadata.below.remove(name);
        }
    });
    if writer.subresource.is_empty() && writer.has_status {
        fields.remove("f:status");
    }
}

/// The fields that an applied configuration may set through a subresource.
fn within_subresource(schema: &Schema, mut applied: Value, writer: &Writer<'_>) -> Value {
    if writer.subresource != "status" {
        return applied;
    }
    if let Value::Object(map) = &mut applied {
        map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        // A custom object's metadata is not written through its status.
        if let Some(Value::Object(metadata)) = map.get_mut("metadata")
            && !schema.is_typed()
        {
            metadata.retain(|key, _| NOT_RECORDED.contains(&field_element(key).as_str()));
        }
    }
    applied
}

fn refuse_conflicts(entries: &[ManagedFieldsEntry], changed: &FieldSet) -> Result<(), Status> {
    let mut owners: Vec<&ManagedFieldsEntry> = entries.iter().collect();
    owners.sort_by_key(|entry| entry.rank());
    let conflicts: Vec<(String, Vec<String>)> = owners
        .into_iter()
        .map(|entry| (entry.display(), entry.fields.common(changed).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    let causes: Vec<Cause> = conflicts
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| Cause {
            reason: "FieldManagerConflict".into(),
            message: format!("conflict with {manager}"),
            field: path.clone(),
        })
        .collect();
    let text = match causes.as_slice() {
        [] => return Ok(()),
        [only] => format!("1 conflict: {}: {}", only.message, only.field),
        _ => {
            let managers: Vec<String> = conflicts
                .iter()
                .map(|(manager, paths)| {
                    format!("conflicts with {manager}:\n- {}", paths.join("\n- "))
                })
                .collect();
            format!("{} conflicts: {}", causes.len(), managers.join("\n"))
        }
    };
    let details = Details {
        causes,
        ..Details::default()
    };
    Err(Status {
        details: Some(details),
        ..Status::new(409, "Conflict", format!("Apply failed with {text}"))
    })
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.shift_remove("managedFields")
}

fn set_managed_fields(object: &mut Value, managed_fields: Value) {
    let empty = managed_fields.as_array().is_none_or(Vec::is_empty);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && !empty
    {
        metadata.insert("managedFields".to_owned(), managed_fields);
    }
}

#[cfg(test)]
mod tests;
