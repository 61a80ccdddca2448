//! The Node objects of simulated nodes.

use std::collections::BTreeMap;

use api::zone_grid::ZoneGrid;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeSystemInfo, Taint},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};

use super::{addresses::NodeNetwork, zones::NUMA};

/// A node to create: what differs between nodes. The kubelet fills in everything else.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub name: String,
    pub zone: String,
    /// Cores.
    pub cpu: u32,
    /// GiB.
    pub memory: u32,
    /// The most pods it runs.
    pub pods: u32,
    pub taints: Vec<Taint>,
    /// Its NUMA zones, if its CustomNodeResource has any.
    pub numa: Option<ZoneGrid>,
}

impl Shape {
    /// One of `total` demo nodes, spread over three zones; `index` counts from zero.
    pub fn demo(index: usize, total: usize) -> Self {
        Self {
            name: Self::numbered("node", index, total),
            zone: ["zone-a", "zone-b", "zone-c"][index % 3].into(),
            cpu: 16,
            memory: 64,
            pods: 110,
            ..Self::default()
        }
    }

    /// The name of one of `total` nodes; `index` counts from zero.
    pub fn numbered(prefix: &str, index: usize, total: usize) -> String {
        let width = total.to_string().len().max(3);
        format!("{prefix}-{:0width$}", index + 1)
    }

    pub(super) fn node(&self) -> Node {
        let labels = [
            ("kubernetes.io/hostname", self.name.clone()),
            ("kubernetes.io/os", "linux".into()),
            ("kubernetes.io/arch", "amd64".into()),
            (
                "node.kubernetes.io/instance-type",
                format!("tidepool-{}c-{}g", self.cpu, self.memory),
            ),
            ("topology.kubernetes.io/region", "local".into()),
            ("topology.kubernetes.io/zone", self.zone.clone()),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value));
        let capacity = quantities(&[
            ("cpu", self.cpu.to_string()),
            ("memory", format!("{}Gi", self.memory)),
            ("pods", self.pods.to_string()),
            ("ephemeral-storage", "200Gi".into()),
        ]);
        // A little is reserved for the system, as on a real machine.
        let mut allocatable = capacity.clone();
        allocatable.extend(quantities(&[
            (
                "cpu",
                format!(
                    "{}m",
                    u64::from(self.cpu) * 1000 - u64::from(self.cpu.min(4)) * 100
                ),
            ),
            (
                "memory",
                format!(
                    "{}Mi",
                    u64::from(self.memory) * 1024 - u64::from(self.memory.min(2)) * 512
                ),
            ),
        ]));
        let mut node = Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.into()),
                annotations: self
                    .numa
                    .map(|grid| [(NUMA.to_owned(), grid.to_string())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..NodeSpec::default()
            }),
            ..Node::default()
        };
        let status = node.status.get_or_insert_default();
        status.capacity = Some(capacity);
        status.allocatable = Some(allocatable);
        node
    }
}

fn quantities(list: &[(&str, String)]) -> BTreeMap<String, Quantity> {
    list.iter()
        .map(|(name, text)| ((*name).to_owned(), Quantity(text.clone())))
        .collect()
}

pub(super) type Amounts = BTreeMap<String, Quantity>;

/// The extended resources in the capacity of a node.
pub(super) fn extended(node: &Node) -> Amounts {
    let capacity = node.status.as_ref().and_then(|it| it.capacity.as_ref());
    let all = capacity.into_iter().flatten();
    all.filter(|(name, _)| name.contains('/'))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect()
}

/// Brings changes of the capacity to the allocatable amounts, as a kubelet does: extended resources that differ from
/// `before` get their capacity, and those that are gone from the capacity go. Returns the names of the latter. Amounts
/// whose capacity did not change stay: a user may have made them lower.
pub(super) fn follow_capacity(node: &mut Node, before: &Amounts) -> Vec<String> {
    let now = extended(node);
    let status = node.status.get_or_insert_default();
    let allocatable = status.allocatable.get_or_insert_default();
    for (name, amount) in &now {
        if before.get(name) != Some(amount) {
            allocatable.insert(name.clone(), amount.clone());
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    gone.filter(|name| allocatable.remove(*name).is_some())
        .cloned()
        .collect()
}

/// The node with everything that its kubelet reports; values of others stay.
pub(super) fn completed(node: &Node, network: &NodeNetwork, now: Timestamp) -> Node {
    let mut node = node.clone();
    let name = node.metadata.name.clone().unwrap_or_default();
    let spec = node.spec.get_or_insert_default();
    if spec.pod_cidr.is_none()
        && let Some(cidr) = &network.pod_cidr
    {
        spec.pod_cidr = Some(cidr.clone());
        spec.pod_cidrs = Some(vec![cidr.clone()]);
    }
    let status = node.status.get_or_insert_default();
    // A kubelet reports everything in the capacity as allocatable, less what it reserves.
    for (resource, amount) in status.capacity.iter().flatten() {
        let allocatable = status.allocatable.get_or_insert_default();
        allocatable
            .entry(resource.clone())
            .or_insert_with(|| amount.clone());
    }
    // A kubelet always reports these, and without them no pod fits.
    let least = quantities(&[
        ("cpu", "16".into()),
        ("memory", "64Gi".into()),
        ("pods", "110".into()),
    ]);
    for amounts in [&mut status.capacity, &mut status.allocatable] {
        let amounts = amounts.get_or_insert_default();
        for (resource, amount) in &least {
            amounts
                .entry(resource.clone())
                .or_insert_with(|| amount.clone());
        }
    }
    let addresses = status.addresses.get_or_insert_default();
    for (type_, address) in [("InternalIP", &network.internal_ip), ("Hostname", &name)] {
        if !addresses.iter().any(|known| known.type_ == type_) {
            addresses.push(NodeAddress {
                type_: type_.into(),
                address: address.clone(),
            });
        }
    }
    if status
        .node_info
        .as_ref()
        .is_none_or(|info| info.kubelet_version.is_empty())
    {
        status.node_info = Some(system(&name));
    }
    status.conditions = Some(conditions(
        status.conditions.take().unwrap_or_default(),
        now,
    ));
    node
}

fn system(name: &str) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: "amd64".into(),
        operating_system: "linux".into(),
        os_image: "Tidepool simulated node".into(),
        kernel_version: "6.12.0".into(),
        container_runtime_version: concat!("tidepool://", env!("CARGO_PKG_VERSION")).into(),
        kubelet_version: "v1.36.4+tidepool".into(),
        machine_id: name.into(),
        system_uuid: name.into(),
        boot_id: name.into(),
        ..NodeSystemInfo::default()
    }
}

const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ),
    (
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    (
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ),
];

/// The kubelet's conditions of a healthy node; conditions of others stay.
fn conditions(mut written: Vec<NodeCondition>, now: Timestamp) -> Vec<NodeCondition> {
    for (type_, status, reason, message) in CONDITIONS {
        let old = written
            .iter()
            .position(|condition| condition.type_ == type_);
        if old.is_some_and(|at| written[at].status == status) {
            continue;
        }
        let condition = NodeCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        };
        match old {
            Some(at) => written[at] = condition,
            None => written.push(condition),
        }
    }
    written
}

/// Sets a fresh heartbeat in the node's own conditions.
pub(super) fn with_heartbeat(mut node: Node, now: Timestamp) -> Node {
    let conditions = node
        .status
        .as_mut()
        .and_then(|status| status.conditions.as_mut());
    for condition in conditions.into_iter().flatten() {
        if CONDITIONS
            .iter()
            .any(|(type_, ..)| condition.type_ == *type_)
        {
            condition.last_heartbeat_time = Some(Time(now));
        }
    }
    node
}

/// When the node last reported its status.
pub(super) fn last_report(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")?;
    ready.last_heartbeat_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network() -> NodeNetwork {
        NodeNetwork {
            internal_ip: "172.16.0.1".into(),
            pod_cidr: Some("10.128.0.0/22".into()),
        }
    }

    #[test]
    fn a_demo_node_is_complete() {
        let node = completed(
            &Shape::demo(4, 5000).node(),
            &network(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(node.metadata.name.as_deref(), Some("node-0005"));
        let status = node.status.as_ref().unwrap();
        let amount = |amounts: &Option<BTreeMap<String, Quantity>>, name: &str| {
            amounts.as_ref().unwrap()[name].0.clone()
        };
        assert_eq!(amount(&status.capacity, "cpu"), "16");
        assert_eq!(amount(&status.allocatable, "cpu"), "15600m");
        assert_eq!(amount(&status.allocatable, "memory"), "64512Mi");
        assert_eq!(
            node.spec.as_ref().unwrap().pod_cidr.as_deref(),
            Some("10.128.0.0/22")
        );
        assert_eq!(
            completed(&node, &network(), Timestamp::MAX),
            node,
            "nothing is missing"
        );
    }

    #[test]
    fn a_node_made_by_others_keeps_its_values() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "big"},
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "capacity": {"cpu": "96", "example.com/gpu": "8"},
                "allocatable": {"cpu": "96", "example.com/gpu": "8"},
                "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
                "conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "Custom", "status": "True"}],
            },
        }))
        .unwrap();
        let node = completed(&node, &network(), Timestamp::UNIX_EPOCH);
        let status = node.status.unwrap();
        let capacity: Vec<_> = status
            .capacity
            .unwrap()
            .into_iter()
            .map(|(name, amount)| format!("{name}={}", amount.0))
            .collect();
        assert_eq!(
            capacity,
            ["cpu=96", "example.com/gpu=8", "memory=64Gi", "pods=110"]
        );
        let addresses: Vec<_> = status
            .addresses
            .unwrap()
            .into_iter()
            .map(|a| a.address)
            .collect();
        assert_eq!(addresses, ["1.2.3.4", "big"]);
        assert_eq!(node.spec.unwrap().pod_cidr.as_deref(), Some("10.0.0.0/24"));
        let conditions: Vec<_> = status
            .conditions
            .unwrap()
            .into_iter()
            .map(|c| format!("{} {}", c.type_, c.status))
            .collect();
        assert_eq!(
            conditions,
            [
                "Ready True",
                "Custom True",
                "MemoryPressure False",
                "DiskPressure False",
                "PIDPressure False"
            ]
        );
    }

    #[test]
    fn allocatable_follows_the_capacity_of_extended_resources() {
        let amounts = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let all =
                pairs.map(|(name, amount)| (format!("x.io/{name}"), Quantity((*amount).into())));
            all.collect::<Amounts>()
        };
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        // Name, capacity before, capacity, allocatable, allocatable afterwards, removed.
        type Case<'a> = (
            &'a str,
            Pairs<'a>,
            Pairs<'a>,
            Pairs<'a>,
            Pairs<'a>,
            &'a [&'a str],
        );
        let cases: [Case; 4] = [
            ("added", &[], &[("a", "5")], &[], &[("a", "5")], &[]),
            (
                "changed",
                &[("a", "5")],
                &[("a", "7")],
                &[("a", "5")],
                &[("a", "7")],
                &[],
            ),
            (
                "removed",
                &[("a", "5")],
                &[],
                &[("a", "5")],
                &[],
                &["x.io/a"],
            ),
            (
                "lower than the capacity",
                &[("a", "5")],
                &[("a", "5")],
                &[("a", "4")],
                &[("a", "4")],
                &[],
            ),
        ];
        for (case, before, capacity, allocatable, want, removed) in cases {
            let mut node = Node::default();
            let status = node.status.get_or_insert_default();
            status.capacity = Some(amounts(capacity));
            status.allocatable = Some(amounts(allocatable));
            assert_eq!(
                follow_capacity(&mut node, &amounts(before)),
                removed,
                "{case}"
            );
            assert_eq!(
                node.status.unwrap().allocatable,
                Some(amounts(want)),
                "{case}"
            );
        }
    }
}
