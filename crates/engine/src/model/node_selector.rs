//! Node selectors, their terms, and the effect of a term that cannot be parsed.

use std::fmt;

use super::labels::{Labels, Operator, Requirement, SelectorError, as_list, pairs_to_match};
use super::node::NodeSpec;
use super::{Name, Selector};

/// Terms ORed. A selector without a usable term matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    pub terms: Vec<NodeTerm>,
}

/// Label and field requirements ANDed; kept with its error when it does not parse, because then it only never matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    /// As written; narrowing by node name reads these even when the term does not parse.
    pub fields: Vec<FieldRequirement>,
    /// Label keys of a term that does not parse, and whether values stand with them: a volume's zone is looked for there too.
    pub faulty_keys: Vec<(Name, bool)>,
    /// The term, or all its faults.
    pub parsed: Result<ParsedTerm, Vec<TermError>>,
}

/// A fault of a term.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TermError {
    /// Path below the term, such as `matchExpressions[0].values`.
    pub field: String,
    /// Kubernetes' message.
    pub text: String,
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}

/// A requirement on a field of the node, as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    pub key: Name,
    pub operator: Option<Operator>,
    pub values: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ParsedTerm {
    labels: Vec<Requirement>,
    /// (field, must be equal, value)
    fields: Vec<(Name, bool, Name)>,
}

/// What a term is matched against: PV affinity has labels only, so field requirements are not looked at there.
#[derive(Debug, Clone, Copy)]
pub enum NodeMatch<'a> {
    Node(&'a NodeSpec),
    Labels(&'a Labels),
}

impl NodeTerm {
    pub fn new(
        labels: Vec<Result<Requirement, SelectorError>>,
        fields: Vec<FieldRequirement>,
    ) -> Self {
        let mut errors = Vec::new();
        let mut term = ParsedTerm::default();
        for (i, label) in labels.into_iter().enumerate() {
            match label {
                Ok(requirement) => term.labels.push(requirement),
                Err(error) => {
                    errors.extend(error.each().iter().map(|error| TermError {
                        field: format!("matchExpressions[{i}].{}", error.field()),
                        text: error.text(),
                    }));
                }
            }
        }
        for (i, field) in fields.iter().enumerate() {
            match parse_field(field) {
                Ok(requirement) => term.fields.push(requirement),
                Err(error) => errors.push(TermError {
                    field: format!("matchFields[{i}].{}", error.field),
                    ..error
                }),
            }
        }
        let parsed = if errors.is_empty() {
            Ok(term)
        } else {
            Err(errors)
        };
        Self {
            fields,
            faulty_keys: Vec::new(),
            parsed,
        }
    }

    /// Neither labels nor fields: such a term is dropped, hence matches nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && matches!(&self.parsed, Ok(term) if term.labels.is_empty())
    }

    pub fn matches(&self, node: NodeMatch) -> bool {
        !self.is_empty() && self.parsed.as_ref().is_ok_and(|term| term.matches(node))
    }

    /// The first requirement that does not match the node, for explanations.
    fn mismatch(&self, node: &NodeSpec) -> String {
        match &self.parsed {
            _ if self.is_empty() => "a term without requirements".to_owned(),
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("an invalid term ({})", errors.join(", "))
            }
            Ok(term) => {
                let label = |label: &&Requirement| !label.matches(&node.labels);
                if let Some(label) = term.labels.iter().find(label) {
                    return label.to_string();
                }
                let mut fields = term.fields.iter();
                let field = fields.find(|field| !matches_field(field, &node.name));
                field.map_or_else(String::new, |(key, equal, value)| {
                    let operator = if *equal { "In" } else { "NotIn" };
                    format!("{key} {operator} [{value}]")
                })
            }
        }
    }
}

/// Whether a requirement on a field matches a node of this name. Other fields are empty.
fn matches_field((field, equal, value): &(Name, bool, Name), node: &str) -> bool {
    let found = if **field == *"metadata.name" {
        node
    } else {
        ""
    };
    (found == &**value) == *equal
}

/// The field of an error is that of the requirement.
fn parse_field(field: &FieldRequirement) -> Result<(Name, bool, Name), TermError> {
    let error = |field: &str, text| TermError {
        field: field.to_owned(),
        text,
    };
    match (field.operator, &field.values[..]) {
        (Some(Operator::In), [value]) => Ok((field.key.clone(), true, value.clone())),
        (Some(Operator::NotIn), [value]) => Ok((field.key.clone(), false, value.clone())),
        (Some(Operator::In | Operator::NotIn), values) => {
            let values = as_list(values);
            let text = format!("Invalid value: {values}: must have one element");
            Err(error("values", text))
        }
        (operator, _) => {
            let found = operator.map_or(String::new(), |operator| format!("{operator:?}"));
            let text =
                format!("Unsupported value: \"{found}\": supported values: \"In\", \"NotIn\"");
            Err(error("operator", text))
        }
    }
}

impl ParsedTerm {
    fn matches(&self, node: NodeMatch) -> bool {
        let (labels, name) = match node {
            NodeMatch::Node(spec) => (&spec.labels, Some(&spec.name)),
            NodeMatch::Labels(labels) => (labels, None),
        };
        self.labels
            .iter()
            .all(|requirement| requirement.matches(labels))
            && name.filter(|name| !name.is_empty()).is_none_or(|name| {
                let mut fields = self.fields.iter();
                fields.all(|field| matches_field(field, name))
            })
    }
}

impl NodeSelector {
    pub fn matches(&self, node: NodeMatch) -> bool {
        self.terms.iter().any(|term| term.matches(node))
    }

    /// Pairs of which a node's labels must have one to match; empty if that says nothing.
    pub(crate) fn pairs_to_match(&self) -> Vec<(Name, Name)> {
        let mut all = Vec::new();
        for term in self.terms.iter().filter(|term| !term.is_empty()) {
            let Ok(parsed) = &term.parsed else { continue };
            let pairs = pairs_to_match(&parsed.labels);
            if pairs.is_empty() {
                return Vec::new();
            }
            all.extend(pairs);
        }
        all
    }
}

impl NodeSelector {
    /// Whether the terms give values for a label; `None` if none of them names it.
    pub fn has_values(&self, key: &str) -> Option<bool> {
        let of_term = |term: &NodeTerm| -> Option<bool> {
            let faulty = term.faulty_keys.iter().map(|(key, has)| (&**key, *has));
            let parsed = term.parsed.iter().flat_map(|term| &term.labels);
            let parsed = parsed.map(|label| (label.key(), label.has_values()));
            let named = faulty.chain(parsed).filter(|(named, _)| *named == key);
            named.map(|(_, has)| has).reduce(|a, b| a || b)
        };
        self.terms.iter().filter_map(of_term).reduce(|a, b| a || b)
    }

    /// This selector with one label key in place of another.
    pub fn renaming(mut self, key: &str, to: &str) -> Self {
        let parsed = self.terms.iter_mut().flat_map(|term| &mut term.parsed);
        let labels = parsed.flat_map(|term| &mut term.labels);
        for label in labels.filter(|label| label.key() == key) {
            label.rename(to);
        }
        self
    }

    /// This selector with one more requirement in every term, or in a term of its own if there is none.
    pub fn requiring(mut self, requirement: Requirement) -> Self {
        if self.terms.is_empty() {
            self.terms.push(NodeTerm::new(Vec::new(), Vec::new()));
        }
        for term in self
            .terms
            .iter_mut()
            .filter_map(|term| term.parsed.as_mut().ok())
        {
            term.labels.push(requirement.clone());
        }
        self
    }
}

/// A pod's `nodeSelector` and required node affinity together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RequiredNodes {
    /// `None` when the pod has no `nodeSelector` at all.
    pub pairs: Option<Labels>,
    /// `None` when required node affinity is absent; an empty list of terms matches no node.
    pub affinity: Option<NodeSelector>,
}

impl RequiredNodes {
    pub fn is_absent(&self) -> bool {
        self.pairs.is_none() && self.affinity.is_none()
    }

    pub fn matches(&self, node: &NodeSpec) -> bool {
        self.pairs
            .as_ref()
            .is_none_or(|pairs| pairs.iter().all(|(k, v)| node.labels.get(k) == Some(&**v)))
            && self
                .affinity
                .as_ref()
                .is_none_or(|affinity| affinity.matches(NodeMatch::Node(node)))
    }

    /// What does not match the node: the first label of the node selector, else one requirement of each term.
    pub(crate) fn mismatch(&self, node: &NodeSpec) -> String {
        let mut pairs = self.pairs.iter().flat_map(Labels::iter);
        if let Some((key, value)) = pairs.find(|(k, v)| node.labels.get(k) != Some(&***v)) {
            return format!("{key}={value}");
        }
        let terms = self.affinity.iter().flat_map(|affinity| &affinity.terms);
        let mut texts: Vec<String> = terms.map(|term| term.mismatch(node)).collect();
        texts.dedup();
        match texts.is_empty() {
            true => "no terms".to_owned(),
            false => texts.join(" or "),
        }
    }
}

/// A preference for nodes; weight 0 and empty terms are dropped when preferences are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PreferredNodeTerm {
    pub weight: i64,
    pub term: NodeTerm,
}

/// One of a storage class's allowed topologies: for each key one of the values; no expression matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TopologyTerm {
    pub values: Vec<(Name, Vec<Name>)>,
}

impl TopologyTerm {
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.values.is_empty()
            && self.values.iter().all(|(key, values)| {
                labels
                    .get(key)
                    .is_some_and(|value| values.iter().any(|allowed| **allowed == *value))
            })
    }
}

impl From<&NodeTerm> for Selector {
    /// The label part of a term, for matching objects that are no nodes; nothing if it does not parse.
    fn from(term: &NodeTerm) -> Self {
        term.parsed.as_ref().map_or(Self::NOTHING, |parsed| {
            Self::all(parsed.labels.iter().cloned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(operator: Operator, values: &[&str]) -> FieldRequirement {
        let values = values.iter().map(|v| Name::from(*v)).collect();
        FieldRequirement {
            key: "metadata.name".into(),
            operator: Some(operator),
            values,
        }
    }

    fn zone_in(values: &[&str]) -> Vec<Result<Requirement, SelectorError>> {
        vec![Requirement::new(
            "zone",
            Operator::In,
            values.iter().map(|v| Name::from(*v)).collect(),
        )]
    }

    #[test]
    fn terms_and_one_node() {
        let node = NodeSpec {
            name: "n1".into(),
            labels: [("zone", "a")].into_iter().collect(),
            ..NodeSpec::default()
        };
        for (case, labels, fields, on_node, on_labels) in [
            (
                "an empty term matches nothing",
                vec![],
                vec![],
                false,
                false,
            ),
            ("labels", zone_in(&["a"]), vec![], true, true),
            ("another zone", zone_in(&["b"]), vec![], false, false),
            (
                "name",
                vec![],
                vec![field(Operator::In, &["n1"])],
                true,
                true,
            ),
            (
                "another name",
                vec![],
                vec![field(Operator::In, &["n2"])],
                false,
                true,
            ),
            (
                "not that name",
                vec![],
                vec![field(Operator::NotIn, &["n1"])],
                false,
                true,
            ),
            (
                "two names do not parse",
                zone_in(&["a"]),
                vec![field(Operator::In, &["n1", "n2"])],
                false,
                false,
            ),
            (
                "fields know no Exists",
                zone_in(&["a"]),
                vec![field(Operator::Exists, &[])],
                false,
                false,
            ),
            (
                "no value does not parse",
                zone_in(&[]),
                vec![],
                false,
                false,
            ),
        ] {
            let term = NodeTerm::new(labels, fields);
            let found = (
                term.matches(NodeMatch::Node(&node)),
                term.matches(NodeMatch::Labels(&node.labels)),
            );
            assert_eq!(found, (on_node, on_labels), "{case}");
        }
    }

    #[test]
    fn a_selector_without_terms_matches_no_node_and_bad_terms_do_not_hide_good_ones() {
        let node = NodeSpec {
            labels: [("zone", "a")].into_iter().collect(),
            ..NodeSpec::default()
        };
        assert!(!NodeSelector::default().matches(NodeMatch::Node(&node)));
        let terms = vec![
            NodeTerm::new(zone_in(&[]), vec![]),
            NodeTerm::new(zone_in(&["a"]), vec![]),
        ];
        assert!(NodeSelector { terms }.matches(NodeMatch::Node(&node)));
        let required = RequiredNodes {
            pairs: None,
            affinity: Some(NodeSelector::default()),
        };
        assert!(!required.matches(&node) && RequiredNodes::default().matches(&node));
    }
}
