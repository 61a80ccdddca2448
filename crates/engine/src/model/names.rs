//! Valid names of labels and resources, and Kubernetes' errors for invalid ones.

const NAME: &str = "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const NAME_EXAMPLES: &str = "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_EXAMPLES: &str = "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LONGEST_NAME: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

/// `name` or `prefix/name`: up to 63 characters after an optional DNS subdomain.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_prefix = |prefix: &str| prefix.len() <= LONGEST_SUBDOMAIN && is_dns_subdomain(prefix);
    prefix.is_none_or(is_prefix) && name.len() <= LONGEST_NAME && has_shape_of_name(name)
}

/// Empty, or up to 63 characters that begin and end with a letter or digit.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || text.len() <= LONGEST_NAME && has_shape_of_name(text)
}

/// Up to 63 lower case letters, digits and hyphens, with no hyphen at either end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LONGEST_NAME && !text.contains('.') && is_dns_subdomain(text)
}

/// Every fault of what should be a qualified name; none if it is one.
pub fn qualified_name_faults(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key must {NAME} {NAME_EXAMPLES} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > LONGEST_SUBDOMAIN {
                faults.push(format!(
                    "prefix part must be no more than {LONGEST_SUBDOMAIN} bytes"
                ));
            }
            if !is_dns_subdomain(prefix) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_NAME {
        faults.push(format!(
            "name part must be no more than {LONGEST_NAME} bytes"
        ));
    }
    if !has_shape_of_name(name) {
        faults.push(format!("name part must {NAME} {NAME_EXAMPLES}"));
    }
    faults
}

/// Every fault of what should be the value of a label; none if it is one.
pub fn label_value_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > LONGEST_NAME {
        faults.push(format!("must be no more than {LONGEST_NAME} bytes"));
    }
    if !text.is_empty() && !has_shape_of_name(text) {
        faults.push(format!(
            "a valid label must be an empty string or {NAME} {VALUE_EXAMPLES}"
        ));
    }
    faults
}

fn has_shape_of_name(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

pub fn is_dns_subdomain(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.split('.').all(|part| {
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has no fault is a name, and nothing else is. The words themselves are compared with kube-scheduler's in the
    /// tests of the configuration.
    #[test]
    fn names_and_values() {
        let long = "a".repeat(64);
        for (text, name, value) in [
            ("", 2, 0),
            ("a", 0, 0),
            ("example.com/a", 0, 1),
            ("a/b/c", 1, 1),
            ("/a", 1, 1),
            ("Upper.com/k", 1, 1),
            ("example.com/", 2, 1),
            ("not a key", 1, 1),
            ("-key", 1, 1),
            (&long, 1, 1),
            (&format!("{long}-"), 2, 2),
            (&format!("{}b/c", "a.".repeat(140)), 1, 2),
        ] {
            assert_eq!(qualified_name_faults(text).len(), name, "{text}");
            assert_eq!(is_qualified_name(text), name == 0, "{text}");
            assert_eq!(label_value_faults(text).len(), value, "{text}");
            assert_eq!(is_label_value(text), value == 0, "{text}");
        }
    }
}
