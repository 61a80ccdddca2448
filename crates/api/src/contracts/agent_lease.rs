//! The Lease of an agent: as long as the agent renews it, the agent is alive. It is in [`NAMESPACE`](super::NAMESPACE).

use std::hash::Hasher;

use fnv::FnvHasher;

/// Label: `"true"` on the Leases of agents. Others of the namespace are those of elections.
pub const IS_AGENT: &str = "tidepool.io/agent";
/// Label: the node, cut as in the name.
pub const NODE: &str = "tidepool.io/node";

const PREFIX: &str = "agent-";
/// A label value has no more characters.
const LONGEST_LABEL: usize = 63;
/// An object's name has no more characters.
const LONGEST_NAME: usize = 253;

/// The name of the Lease of a node.
pub fn name(node: &str) -> String {
    format!("{PREFIX}{}", shorten(node, LONGEST_NAME - PREFIX.len()))
}

/// The value of [`NODE`].
pub fn label(node: &str) -> String {
    shorten(node, LONGEST_LABEL)
}

/// The node of a Lease. An agent may write its own Lease only, so the name of the Lease decides, not the holder.
pub fn node<'a>(lease: &'a str, holder: Option<&'a str>) -> Option<&'a str> {
    let holder = match holder {
        Some(holder) => holder,
        None => lease.strip_prefix(PREFIX)?,
    };
    (name(holder) == lease).then_some(holder)
}

/// A longer text is cut, and a hash of the whole makes it unique.
fn shorten(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut hash = FnvHasher::default();
    hash.write(text.as_bytes());
    let hash = format!("-{:016x}", hash.finish());
    let mut end = longest - hash.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hash}", text[..end].trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_different() {
        assert_eq!(name("worker-1"), "agent-worker-1");
        let longest = "a".repeat(247);
        assert_eq!(name(&longest), format!("agent-{longest}"));
        let [first, second] = ["b", "c"].map(|end| name(&format!("{}{end}", "a".repeat(247))));
        assert_eq!((first.len(), second.len()), (253, 253));
        assert_ne!(first, second);
        assert_eq!(label(&"n".repeat(64)).len(), 63);
    }

    #[test]
    fn a_lease_is_of_the_node_in_its_name() {
        let long = "n".repeat(250);
        let cut = name(&long);
        let other_hash = format!("agent-{}-{:016x}", &long[..230], 7);
        for (lease, holder, want) in [
            ("agent-n1", Some("n1"), Some("n1")),
            ("agent-n1", None, Some("n1")),
            ("agent-n1", Some("n2"), None),
            ("agent-n1", Some(""), None),
            ("tidepool-controllers", Some("x"), None),
            (&*cut, Some(&*long), Some(&*long)),
            (&*cut, Some(&*"m".repeat(250)), None),
            (&*other_hash, Some(&*long), None),
            ("agent-\u{e9}234567890123456", Some(&*long), None),
        ] {
            assert_eq!(node(lease, holder), want, "{lease} {holder:?}");
        }
    }
}
