//! Validation of names, label keys and label values; generated names.
//!
//! Each check returns kube-apiserver's message, because clients show it to users.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const TWO_SLASHES: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// A DNS label: containers, volumes.
pub(crate) fn dns_label(name: &str) -> Option<String> {
    too_long(name, 63).or_else(|| (!is_dns_label(name)).then(|| LABEL.to_owned()))
}

/// Labels joined by dots: most names.
pub(crate) fn dns_subdomain(name: &str) -> Option<String> {
    too_long(name, 253)
        .or_else(|| (!name.split('.').all(is_dns_label)).then(|| SUBDOMAIN.to_owned()))
}

/// A DNS label that starts with a letter: names of custom kinds.
pub(crate) fn dns_1035_label(name: &str) -> Option<String> {
    let ok = is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
    too_long(name, 63).or_else(|| (!ok).then(|| LABEL_1035.to_owned()))
}

/// A DNS label where dots are the usual mistake: namespaces, services.
pub(crate) fn dns_label_without_dots(name: &str) -> Option<String> {
    match name.contains('.') {
        true => Some("must not contain dots".to_owned()),
        false => dns_label(name),
    }
}

/// Anything that can stand in a path: events, disruption budgets.
pub(crate) fn path_segment(name: &str) -> Option<String> {
    if [".", ".."].contains(&name) {
        return Some(format!("may not be '{name}'"));
    }
    let found = ["/", "%"].into_iter().find(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'"))
}

/// A name with an optional DNS prefix: label and annotation keys, resources, finalizers.
pub(crate) fn qualified_name(name: &str) -> Vec<String> {
    let (prefix, part) = match name.split_once('/') {
        None => (None, name),
        Some((_, rest)) if rest.contains('/') => return vec![TWO_SLASHES.to_owned()],
        Some((prefix, part)) => (Some(prefix), part),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            problems.extend(dns_subdomain(prefix).map(|problem| format!("prefix part {problem}")))
        }
        None => {}
    }
    if part.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if part.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(part) {
        problems.push(QUALIFIED.to_owned());
    }
    problems
}

/// A name of a port, as services have them.
pub(crate) fn port_name(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems
}

pub(crate) fn label_value(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!value.is_empty() && !is_word(value)).then(|| LABEL_VALUE.to_owned())
}

/// A key of a ConfigMap or Secret: a file name that cannot leave its directory.
pub(crate) fn config_key(key: &str) -> Option<String> {
    if let Some(problem) = too_long(key, 253) {
        return Some(problem);
    }
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(ok) {
        return Some(CONFIG_KEY.to_owned());
    }
    match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn too_long(text: &str, limit: usize) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} characters"))
}

fn is_dns_label(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(ok) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    edge(text.bytes().next()) && edge(text.bytes().last()) && text.bytes().all(ok)
}

/// A generated name: the base, cut, and five characters without vowels.
pub(crate) fn generate(base: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_BASE: usize = 58;
    let mut end = base.len().min(LONGEST_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let random = uuid::Uuid::new_v4().into_bytes();
    let suffix = random[..5]
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_a_label() {
        let name = generate(&"a".repeat(80));
        assert_eq!(name.len(), 63);
        assert_ne!(generate("web-"), generate("web-"));
        assert_eq!(generate("web-").len(), 9);
    }

    #[test]
    fn names_are_checked_by_each_rule() {
        let long = "a".repeat(64);
        for (rule, name, takes, refuses) in [
            (
                dns_label as fn(&str) -> Option<String>,
                "label",
                &["a", "a-1", "1"][..],
                &["", "A", "a.b", "-a", "a-", &long][..],
            ),
            (
                dns_subdomain,
                "subdomain",
                &["a.b", "a", &long],
                &["a..b", "A", ".", ""],
            ),
            (dns_1035_label, "custom name", &["a1"], &["1a", "a.b"]),
            (
                |name| qualified_name(name).pop(),
                "key",
                &["a", "x.y/A_b", "A.b"],
                &["", "/a", "a/", "a/b/c", "X/y", "-a"],
            ),
            (
                label_value,
                "value",
                &["", "a", "A.b_c-1"],
                &["-", "a b", &long],
            ),
            (
                config_key,
                "config key",
                &["a", "A_b.c", ".a"],
                &["", ".", "..", "..a", "a/b"],
            ),
        ] {
            for text in takes {
                assert_eq!(rule(text), None, "{name} takes {text:?}");
            }
            for text in refuses {
                assert!(rule(text).is_some(), "{name} refuses {text:?}");
            }
        }
    }

    #[test]
    fn ports_have_short_names() {
        for (name, ok) in [
            ("http", true),
            ("a1-b", true),
            ("80", false),
            ("A", false),
            ("-a", false),
            ("a--b", false),
            ("sixteen-letters-", false),
        ] {
            assert_eq!(port_name(name).is_empty(), ok, "{name}");
        }
        assert_eq!(
            qualified_name("").len(),
            2,
            "an empty name also has no valid characters"
        );
    }
}
