//! Strategic merge patches of pods, as the API server applies them.

use serde_json::{Map, Value};

/// The lists of a pod that are merged by a key, and their keys; other lists are replaced.
const MERGED_LISTS: &[(&str, &str)] = &[
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("ephemeralContainers", "name"),
    ("hostAliases", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("ports", "containerPort"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// Lists of texts whose elements are added.
const MERGED_TEXTS: &[&str] = &["finalizers"];

const DIRECTIVE: &str = "$patch";
const DELETE_TEXTS: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const RETAIN_KEYS: &str = "$retainKeys";

/// Applies a patch to an object.
pub(super) fn merge(target: &mut Value, patch: &Value) -> Result<(), String> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_objects(target, patch),
        (_, patch) => Err(format!(
            "it is {}, not an object",
            super::fields::kind_of(patch)
        )),
    }
}

fn merge_objects(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), String> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => {
            let rest = patch.iter().filter(|(key, _)| *key != DIRECTIVE);
            *target = rest
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            return Ok(());
        }
        Some(Some("delete")) => {
            target.clear();
            return Ok(());
        }
        Some(_) => return Err("$patch must be merge, replace or delete".to_owned()),
    }
    if let Some(Value::Array(kept)) = patch.get(RETAIN_KEYS) {
        target.retain(|key, _| kept.iter().any(|it| it.as_str() == Some(key)));
    }
    for (key, value) in patch {
        if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) {
            continue;
        }
        if let Some(list) = key.strip_prefix(DELETE_TEXTS) {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(texts)) = target.get_mut(list) {
                texts.retain(|text| !gone.contains(text));
            }
            continue;
        }
        if value.is_null() {
            target.shift_remove(key);
            continue;
        }
        merge_field(target, key, value).map_err(|fault| format!("{key}: {fault}"))?;
    }
    Ok(())
}

fn merge_field(target: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), String> {
    let merge_key = MERGED_LISTS.iter().find(|(list, _)| *list == key);
    match (target.get_mut(key), value) {
        (Some(Value::Object(known)), Value::Object(more)) => return merge_objects(known, more),
        (Some(Value::Array(known)), Value::Array(more)) => {
            if let Some((_, merge_key)) = merge_key {
                return merge_lists(known, more, merge_key);
            }
            if MERGED_TEXTS.contains(&key) {
                known.extend(
                    more.iter()
                        .filter(|it| !known.contains(it))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
                return Ok(());
            }
        }
        _ => {}
    }
    // Directives in what is new have nothing to act on.
    let mut fresh = Value::Null;
    match value {
        Value::Object(more) => {
            let mut made = Map::new();
            merge_objects(&mut made, more)?;
            fresh = Value::Object(made);
        }
        Value::Array(more) if merge_key.is_some() => {
            let mut made = Vec::new();
            merge_lists(&mut made, more, merge_key.map_or("", |(_, it)| it))?;
            fresh = Value::Array(made);
        }
        _ => {}
    }
    target.insert(
        key.to_owned(),
        if fresh.is_null() {
            value.clone()
        } else {
            fresh
        },
    );
    Ok(())
}

fn merge_lists(known: &mut Vec<Value>, more: &[Value], merge_key: &str) -> Result<(), String> {
    let directive = |element: &Value| element[DIRECTIVE].as_str().map(str::to_owned);
    if more
        .iter()
        .any(|it| directive(it).as_deref() == Some("replace"))
    {
        known.clear();
    }
    let before: Vec<Value> = known.iter().map(|it| it[merge_key].clone()).collect();
    let mut named = Vec::new();
    for element in more {
        let key = &element[merge_key];
        let directive = directive(element);
        if key.is_null() {
            match directive.as_deref() {
                Some("replace") => continue,
                _ => return Err(format!("an element has no {merge_key}")),
            }
        }
        let position = known.iter().position(|it| it[merge_key] == *key);
        match (directive.as_deref(), position) {
            (Some("delete"), Some(position)) => {
                known.remove(position);
                continue;
            }
            (Some("delete"), None) => continue,
            (_, Some(position)) => merge(&mut known[position], element)?,
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                merge(&mut fresh, element)?;
                known.push(fresh);
            }
        }
        named.push(key.clone());
    }
    order(known, &before, &named, merge_key);
    Ok(())
}

/// The API server's order: named elements in the order of the patch, a new one before what is not named, the others where
/// they were.
fn order(list: &mut Vec<Value>, before: &[Value], named: &[Value], merge_key: &str) {
    let was = |element: &Value| before.iter().position(|key| *key == element[merge_key]);
    let rank = |element: &Value| named.iter().position(|key| *key == element[merge_key]);
    let (mut ours, others): (Vec<Value>, Vec<Value>) = std::mem::take(list)
        .into_iter()
        .partition(|it| rank(it).is_some());
    ours.sort_by_key(|it| rank(it));
    let mut others = others.into_iter().peekable();
    for element in ours {
        while let Some(other) = others.peek()
            && let Some((other, ours)) = was(other).zip(was(&element))
            && other < ours
        {
            list.extend(others.next());
        }
        list.push(element);
    }
    list.extend(others);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches() {
        let pod = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x"]}, "spec": {
            "containers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}, {"name": "b"}],
            "tolerations": [{"key": "t"}], "hostNetwork": true}});
        let spec = |spec: Value| json!({"metadata": pod["metadata"], "spec": spec});
        for (case, patch, want) in [
            ("nothing", json!({}), pod.clone()),
            (
                "maps are merged, and null removes",
                json!({"metadata": {"labels": {"b": "2"}}, "spec": {"hostNetwork": null}}),
                json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x"]}, "spec": {
                    "containers": pod["spec"]["containers"], "tolerations": [{"key": "t"}]}}),
            ),
            (
                "containers are merged by name, and their environment too",
                json!({"spec": {"containers": [{"name": "a", "image": "i", "env": [{"name": "B", "value": "2"}]}]}}),
                spec(json!({"containers": [
                    {"name": "a", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}], "image": "i"}, {"name": "b"}],
                    "tolerations": [{"key": "t"}], "hostNetwork": true})),
            ),
            (
                "a new container comes first",
                json!({"spec": {"containers": [{"name": "c"}]}}),
                spec(
                    json!({"containers": [{"name": "c"}, pod["spec"]["containers"][0], {"name": "b"}],
                    "tolerations": [{"key": "t"}], "hostNetwork": true}),
                ),
            ),
            (
                "a container is removed",
                json!({"spec": {"containers": [{"name": "b", "$patch": "delete"}]}}),
                spec(json!({"containers": [pod["spec"]["containers"][0]],
                    "tolerations": [{"key": "t"}], "hostNetwork": true})),
            ),
            (
                "tolerations are replaced",
                json!({"spec": {"tolerations": [{"key": "u"}]}}),
                spec(
                    json!({"containers": pod["spec"]["containers"], "tolerations": [{"key": "u"}], "hostNetwork": true}),
                ),
            ),
            (
                "finalizers are added and removed",
                json!({"metadata": {"finalizers": ["y"], "$deleteFromPrimitiveList/finalizers": ["x"]}}),
                json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["y"]}, "spec": pod["spec"]}),
            ),
        ] {
            let mut found = pod.clone();
            merge(&mut found, &patch).unwrap();
            assert_eq!(found, want, "{case}");
        }
        for patch in [
            json!([]),
            json!({"spec": {"containers": [{"image": "i"}]}}),
            json!({"$patch": 1}),
        ] {
            assert!(merge(&mut pod.clone(), &patch).is_err(), "{patch}");
        }
    }
}
