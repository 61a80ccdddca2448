//! Label selectors and node selectors.

use engine::model::{
    FieldRequirement, NodeSelector, NodeTerm, Operator, Requirement, Selector, SelectorError,
};

use super::{name, names};
use crate::wire::core;
use crate::wire::meta::{LabelSelector, SelectorRequirement};

/// An absent selector matches nothing; one without requirements matches everything.
pub(crate) fn label_selector(selector: Option<&LabelSelector>) -> Result<Selector, SelectorError> {
    let Some(selector) = selector else {
        return Ok(Selector::NOTHING);
    };
    let pairs = selector
        .match_labels
        .iter()
        .map(|(key, value)| Requirement::new(key.as_str(), Operator::In, vec![name(value)]));
    let expressions = selector.match_expressions.iter().map(label_requirement);
    Ok(Selector::all(
        pairs.chain(expressions).collect::<Result<Vec<_>, _>>()?,
    ))
}

/// Label selectors have neither Gt nor Lt.
fn label_requirement(requirement: &SelectorRequirement) -> Result<Requirement, SelectorError> {
    match Operator::parse(&requirement.operator) {
        Some(Operator::Gt | Operator::Lt) | None => {
            Err(SelectorError::LabelOperator(name(&requirement.operator)))
        }
        Some(operator) => Requirement::new(
            requirement.key.as_str(),
            operator,
            names(&requirement.values),
        ),
    }
}

pub fn node_selector(selector: &core::NodeSelector) -> NodeSelector {
    NodeSelector {
        terms: selector.node_selector_terms.iter().map(node_term).collect(),
    }
}

pub(super) fn node_term(term: &core::NodeSelectorTerm) -> NodeTerm {
    let labels = term.match_expressions.iter().map(|requirement| {
        match Operator::parse(&requirement.operator) {
            Some(operator) => Requirement::new(
                requirement.key.as_str(),
                operator,
                names(&requirement.values),
            ),
            None => Err(SelectorError::Operator(name(&requirement.operator))),
        }
    });
    let fields = term
        .match_fields
        .iter()
        .map(|requirement| FieldRequirement {
            key: name(&requirement.key),
            operator: Operator::parse(&requirement.operator),
            values: names(&requirement.values),
        });
    let mut parsed = NodeTerm::new(labels.collect(), fields.collect());
    if parsed.parsed.is_err() {
        let labels = term.match_expressions.iter();
        let key = |label: &SelectorRequirement| (name(&label.key), !label.values.is_empty());
        parsed.faulty_keys = labels.map(key).collect();
    }
    parsed
}
