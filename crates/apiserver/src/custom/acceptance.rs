//! Whether a definition gets the names it requests, and the conditions that follow.

use serde_json::{Value, json};

use crate::objects::fields::{JsonObject, at, is_empty, items, put, text};

pub(super) fn is_established(definition: &Value) -> bool {
    condition(definition, "Established") == Some("True")
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    let mut all = items(definition, "status.conditions").iter();
    all.find(|c| text(c, "type") == kind)
        .map(|c| text(c, "status"))
}

/// The status that `definition` should have among `all` definitions; `None` when it has it.
pub(crate) fn judge<'a>(
    definition: &Value,
    all: impl Iterator<Item = &'a Value>,
    now: &str,
) -> Option<Value> {
    if !at(definition, "metadata.deletionTimestamp").is_null() {
        return None;
    }
    let taken = TakenNames::by_others(definition, all);
    let (names, conflict) = accepted_names(definition, &taken);
    let mut status = at(definition, "status").clone();
    let fields = status.as_object_mut()?;
    fields.insert("acceptedNames".to_owned(), Value::Object(names));
    let accepted = conflict.is_none();
    let (reason, message) = match &conflict {
        None => ("NoConflicts", "no conflicts found".to_owned()),
        Some((part, name)) => (*part, format!("{name:?} is already in use")),
    };
    set_condition(fields, "NamesAccepted", accepted, reason, &message, now);
    // Once established it stays so: clients already use it.
    if accepted {
        let message = "the initial names have been accepted";
        set_condition(
            fields,
            "Established",
            true,
            "InitialNamesAccepted",
            message,
            now,
        );
    } else if !is_established(definition) {
        let message = "not all names are accepted";
        set_condition(fields, "Established", false, "NotAccepted", message, now);
    }
    (status != *at(definition, "status")).then_some(status)
}

/// Names that other definitions of the group have.
struct TakenNames {
    resources: Vec<String>,
    kinds: Vec<String>,
}

impl TakenNames {
    fn by_others<'a>(definition: &Value, all: impl Iterator<Item = &'a Value>) -> Self {
        let mut taken = Self {
            resources: Vec::new(),
            kinds: Vec::new(),
        };
        let (group, name) = (
            text(definition, "spec.group"),
            text(definition, "metadata.name"),
        );
        for other in all {
            if text(other, "spec.group") != group || text(other, "metadata.name") == name {
                continue;
            }
            let names = at(other, "status.acceptedNames");
            let short = items(names, "shortNames").iter().filter_map(Value::as_str);
            let own = [text(names, "plural"), text(names, "singular")];
            taken
                .resources
                .extend(own.into_iter().chain(short).map(str::to_owned));
            let kinds = [text(names, "kind"), text(names, "listKind")];
            taken.kinds.extend(kinds.map(str::to_owned));
        }
        taken
    }
}

/// The requested names that are free, and the last conflict: its reason and the name.
fn accepted_names(
    definition: &Value,
    taken: &TakenNames,
) -> (JsonObject, Option<(&'static str, String)>) {
    let wished = at(definition, "spec.names");
    let current = at(definition, "status.acceptedNames");
    let mut names = JsonObject::new();
    let mut conflict = None;
    for (key, taken, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        let value = at(wished, key);
        let single = value.as_str().into_iter();
        let mut all = single.chain(items(wished, key).iter().filter_map(Value::as_str));
        match all.find(|name| taken.iter().any(|taken| taken == name)) {
            None => put(
                &mut names,
                key,
                Some(value).filter(|value| !is_empty(value)),
            ),
            Some(name) => {
                conflict = Some((reason, name.to_owned()));
                // A name that it already has stays.
                let kept = current.get(key).filter(|value| !is_empty(value));
                put(&mut names, key, kept);
            }
        }
    }
    put(
        &mut names,
        "categories",
        wished.get("categories").filter(|c| !is_empty(c)),
    );
    for always in ["plural", "kind"] {
        names.entry(always).or_insert_with(|| json!(""));
    }
    (names, conflict)
}

fn set_condition(
    status: &mut JsonObject,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: &str,
) {
    let word = if holds { "True" } else { "False" };
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let position = conditions.iter().position(|c| text(c, "type") == kind);
    let since = position
        .map(|i| &conditions[i])
        .filter(|before| text(before, "status") == word)
        .map_or(json!(now), |before| {
            at(before, "lastTransitionTime").clone()
        });
    let condition = json!({
        "type": kind, "status": word, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match position {
        Some(i) => conditions[i] = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        let mut definition = json!({
            "metadata": {"name": format!("{plural}.x.io")},
            "spec": {"group": "x.io", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]},
        });
        if !short.is_empty() {
            definition["spec"]["names"]["shortNames"] = json!(short);
        }
        definition
    }

    fn reason(status: &Value, kind: &str) -> (String, String) {
        let found = items(status, "conditions")
            .iter()
            .find(|c| text(c, "type") == kind)
            .unwrap();
        (
            text(found, "reason").to_owned(),
            text(found, "message").to_owned(),
        )
    }

    #[test]
    fn free_names_are_accepted_at_once() {
        let mut first = definition("foos", "Foo", &["f"]);
        let status = judge(&first, std::iter::empty(), "t").unwrap();
        assert_eq!(status["acceptedNames"], first["spec"]["names"]);
        assert_eq!(reason(&status, "Established").0, "InitialNamesAccepted");
        first["status"] = status;
        assert!(is_established(&first));
        assert_eq!(
            judge(&first, std::iter::empty(), "later"),
            None,
            "nothing new to say"
        );
    }

    #[test]
    fn a_taken_name_is_left_out_and_named() {
        let mut first = definition("foos", "Foo", &[]);
        first["status"] = judge(&first, std::iter::empty(), "t").unwrap();
        for (case, second, want, accepted) in [
            (
                "another kind",
                definition("bars", "Bar", &[]),
                ("NoConflicts", "no conflicts found"),
                json!({"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"}),
            ),
            (
                "its kind",
                definition("bars", "Foo", &["b"]),
                ("ListKindConflict", "\"FooList\" is already in use"),
                json!({"plural": "bars", "shortNames": ["b"], "kind": ""}),
            ),
            (
                "its plural as a short name",
                definition("bars", "Bar", &["b", "foos"]),
                ("ShortNamesConflict", "\"foos\" is already in use"),
                json!({"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"}),
            ),
        ] {
            let status = judge(&second, [&first].into_iter(), "t").unwrap();
            assert_eq!(
                reason(&status, "NamesAccepted"),
                (want.0.to_owned(), want.1.to_owned()),
                "{case}"
            );
            assert_eq!(status["acceptedNames"], accepted, "{case}");
            let established = if want.0 == "NoConflicts" {
                "InitialNamesAccepted"
            } else {
                "NotAccepted"
            };
            assert_eq!(reason(&status, "Established").0, established, "{case}");
        }
    }
}
