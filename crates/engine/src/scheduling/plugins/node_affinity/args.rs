//! The arguments: a node affinity in the format of Kubernetes, for all pods of a profile.

use serde::{Deserialize, Serialize};

use crate::model::{
    FieldRequirement, Name, NodeSelector, NodeTerm, Operator, PreferredNodeTerm, Requirement,
    SelectorError,
};
use crate::scheduling::framework::ArgsError;

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeAffinityArgs {
    /// Applied to every pod in addition to its own affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_affinity: Option<AddedAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddedAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeAffinityTerms>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub preferred: Vec<Preference>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeAffinityTerms {
    pub node_selector_terms: Vec<Term>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preference {
    pub weight: i32,
    pub preference: Term,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Term {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Expression>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expression {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl NodeAffinityArgs {
    /// The required and the preferred terms; or every fault with its place.
    pub(super) fn parse(
        self,
    ) -> Result<(Option<NodeSelector>, Vec<PreferredNodeTerm>), Vec<ArgsError>> {
        let given = self.added_affinity.unwrap_or_default();
        let mut errors = Vec::new();
        let required = given.required.map(|required| {
            let at = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
            let terms = required.node_selector_terms.into_iter().enumerate();
            let terms = terms
                .map(|(i, term)| term.parse(&format!("{at}.nodeSelectorTerms[{i}]"), &mut errors));
            NodeSelector {
                terms: terms.collect(),
            }
        });
        let preferred = given.preferred.into_iter().enumerate().map(|(i, given)| {
            let at = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
            let mut found = Vec::new();
            let term = given.preference.parse(&format!("{at}[{i}]"), &mut found);
            // A term of weight 0 has no effect, so its faults do not matter.
            if given.weight != 0 {
                errors.append(&mut found);
            }
            PreferredNodeTerm {
                weight: i64::from(given.weight),
                term,
            }
        });
        let preferred = preferred.collect();
        if errors.is_empty() {
            Ok((required, preferred))
        } else {
            Err(errors)
        }
    }
}

impl Term {
    fn parse(self, at: &str, errors: &mut Vec<ArgsError>) -> NodeTerm {
        let labels = self.match_expressions.into_iter().map(Expression::label);
        let fields = self.match_fields.into_iter().map(Expression::field);
        let term = NodeTerm::new(labels.collect(), fields.collect());
        for error in term.parsed.as_ref().err().into_iter().flatten() {
            let field = format!("{at}.{}", error.field);
            errors.push(ArgsError::new(field, &error.text[..]));
        }
        term
    }
}

impl Expression {
    fn label(self) -> Result<Requirement, SelectorError> {
        let operator = Operator::parse(&self.operator)
            .ok_or_else(|| SelectorError::Operator(self.operator.as_str().into()))?;
        Requirement::new(self.key, operator, names(&self.values))
    }

    fn field(self) -> FieldRequirement {
        FieldRequirement {
            key: self.key.into(),
            operator: Operator::parse(&self.operator),
            values: names(&self.values),
        }
    }
}

fn names(values: &[String]) -> Vec<Name> {
    values.iter().map(|value| value.as_str().into()).collect()
}
