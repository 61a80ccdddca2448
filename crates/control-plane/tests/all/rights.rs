//! What roles grant and what requests need, for tests that every permission of a manifest is used. The tests of the agent have it,
//! too.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

/// Group, resource with its subresource, verb.
pub(crate) type Right = (String, String, String);

pub(crate) fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn granted(roles: &[&Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in roles
        .iter()
        .flat_map(|role| role["rules"].as_array().unwrap())
    {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    rights.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    rights
}

/// What a request needs.
pub(crate) fn right(method: &Method, path: &str, query: &str) -> Option<Right> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match &parts[..] {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        // Open to everybody.
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let named = rest.len() > 1;
    let resource = match rest {
        [resource, _, sub] => format!("{resource}/{sub}"),
        [resource, ..] => (*resource).to_owned(),
        [] => return None,
    };
    let verb = match *method {
        Method::GET if query.contains("watch=1") || query.contains("watch=true") => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    Some((group.to_owned(), resource, verb.to_owned()))
}
