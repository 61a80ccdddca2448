//! LimitRanges: what the API server fills into containers, and what it refuses.

use std::collections::BTreeMap;

use super::resources::Native;
use crate::model::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRange {
    pub name: Name,
    pub items: Vec<LimitRangeItem>,
}

/// Quantities as they are written, by resource.
type Texts = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRangeItem {
    pub kind: LimitKind,
    pub default: Texts,
    pub default_request: Texts,
    pub min: Texts,
    pub max: Texts,
    pub max_limit_request_ratio: Texts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Container,
    Pod,
    /// Limits on other objects.
    Other,
}

impl LimitRange {
    /// Whether a container without this limit gets one, or its pod is refused for lack of it.
    fn needs_limit(&self, native: Native) -> bool {
        self.items.iter().any(|item| match item.kind {
            LimitKind::Container => item.default.contains_key(native.name()),
            LimitKind::Pod => item.max.contains_key(native.name()),
            LimitKind::Other => false,
        })
    }

    /// The field that refuses a request of 0, if one does.
    fn refuses_zero(&self, native: Native) -> Option<&'static str> {
        self.items.iter().find_map(|item| {
            let has = |texts: &Texts| texts.contains_key(native.name());
            match item.kind {
                LimitKind::Other => None,
                _ if has(&item.min) => Some("min"),
                _ if has(&item.max_limit_request_ratio) => Some("maxLimitRequestRatio"),
                _ => None,
            }
        })
    }
}

/// The LimitRange because of which native limits must be written as 0.
pub(super) fn needing_limit(ranges: &[LimitRange], native: Native) -> Option<&LimitRange> {
    ranges.iter().find(|range| range.needs_limit(native))
}

/// A warning for a pod that requests no native resources.
pub(super) fn refusing_zero(ranges: &[LimitRange]) -> Option<String> {
    ranges.iter().find_map(|range| {
        Native::ALL.into_iter().find_map(|native| {
            let field = range.refuses_zero(native)?;
            Some(format!(
                "LimitRange {} has {field} of {}, so the API server refuses pods that request tier resources instead; use \
                 another namespace",
                range.name,
                native.name()
            ))
        })
    })
}
