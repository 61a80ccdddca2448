//! Assigns addresses: one and a range for its pods to each node, and one to each pod.
//!
//! Nothing routes to them; they only have to be valid and unique.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
};

/// Node addresses come from 172.16.0.0/12, pod ranges of 1024 addresses from 10.128.0.0/9.
const NODES: u32 = u32::from_be_bytes([172, 16, 0, 0]);
const PODS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const RANGE_BITS: u32 = 10;
/// How many ranges there are.
const RANGES: u32 = 1 << (23 - RANGE_BITS);

/// A range of IPv4 addresses such as `10.128.4.0/22`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Range {
    base: u32,
    bits: u32,
}

impl Range {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/')?;
        let base: Ipv4Addr = base.parse().ok()?;
        let prefix: u32 = prefix
            .parse()
            .ok()
            .filter(|prefix| (8..=30).contains(prefix))?;
        let bits = 32 - prefix;
        Some(Self {
            base: base.to_bits() & (u32::MAX << bits),
            bits,
        })
    }

    /// Without the first, which names the range, and the last, which is for broadcasts.
    fn usable(self) -> u32 {
        (1 << self.bits) - 2
    }

    fn nth(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + 1 + n)
    }
}

/// The addresses of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeNetwork {
    pub(super) internal_ip: String,
    /// None when all ranges are taken.
    pub(super) pod_cidr: Option<String>,
}

#[derive(Default)]
pub(super) struct Addresses {
    slots: HashMap<String, u32>,
    free_slots: BTreeSet<u32>,
    by_address: HashMap<Ipv4Addr, String>,
    by_pod: HashMap<String, Ipv4Addr>,
    /// Where to look next in a range, so that an address is not reused at once.
    next: BTreeMap<u32, u32>,
}

impl Addresses {
    /// The addresses of a node, the same each time until it is forgotten.
    pub(super) fn of_node(&mut self, node: &str) -> NodeNetwork {
        let taken = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let slot = match self.slots.get(node) {
            Some(slot) => *slot,
            None => {
                let slot = self.free_slots.pop_first().unwrap_or(taken);
                self.slots.insert(node.to_owned(), slot);
                slot
            }
        };
        let pod_cidr = (slot < RANGES).then(|| {
            let base = Ipv4Addr::from_bits(PODS + (slot << RANGE_BITS));
            format!("{base}/{}", 32 - RANGE_BITS)
        });
        // Slots are dense, so a million nodes fit before addresses would leave the range.
        let internal_ip = Ipv4Addr::from_bits(NODES + (slot + 1) % (1 << 20));
        NodeNetwork {
            internal_ip: internal_ip.to_string(),
            pod_cidr,
        }
    }

    pub(super) fn forget_node(&mut self, node: &str) {
        if let Some(slot) = self.slots.remove(node) {
            self.free_slots.insert(slot);
        }
    }

    /// An address for a pod, the same each time until it is released; None when the range is full.
    pub(super) fn give(&mut self, pod: &str, range: Range) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_pod.get(pod) {
            return Some(*address);
        }
        let start = self.next.get(&range.base).copied().unwrap_or(0);
        // The first address is the node's own end of the bridge.
        let usable = range.usable();
        let candidates = (0..usable)
            .map(|i| (start + i) % usable)
            .filter(|n| *n != 0);
        let free = candidates
            .map(|n| (n, range.nth(n)))
            .find(|(_, a)| !self.by_address.contains_key(a));
        let (n, address) = free?;
        self.next.insert(range.base, n + 1);
        self.take(pod, address);
        Some(address)
    }

    /// Records an address that a pod has already.
    pub(super) fn take(&mut self, pod: &str, address: Ipv4Addr) {
        if !self.by_pod.contains_key(pod) {
            self.by_address.insert(address, pod.to_owned());
            self.by_pod.insert(pod.to_owned(), address);
        }
    }

    pub(super) fn release(&mut self, pod: &str) {
        if let Some(address) = self.by_pod.remove(pod)
            && self
                .by_address
                .get(&address)
                .is_some_and(|owner| owner == pod)
        {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_addresses_until_they_are_forgotten() {
        let mut addresses = Addresses::default();
        let first = addresses.of_node("a");
        assert_eq!(first.internal_ip, "172.16.0.1");
        assert_eq!(first.pod_cidr.as_deref(), Some("10.128.0.0/22"));
        let second = addresses.of_node("b");
        assert_eq!(
            (second.internal_ip.as_str(), second.pod_cidr.as_deref()),
            ("172.16.0.2", Some("10.128.4.0/22"))
        );
        assert_eq!(addresses.of_node("a"), first);
        addresses.forget_node("a");
        assert_eq!(addresses.of_node("c"), first);
        for i in 0..RANGES {
            addresses.of_node(&format!("n{i}"));
        }
        assert_eq!(addresses.of_node("one too many").pod_cidr, None);
    }

    #[test]
    fn pods_get_addresses_of_their_own() {
        let mut addresses = Addresses::default();
        let range = Range::parse("10.1.2.0/29").unwrap();
        let given: Vec<_> = (0..5)
            .map(|i| addresses.give(&i.to_string(), range).unwrap().to_string())
            .collect();
        assert_eq!(
            given,
            ["10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"]
        );
        assert_eq!(addresses.give("6", range), None, "the range is full");
        assert_eq!(
            addresses.give("3", range).unwrap().to_string(),
            "10.1.2.5",
            "asking again changes nothing"
        );
        addresses.release("2");
        assert_eq!(addresses.give("6", range).unwrap().to_string(), "10.1.2.4");
    }

    #[test]
    fn ranges_are_checked() {
        for (text, good) in [
            ("10.1.2.0/24", true),
            ("10.1.2.0/31", false),
            ("10.1.2.0", false),
            ("10.1.2/24", false),
            ("fd00::/64", false),
            ("", false),
        ] {
            assert_eq!(Range::parse(text).is_some(), good, "{text}");
        }
    }
}
