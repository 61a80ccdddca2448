//! Makes a failing case small: removes whatever the failure does not need.
//!
//! It knows nothing of Kubernetes, only that a case is a JSON tree whose objects have names.

use serde_json::Value;

use super::generate::Case;

/// The identity of an object: without it the object becomes another one.
const KEPT: [&str; 3] = ["name", "namespace", "uid"];

/// Tries that one shrinking may cost; a try is a question to each judge.
const TRIES: usize = 4000;

/// The smallest case found for which `fails` still holds, by greedy removal.
pub(crate) fn shrink(case: &Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    let mut tries = 0;
    loop {
        let before = size(&smallest.0);
        let mut try_without = |candidate: &Value| {
            tries += 1;
            tries <= TRIES && fails(&Case(candidate.clone()))
        };
        for path in containers(&smallest.0) {
            thin_out(&mut smallest.0, &path, &mut try_without);
        }
        if size(&smallest.0) == before || tries >= TRIES {
            return smallest;
        }
    }
}

/// Removes children of the container at `path`: first half of them at once, then ever fewer.
fn thin_out(root: &mut Value, path: &[Step], fails: &mut dyn FnMut(&Value) -> bool) {
    let Some(count) = at(root, path).map(children) else {
        return; // It went away with its parent.
    };
    let mut chunk = count.max(1);
    loop {
        let mut start = 0;
        while let Some(left) = at(root, path).map(children)
            && start < left
        {
            let mut candidate = root.clone();
            let end = (start + chunk).min(left);
            if let Some(container) = at(&mut candidate, path) {
                remove(container, start, end);
            }
            if candidate != *root && fails(&candidate) {
                *root = candidate;
            } else {
                start = end;
            }
        }
        if chunk == 1 {
            return;
        }
        chunk = chunk.div_ceil(2);
    }
}

#[derive(Clone)]
enum Step {
    Key(String),
    Position(usize),
}

/// Paths of all arrays and objects, outermost first, so that big parts go first.
fn containers(root: &Value) -> Vec<Vec<Step>> {
    let mut found = vec![Vec::new()];
    let mut visited = 0;
    while visited < found.len() {
        let path = found[visited].clone();
        visited += 1;
        let inner: Vec<Step> = match get(root, &path) {
            Some(Value::Object(fields)) => fields
                .iter()
                .filter(|(_, value)| value.is_array() || value.is_object())
                .map(|(key, _)| Step::Key(key.clone()))
                .collect(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .filter(|(_, value)| value.is_array() || value.is_object())
                // Last first: removing an item must not move those still to be visited.
                .rev()
                .map(|(position, _)| Step::Position(position))
                .collect(),
            _ => continue,
        };
        found.extend(inner.into_iter().map(|step| {
            let mut longer = path.clone();
            longer.push(step);
            longer
        }));
    }
    found
}

fn get<'a>(root: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Position(position) => value.get(position),
    })
}

fn at<'a>(root: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Position(position) => value.get_mut(position),
    })
}

fn children(value: &mut Value) -> usize {
    match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

fn remove(container: &mut Value, start: usize, end: usize) {
    match container {
        Value::Object(fields) => {
            let mut position = 0;
            fields.retain(|key, _| {
                position += 1;
                KEPT.contains(&key.as_str()) || !(start..end).contains(&(position - 1))
            });
        }
        Value::Array(items) => {
            items.drain(start..end);
        }
        _ => {}
    }
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(size).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        _ => 0usize,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let case = Case(json!({
            "pod": {"metadata": {"name": "p", "labels": {"a": "1", "b": "2"}}},
            "nodes": [{"name": "x"}, {"name": "y", "taints": [1, 2, 3]}, {"name": "z"}],
            "services": [{}, {}],
        }));
        let fails = |case: &Case| {
            case.0["pod"]["metadata"]["labels"]["b"] == "2"
                && case.0["nodes"]
                    .as_array()
                    .is_some_and(|nodes| nodes.iter().any(|node| node["taints"][0] == 3))
        };
        // The three is first only when the others are gone.
        let mut fails_or_original = |candidate: &Case| *candidate == case || fails(candidate);
        let small = shrink(&case, &mut fails_or_original);
        assert_eq!(
            small.0,
            json!({
                "pod": {"metadata": {"name": "p", "labels": {"b": "2"}}},
                "nodes": [{"name": "y", "taints": [3]}],
            })
        );
    }

    #[test]
    fn shrinking_ends_although_the_failure_comes_and_goes() {
        let case = Case(json!({"nodes": (0..500).collect::<Vec<_>>()}));
        let mut calls = 0;
        shrink(&case, &mut |_| {
            calls += 1;
            calls % 2 == 0
        });
        assert!(calls <= TRIES, "{calls}");
    }

    #[test]
    fn a_case_that_needs_everything_stays_whole() {
        let case = Case(json!({"nodes": [1, 2]}));
        assert_eq!(shrink(&case, &mut |candidate| *candidate == case), case);
    }
}
