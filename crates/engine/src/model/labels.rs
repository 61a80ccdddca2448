//! Labels and the selectors over them.

use super::Name;

/// Labels in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Vec<(Name, Name)>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key).map(|i| &*self.0[i].1)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Where the key is in the order of [`Labels::iter`].
    pub fn position(&self, key: &str) -> Option<usize> {
        self.0
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Name)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<Name>, V: Into<Name>> FromIterator<(K, V)> for Labels {
    /// The last value of a repeated key wins, as in a map.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Name, Name)> = pairs
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|a, b| a.0 == b.0);
        Self(pairs)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Node selectors only.
    Gt,
    /// Node selectors only.
    Lt,
}

impl Operator {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

/// One valid requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Name,
    operator: Operator,
    values: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SelectorError {
    #[error("key `{0}` is not a label name")]
    Key(Name),
    #[error("value `{value}` of key `{key}` is not a label value")]
    Value { key: Name, value: Name },
    #[error("`{operator}` is not an operator of key `{key}`")]
    Operator { key: Name, operator: Name },
    #[error("key `{key}` with operator {operator:?} has {found} values: {allowed}")]
    Values {
        key: Name,
        operator: Operator,
        found: usize,
        allowed: &'static str,
    },
    #[error("key `{key}` needs an integer, not `{value}`")]
    Integer { key: Name, value: Name },
}

impl Requirement {
    pub fn new(
        key: impl Into<Name>,
        operator: Operator,
        values: Vec<Name>,
    ) -> Result<Self, SelectorError> {
        let key = key.into();
        if !is_qualified_name(&key) {
            return Err(SelectorError::Key(key));
        }
        let allowed = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => Some("at least one is needed"),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("none is allowed")
            }
            Operator::Gt | Operator::Lt if values.len() != 1 => Some("exactly one is needed"),
            _ => None,
        };
        if let Some(allowed) = allowed {
            return Err(SelectorError::Values {
                key,
                operator,
                found: values.len(),
                allowed,
            });
        }
        if matches!(operator, Operator::Gt | Operator::Lt) && integer(&values[0]).is_none() {
            return Err(SelectorError::Integer {
                key,
                value: values[0].clone(),
            });
        }
        match values.iter().find(|value| !is_label_value(value)) {
            Some(value) => Err(SelectorError::Value {
                key,
                value: value.clone(),
            }),
            None => Ok(Self {
                key,
                operator,
                values,
            }),
        }
    }

    /// A label that must have this value; used for values that come from labels and are therefore valid.
    pub fn equals(key: impl Into<Name>, value: impl Into<Name>) -> Self {
        Self {
            key: key.into(),
            operator: Operator::In,
            values: vec![value.into()],
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = |value: &str| self.values.iter().any(|listed| **listed == *value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => value
                .and_then(integer)
                .zip(integer(&self.values[0]))
                .is_some_and(|(a, b)| a > b),
            Operator::Lt => value
                .and_then(integer)
                .zip(integer(&self.values[0]))
                .is_some_and(|(a, b)| a < b),
        }
    }
}

/// A base-10 integer as Go's parser takes it: an optional sign and digits.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A label selector: nothing, everything, or all of some requirements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector(Option<Vec<Requirement>>);

impl Selector {
    pub const NOTHING: Self = Self(None);
    pub const EVERYTHING: Self = Self(Some(Vec::new()));

    pub fn all(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self(Some(requirements.into_iter().collect()))
    }

    /// All pairs must be there.
    pub fn pairs(labels: &Labels) -> Self {
        Self::all(
            labels
                .iter()
                .map(|(key, value)| Requirement::equals(key.clone(), value.clone())),
        )
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.0
            .as_ref()
            .is_some_and(|all| all.iter().all(|requirement| requirement.matches(labels)))
    }

    /// Matches everything. (Kubernetes calls this empty; a selector that matches nothing is not empty.)
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    /// Both must match; what matches nothing stays so.
    pub fn and(mut self, more: impl IntoIterator<Item = Requirement>) -> Self {
        if let Some(requirements) = &mut self.0 {
            requirements.extend(more);
        }
        self
    }

    pub fn requirements(&self) -> &[Requirement] {
        self.0.as_deref().unwrap_or(&[])
    }
}

/// `name` or `prefix/name`: up to 63 characters after an optional DNS subdomain.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_name_part(name)
}

/// Empty, or up to 63 characters that begin and end with a letter or digit.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

fn is_name_part(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_dns_subdomain(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= 253
        && text.split('.').all(|part| {
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

    #[test]
    fn requirements_and_labels() {
        let labels: Labels = [("zone", "a"), ("size", "8"), ("odd", "x")]
            .into_iter()
            .collect();
        for (key, operator, values, want) in [
            ("zone", Operator::In, vec!["a", "b"], true),
            ("zone", Operator::In, vec!["b"], false),
            ("none", Operator::In, vec!["a"], false),
            ("zone", Operator::NotIn, vec!["a"], false),
            ("none", Operator::NotIn, vec!["a"], true),
            ("zone", Operator::Exists, vec![], true),
            ("none", Operator::Exists, vec![], false),
            ("none", Operator::DoesNotExist, vec![], true),
            ("size", Operator::Gt, vec!["7"], true),
            ("size", Operator::Gt, vec!["8"], false),
            ("size", Operator::Lt, vec!["9"], true),
            ("odd", Operator::Gt, vec!["1"], false),
            ("none", Operator::Lt, vec!["1"], false),
        ] {
            let case = format!("{key} {operator:?} {values:?}");
            let requirement =
                Requirement::new(key, operator, values.into_iter().map(Into::into).collect())
                    .unwrap();
            assert_eq!(requirement.matches(&labels), want, "{case}");
        }
    }

    #[test]
    fn bad_requirements_are_refused() {
        for (key, operator, values) in [
            ("zone", Operator::In, vec![]),
            ("zone", Operator::Exists, vec!["a"]),
            ("zone", Operator::Gt, vec!["a"]),
            ("zone", Operator::Gt, vec!["1", "2"]),
            ("zone", Operator::In, vec!["not a value"]),
            ("not a key", Operator::Exists, vec![]),
            ("-key", Operator::Exists, vec![]),
            ("Upper.com/key", Operator::Exists, vec![]),
            ("example.com/", Operator::Exists, vec![]),
        ] {
            let values: Vec<Name> = values.into_iter().map(Into::into).collect();
            assert!(
                Requirement::new(key, operator, values).is_err(),
                "{key} {operator:?}"
            );
        }
    }

    #[test]
    fn nothing_everything_and_pairs() {
        let labels: Labels = [("app", "web"), ("app", "db")].into_iter().collect();
        assert_eq!(labels.get("app"), Some("db"), "the last value wins");
        assert!(!Selector::NOTHING.matches(&labels) && !Selector::NOTHING.is_empty());
        assert!(Selector::EVERYTHING.matches(&labels) && Selector::EVERYTHING.is_empty());
        assert!(Selector::pairs(&labels).matches(&labels));
        let web = Requirement::equals("app", "web");
        assert!(!Selector::NOTHING.and([web.clone()]).matches(&labels));
        assert!(!Selector::EVERYTHING.and([web]).matches(&labels));
    }
}
