//! Requirements and pod affinity terms, as text.

use crate::model::{Name, Operator, PodTerm, Requirement, Selector, SelectorError};

/// `"zone In a b"`, `"disk Exists"`.
pub fn requirement(text: &str) -> Result<Requirement, SelectorError> {
    let mut words = text.split(' ');
    let (key, operator) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let operator =
        Operator::parse(operator).unwrap_or_else(|| panic!("`{operator}` is not an operator"));
    Requirement::new(key, operator, words.map(Name::from).collect())
}

fn selector(requirements: &[&str]) -> Selector {
    let parse = |text: &&str| requirement(text).unwrap_or_else(|error| panic!("{error}"));
    Selector::all(requirements.iter().map(parse))
}

#[derive(Debug, Clone)]
pub struct TermBuilder(PodTerm);

/// Pods of namespace `default` that meet all of these requirements, within a domain of this key.
pub fn term(topology_key: &str, requirements: &[&str]) -> TermBuilder {
    TermBuilder(PodTerm {
        namespaces: vec!["default".into()],
        namespace_selector: Selector::NOTHING,
        selector: selector(requirements),
        topology_key: topology_key.into(),
    })
}

impl TermBuilder {
    /// Pods of these namespaces instead.
    pub fn namespaces(mut self, names: &[&str]) -> Self {
        self.0.namespaces = names.iter().map(|name| Name::from(*name)).collect();
        self
    }

    /// Also pods of namespaces whose labels meet all of these requirements.
    pub fn namespace_selector(mut self, requirements: &[&str]) -> Self {
        self.0.namespace_selector = selector(requirements);
        self
    }

    /// Anything else.
    pub fn with(mut self, change: impl FnOnce(&mut PodTerm)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn build(self) -> PodTerm {
        self.0
    }
}
