//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value};

use super::set::FieldSet;

/// Update entries beyond this number are joined, the oldest first.
const MAX_UPDATE_ENTRIES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// One manager and the fields that it owns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ManagedFieldsEntry {
    pub(super) operation: Operation,
    /// RFC 3339 with seconds; empty when the writer never changed anything. Texts of UTC sort by time.
    pub(super) time: String,
    pub(super) manager: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) fields: FieldSet,
}

impl ManagedFieldsEntry {
    fn from_json(entry: &Value) -> Option<Self> {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if entry["fieldsType"] != "FieldsV1" {
            return None;
        }
        Some(Self {
            operation,
            time: text("time"),
            manager: text("manager"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            fields: FieldSet::from_json(entry.get("fieldsV1")?)?,
        })
    }

    fn into_json(self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut out = Map::new();
        for (field, text) in [
            ("manager", self.manager.as_str()),
            ("operation", operation),
            ("apiVersion", self.api_version.as_str()),
            ("time", self.time.as_str()),
            ("fieldsType", "FieldsV1"),
        ] {
            if !text.is_empty() {
                out.insert(field.to_owned(), Value::from(text));
            }
        }
        out.insert("fieldsV1".to_owned(), self.fields.into_json());
        if !self.subresource.is_empty() {
            out.insert(
                "subresource".to_owned(),
                Value::from(self.subresource.as_str()),
            );
        }
        Value::Object(out)
    }

    /// The order in which conflicts name managers.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let main_path = self.subresource.is_empty();
        let (manager, subresource) = (self.manager.clone(), self.subresource.clone());
        (manager, self.operation, main_path, subresource)
    }

    /// How a conflict names this manager.
    pub(super) fn display(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// All entries, or `None` if one of them is invalid.
pub(super) fn read(managed_fields: &Value) -> Option<Vec<ManagedFieldsEntry>> {
    managed_fields
        .as_array()?
        .iter()
        .map(ManagedFieldsEntry::from_json)
        .collect()
}

/// In the order of the real server: applied before updated, old before new.
pub(super) fn write(mut entries: Vec<ManagedFieldsEntry>) -> Value {
    entries.retain(|entry| !entry.fields.is_empty());
    sort(&mut entries);
    while entries
        .iter()
        .filter(|e| e.operation == Operation::Update)
        .count()
        > MAX_UPDATE_ENTRIES
    {
        if !forget_oldest(&mut entries) {
            break;
        }
    }
    Value::Array(
        entries
            .into_iter()
            .map(ManagedFieldsEntry::into_json)
            .collect(),
    )
}

fn sort(entries: &mut [ManagedFieldsEntry]) {
    entries.sort_by(|a, b| {
        let key = |e: &ManagedFieldsEntry| (e.operation, e.time.clone(), e.manager.clone());
        let rest = |e: &ManagedFieldsEntry| (e.api_version.clone(), e.subresource.clone());
        key(a).cmp(&key(b)).then_with(|| rest(a).cmp(&rest(b)))
    });
}

/// Joins the two oldest updates with the same version of the API.
fn forget_oldest(entries: &mut Vec<ManagedFieldsEntry>) -> bool {
    for first in 0..entries.len() {
        if entries[first].operation != Operation::Update {
            continue;
        }
        let version = entries[first].api_version.clone();
        let same = |entry: &ManagedFieldsEntry| entry.api_version == version;
        if let Some(offset) = entries[first + 1..].iter().position(same) {
            let second = entries.remove(first + 1 + offset);
            let ancient = &mut entries[first];
            ancient.manager = "ancient-changes".to_owned();
            ancient.subresource = String::new();
            ancient.time = second.time;
            ancient.fields.unite(second.fields);
            sort(entries);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "v1",
            "time": time, "fieldsType": "FieldsV1", "fieldsV1": {field: {}}});
        if time.is_empty() {
            entry.as_object_mut().unwrap().shift_remove("time");
        }
        entry
    }

    fn managers(entries: &Value) -> Vec<&str> {
        let entries = entries.as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["manager"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn applied_come_before_updated_and_old_before_new() {
        let entries = json!([
            entry("u", "Update", "2024-01-01T00:00:01Z", "f:a"),
            entry("late", "Apply", "2024-01-01T00:00:02Z", "f:b"),
            entry("b", "Apply", "2024-01-01T00:00:01Z", "f:b"),
            entry("a", "Apply", "2024-01-01T00:00:01Z", "f:b"),
            entry("shares", "Apply", "", "f:b"),
        ]);
        let written = write(read(&entries).unwrap());
        assert_eq!(managers(&written), ["shares", "a", "b", "late", "u"]);
        assert_eq!(written[4], entries[0]);
    }

    #[test]
    fn old_updates_are_forgotten() {
        let update = |i: usize| {
            entry(
                &format!("u{i:02}"),
                "Update",
                "2024-01-01T00:00:00Z",
                &format!("f:{i}"),
            )
        };
        let entries: Value = (0..12).map(update).collect();
        let written = write(read(&entries).unwrap());
        assert_eq!(
            managers(&written),
            [
                "ancient-changes",
                "u03",
                "u04",
                "u05",
                "u06",
                "u07",
                "u08",
                "u09",
                "u10",
                "u11"
            ]
        );
        assert_eq!(
            written[0]["fieldsV1"],
            json!({"f:0": {}, "f:1": {}, "f:2": {}})
        );
    }

    #[test]
    fn invalid_entries_are_refused() {
        for bad in [
            json!(null),
            json!([{}]),
            json!([{"operation": "Foo", "fieldsType": "FieldsV1", "fieldsV1": {}}]),
            json!([{"operation": "Update", "fieldsType": "Foo", "fieldsV1": {}}]),
            json!([{"operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}]),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }
}
