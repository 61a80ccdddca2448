//! A node as its object describes it. The cluster knows what pods take of it.

use std::hash::Hasher;
use std::sync::Arc;

use super::{Amounts, Labels, Name, QosTaint, Taint, Topology};
use fnv::FnvHasher;

/// A node as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub spec: NodeSpec,
    /// From `status.allocatable` only.
    pub allocatable: Amounts,
    /// [`fingerprint`] of the types and statuses of its conditions: only a change of them matters.
    pub conditions: u64,
    /// [`fingerprint`] of its annotations.
    pub annotations: u64,
}

/// Distinguishes lists of pairs without keeping them.
pub fn fingerprint<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    // The result is the same everywhere and always, which the standard library does not promise of its own hasher.
    let mut hasher = FnvHasher::default();
    for text in pairs.into_iter().flat_map(|(key, value)| [key, value]) {
        hasher.write(text.as_bytes());
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// What facts may look at: everything about a node that is neither a number nor a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSpec {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub images: Images,
    pub declared_features: Vec<Name>,
    /// The cluster knows a CustomNodeResource of this node.
    pub reports: bool,
    /// The QoS taints of its CustomNodeResource.
    pub qos_taints: Vec<QosTaint>,
    /// Its CustomNodeResource has the condition `MidLSUnsupported`.
    pub refuses_mid_latency_sensitive: bool,
    /// The NUMA zones in its CustomNodeResource.
    pub topology: Option<Arc<Topology>>,
    /// It has the annotation `node.koordinator.sh/reservation`. The reserved amounts are not in `allocatable`.
    pub has_reservation: bool,
}

/// An image that is on the node, under all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub names: Vec<Name>,
    pub size: i64,
}

/// The images of a node, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Images(Vec<(Name, i64)>);

impl Images {
    pub fn contains(&self, name: &str) -> bool {
        self.0
            .binary_search_by(|(known, _)| (**known).cmp(name))
            .is_ok()
    }

    /// Every name once, with the size of the first image that has it.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.0.iter().map(|(name, size)| (name, *size))
    }
}

impl FromIterator<Image> for Images {
    fn from_iter<I: IntoIterator<Item = Image>>(images: I) -> Self {
        let mut names: Vec<(Name, i64)> = images
            .into_iter()
            .flat_map(|image| {
                let size = image.size;
                image.names.into_iter().map(move |name| (name, size))
            })
            .collect();
        // Stable, so that the first of equal names stays the first.
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names.dedup_by(|later, first| later.0 == first.0);
        Self(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_by_name() {
        let image = |names: &[&str], size| Image {
            names: names.iter().map(|name| Name::from(*name)).collect(),
            size,
        };
        let images: Images = [image(&["b:1", "a:1"], 5), image(&["a:1"], 7)]
            .into_iter()
            .collect();
        let found: Vec<(&str, i64)> = images.iter().map(|(name, size)| (&**name, size)).collect();
        assert_eq!(found, [("a:1", 5), ("b:1", 5)]);
        assert!(images.contains("b:1") && !images.contains("b"));
    }
}
