//! Labels and the selectors over them.

use std::fmt;

use super::Name;
use super::names::{is_label_value, is_qualified_name, label_value_faults, qualified_name_faults};

/// As many labels as objects mostly have at most.
const FEW: usize = 32;

/// Labels in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Vec<(Name, Name)>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key).map(|i| &*self.0[i].1)
    }

    /// The value in its shared form.
    pub fn get_name(&self, key: &str) -> Option<&Name> {
        self.position(key).map(|i| &self.0[i].1)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Where the key is in the order of [`Labels::iter`].
    pub fn position(&self, key: &str) -> Option<usize> {
        // A length lies in the list, the text elsewhere: to look through a few lengths beats bisecting texts.
        if self.0.len() <= FEW {
            return self.0.iter().position(|(known, _)| **known == *key);
        }
        self.0
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()
    }

    /// Where the key is in one of many objects, which mostly have equal keys: `hint` is where it was in the object before.
    pub(crate) fn position_near(&self, key: &str, hint: &mut usize) -> Option<usize> {
        let is_there = self.0.get(*hint).is_some_and(|(found, _)| **found == *key);
        if !is_there {
            *hint = self.position(key)?;
        }
        Some(*hint)
    }

    /// The value in this place.
    pub(crate) fn value_at(&self, position: usize) -> &Name {
        &self.0[position].1
    }

    /// Lets texts be replaced by equal ones that others have, too.
    pub(crate) fn share(&mut self, shared: impl FnMut(&mut (Name, Name))) {
        self.0.iter_mut().for_each(shared);
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    key: Name,
    operator: Operator,
    values: Vec<Name>,
}

/// An invalid requirement, with Kubernetes' message, which becomes part of pod conditions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SelectorError {
    Key {
        key: Name,
    },
    Value {
        key: Name,
        index: usize,
        value: Name,
    },
    Operator(Name),
    /// Selectors over labels alone know fewer operators.
    LabelOperator(Name),
    Values {
        found: Vec<Name>,
        allowed: &'static str,
    },
    Integer(Name),
    Several(Vec<SelectorError>),
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field()[..] {
            "" => f.write_str(&self.text()),
            field => write!(f, "{field}: {}", self.text()),
        }
    }
}

impl std::error::Error for SelectorError {}

impl SelectorError {
    /// One by one.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Several(errors) => errors,
            one => std::slice::from_ref(one),
        }
    }

    /// The faulty field of the requirement; empty if the text names it.
    pub fn field(&self) -> String {
        match self {
            Self::Key { .. } => "key".to_owned(),
            Self::Value { index, key, .. } => format!("values[{index}][{key}]"),
            Self::Operator(_) => "operator".to_owned(),
            Self::Values { .. } => "values".to_owned(),
            Self::Integer(_) => "values[0]".to_owned(),
            Self::LabelOperator(_) | Self::Several(_) => String::new(),
        }
    }

    /// The message without the field.
    pub fn text(&self) -> String {
        let faults = |name: &str, faults: Vec<String>| {
            format!("Invalid value: \"{name}\": {}", faults.join("; "))
        };
        match self {
            Self::Key { key } => faults(key, qualified_name_faults(key)),
            Self::Value { value, .. } => faults(value, label_value_faults(value)),
            Self::Operator(name) => format!(
                "Unsupported value: \"{name}\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""
            ),
            Self::LabelOperator(name) => {
                format!("\"{name}\" is not a valid label selector operator")
            }
            Self::Values { found, allowed } => {
                format!("Invalid value: {}: {allowed}", as_list(found))
            }
            Self::Integer(value) => format!(
                "Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
            Self::Several(errors) => {
                let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("[{}]", texts.join(", "))
            }
        }
    }
}

/// As Kubernetes shows a list of texts; an absent one is null.
pub(super) fn as_list(values: &[Name]) -> String {
    if values.is_empty() {
        return "null".to_owned();
    }
    let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    format!("[{}]", quoted.join(","))
}

impl Requirement {
    pub fn new(
        key: impl Into<Name>,
        operator: Operator,
        values: Vec<Name>,
    ) -> Result<Self, SelectorError> {
        let key = key.into();
        let mut errors = Vec::new();
        if !is_qualified_name(&key) {
            errors.push(SelectorError::Key { key: key.clone() });
        }
        let allowed = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::Gt | Operator::Lt if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(allowed) = allowed {
            errors.push(SelectorError::Values {
                found: values.clone(),
                allowed,
            });
        } else if matches!(operator, Operator::Gt | Operator::Lt) && integer(&values[0]).is_none() {
            errors.push(SelectorError::Integer(values[0].clone()));
        }
        let wrong = values.iter().enumerate();
        let wrong = wrong.filter(|(_, value)| !is_label_value(value));
        errors.extend(wrong.map(|(index, value)| SelectorError::Value {
            key: key.clone(),
            index,
            value: value.clone(),
        }));
        match errors.len() {
            0 => Ok(Self {
                key,
                operator,
                values,
            }),
            1 => Err(errors.remove(0)),
            _ => Err(SelectorError::Several(errors)),
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

    /// A label that must have one of these values, which come from labels.
    pub fn one_of(key: impl Into<Name>, values: Vec<Name>) -> Self {
        Self {
            key: key.into(),
            operator: Operator::In,
            values,
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// If the label must have one of these values.
    pub(super) fn one_of_values(&self) -> Option<&[Name]> {
        (self.operator == Operator::In).then_some(&self.values)
    }

    pub(super) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    pub(super) fn rename(&mut self, key: &str) {
        self.key = key.into();
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_value(labels.get(&self.key))
    }

    /// Whether this value of the key matches; `None` stands for a missing label.
    pub(crate) fn matches_value(&self, value: Option<&str>) -> bool {
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

impl fmt::Display for Requirement {
    /// For example `zone In [a, b]` or `gpu Exists`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            operator,
            values,
        } = self;
        write!(f, "{key} {operator:?}")?;
        match operator {
            Operator::In | Operator::NotIn => write!(f, " [{}]", values.join(", ")),
            Operator::Gt | Operator::Lt => write!(f, " {}", values.join(", ")),
            Operator::Exists | Operator::DoesNotExist => Ok(()),
        }
    }
}

/// A base-10 integer as Go's parser takes it: an optional sign and digits.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Pairs of which labels must have one to meet all requirements: those of the requirement with the fewest values.
pub(super) fn pairs_to_match(requirements: &[Requirement]) -> Vec<(Name, Name)> {
    let values = |it: &Requirement| Some((it.key.clone(), it.one_of_values()?.to_vec()));
    let fewest = requirements
        .iter()
        .filter_map(values)
        .min_by_key(|(_, values)| values.len());
    let pairs = fewest.into_iter().flat_map(|(key, values)| {
        let pair = move |value| (key.clone(), value);
        values.into_iter().map(pair)
    });
    pairs.collect()
}

/// A label selector: nothing, everything, or all of some requirements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// Whether it matches nothing, whatever the labels.
    pub fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    pub fn requirements(&self) -> &[Requirement] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Pairs of which labels must have one to match; empty if that says nothing.
    pub(crate) fn pairs_to_match(&self) -> Vec<(Name, Name)> {
        pairs_to_match(self.requirements())
    }
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
        let no_values = "for 'in', 'notin' operators, values set can't be empty";
        for (key, operator, values, want) in [
            (
                "zone",
                Operator::In,
                vec![],
                format!("values: Invalid value: null: {no_values}"),
            ),
            (
                "zone",
                Operator::Exists,
                vec!["a"],
                r#"values: Invalid value: ["a"]: values set must be empty for exists and does not exist"#.into(),
            ),
            (
                "zone",
                Operator::Gt,
                vec!["a"],
                r#"values[0]: Invalid value: "a": for 'Gt', 'Lt' operators, the value must be an integer"#.into(),
            ),
            (
                "zone",
                Operator::Gt,
                vec!["1", "2"],
                r#"values: Invalid value: ["1","2"]: for 'Gt', 'Lt' operators, exactly one value is required"#.into(),
            ),
            (
                "zone",
                Operator::In,
                vec!["a", "not a value"],
                format!(
                    "values[1][zone]: Invalid value: \"not a value\": {}",
                    label_value_faults("not a value")[0]
                ),
            ),
            (
                "not a key",
                Operator::Exists,
                vec![],
                format!(
                    "key: Invalid value: \"not a key\": {}",
                    qualified_name_faults("not a key")[0]
                ),
            ),
            (
                "example.com/",
                Operator::In,
                vec![],
                format!(
                    "[key: Invalid value: \"example.com/\": {}, values: Invalid value: null: {no_values}]",
                    qualified_name_faults("example.com/").join("; ")
                ),
            ),
        ] {
            let values: Vec<Name> = values.into_iter().map(Into::into).collect();
            let error = Requirement::new(key, operator, values).unwrap_err();
            assert_eq!(error.to_string(), want);
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
