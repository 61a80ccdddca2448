//! Builders of nodes and pods.

use std::sync::Arc;

use super::affinity::TermBuilder;
use crate::model::{
    ContainerResources, Effect, Enhancements, HostPort, Image, Inclusion, Labels, Name, Node,
    NodeSpec, Owner, Pod, PodKind, PodRequests, PodResources, PreferredPodTerm, QosClass, QosLevel,
    Quantities, Quantity, Requirement, Resource, Selector, SpreadConstraint, Taint, Toleration,
    TolerationOperator, Unsatisfiable, ZoneSet,
};

/// `"cpu=500m memory=1Gi example.com/gpu=1"`
pub(super) fn quantities(text: &str) -> Quantities {
    text.split_whitespace()
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .unwrap_or_else(|| panic!("`{pair}` is not name=quantity"));
            let resource =
                Resource::parse(name).unwrap_or_else(|| panic!("`{name}` is not a resource"));
            (
                resource,
                Quantity::parse(value).unwrap_or_else(|error| panic!("{error}")),
            )
        })
        .collect()
}

fn with_label(labels: &Labels, key: &str, value: &str) -> Labels {
    let known = labels.iter().map(|(k, v)| (k.clone(), v.clone()));
    known
        .chain([(Name::from(key), Name::from(value))])
        .collect()
}

#[derive(Debug, Clone)]
pub struct NodeBuilder(Node);

/// A node with nothing but a name and capacity for 110 pods.
pub fn node(name: &str) -> NodeBuilder {
    let spec = NodeSpec {
        name: name.into(),
        ..NodeSpec::default()
    };
    NodeBuilder(Node {
        spec,
        allocatable: [(Resource::Pods, 110)].into_iter().collect(),
        ..Node::default()
    })
}

impl NodeBuilder {
    /// Adds to what it offers: `"cpu=4 memory=16Gi"`.
    pub fn allocatable(mut self, text: &str) -> Self {
        for (resource, quantity) in quantities(text) {
            let amount = resource.integer(quantity);
            self.0.allocatable.set(resource, amount);
        }
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.spec.labels = with_label(&self.0.spec.labels, key, value);
        self
    }

    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.0.spec.taints.push(Taint {
            key: key.into(),
            value: value.into(),
            effect: Effect::parse(effect),
        });
        self
    }

    /// With the annotation `node.koordinator.sh/reservation`.
    pub fn with_reservation(mut self) -> Self {
        self.0.spec.has_reservation = true;
        self
    }

    pub fn unschedulable(mut self) -> Self {
        self.0.spec.unschedulable = true;
        self
    }

    pub fn image(mut self, name: &str, size: i64) -> Self {
        let known = self.0.spec.images.iter().map(|(name, size)| Image {
            names: vec![name.clone()],
            size,
        });
        let more = Image {
            names: vec![name.into()],
            size,
        };
        self.0.spec.images = known.chain([more]).collect();
        self
    }

    pub fn feature(mut self, name: &str) -> Self {
        self.0.spec.declared_features.push(name.into());
        self
    }

    /// Anything else.
    pub fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn build(self) -> Node {
        self.0
    }
}

#[derive(Debug, Clone)]
pub struct PodBuilder {
    pod: Pod,
    kind: PodKind,
    resources: PodResources,
}

/// A pod in namespace `default` whose uid is its name. Without `container`, it has one without requests.
pub fn pod(name: &str) -> PodBuilder {
    let pod = Pod {
        name: name.into(),
        uid: name.into(),
        scheduler_name: "default-scheduler".into(),
        ..Pod::default()
    };
    let kind = PodKind {
        namespace: "default".into(),
        ..PodKind::default()
    };
    PodBuilder {
        pod,
        kind,
        resources: PodResources::default(),
    }
}

impl PodBuilder {
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.kind.namespace = namespace.into();
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.kind.labels = with_label(&self.kind.labels, key, value);
        self
    }

    /// One more container with these requests.
    pub fn container(mut self, requests: &str) -> Self {
        self.resources.containers.push(ContainerResources {
            requests: quantities(requests),
            ..Default::default()
        });
        self
    }

    pub fn init(mut self, requests: &str) -> Self {
        self.resources.init_containers.push(ContainerResources {
            requests: quantities(requests),
            ..Default::default()
        });
        self
    }

    pub fn sidecar(mut self, requests: &str) -> Self {
        let container = ContainerResources {
            requests: quantities(requests),
            sidecar: true,
            status: None,
        };
        self.resources.init_containers.push(container);
        self
    }

    pub fn overhead(mut self, text: &str) -> Self {
        self.resources.overhead = quantities(text);
        self
    }

    pub fn pod_level(mut self, text: &str) -> Self {
        self.resources.pod_level = quantities(text);
        self
    }

    /// Bound to a node.
    pub fn on(mut self, node: &str) -> Self {
        self.pod.node = Some(node.into());
        self
    }

    pub fn priority(mut self, priority: i32) -> Self {
        self.pod.priority = priority;
        self
    }

    pub fn class(mut self, class: QosClass) -> Self {
        self.pod.qos = class;
        self
    }

    /// Sets the level that lives on what others leave idle.
    pub fn reclaimed(mut self) -> Self {
        self.pod.level = QosLevel::Reclaimed;
        self
    }

    /// Sets the level dedicated_cores with `numa_binding`.
    pub fn dedicated(mut self, exclusive: Option<bool>) -> Self {
        self.pod.level = QosLevel::Dedicated;
        self.pod.enhancements = Enhancements {
            numa_binding: true,
            numa_exclusive: exclusive,
        };
        self
    }

    /// Has these NUMA zones of its node, such as `0,1`.
    pub fn zones(mut self, zones: &str) -> Self {
        self.pod.zones = ZoneSet::parse(zones).ok();
        self
    }

    pub fn terminating(mut self) -> Self {
        self.kind.terminating = true;
        self
    }

    /// An empty effect tolerates every effect.
    pub fn tolerates(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.pod.tolerations.push(Toleration {
            key: key.into(),
            operator: TolerationOperator::Equal,
            value: value.into(),
            effect: (!effect.is_empty()).then(|| Effect::parse(effect)),
        });
        self
    }

    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        let known = self.pod.nodes.pairs.take().unwrap_or_default();
        self.pod.nodes.pairs = Some(with_label(&known, key, value));
        self
    }

    pub fn spread(mut self, constraint: SpreadBuilder) -> Self {
        self.pod.spread.push(constraint.0);
        self
    }

    pub fn owned_by(mut self, kind: &str, name: &str) -> Self {
        let owner = Owner {
            api_version: match kind {
                "ReplicationController" => "v1".into(),
                _ => "apps/v1".into(),
            },
            kind: kind.into(),
            name: name.into(),
            uid: name.into(),
        };
        self.pod.owner = Some(owner);
        self
    }

    pub fn image(mut self, name: &str) -> Self {
        self.pod.images.push(name.into());
        self
    }

    /// Required pod affinity.
    pub fn near(mut self, term: TermBuilder) -> Self {
        self.kind.affinity.push(term.build());
        self
    }

    /// Required pod anti-affinity.
    pub fn apart(mut self, term: TermBuilder) -> Self {
        self.kind.anti_affinity.push(term.build());
        self
    }

    pub fn prefers_near(mut self, weight: i64, term: TermBuilder) -> Self {
        let term = term.build();
        self.kind
            .preferred_affinity
            .push(PreferredPodTerm { weight, term });
        self
    }

    pub fn prefers_apart(mut self, weight: i64, term: TermBuilder) -> Self {
        let term = term.build();
        self.kind
            .preferred_anti_affinity
            .push(PreferredPodTerm { weight, term });
        self
    }

    pub fn host_port(mut self, ip: &str, protocol: &str, port: i32) -> Self {
        self.kind.ports.push(HostPort {
            ip: ip.into(),
            protocol: protocol.into(),
            port,
        });
        self
    }

    /// Anything else about the pod.
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.pod);
        self
    }

    /// Anything else about its kind.
    pub fn kind(mut self, change: impl FnOnce(&mut PodKind)) -> Self {
        change(&mut self.kind);
        self
    }

    pub fn build(&self) -> Arc<Pod> {
        let mut resources = self.resources.clone();
        if resources.containers.is_empty() {
            resources.containers.push(ContainerResources::default());
        }
        resources.level = self.pod.level;
        let requests = PodRequests::of(&resources);
        Arc::new(Pod {
            kind: Arc::new(self.kind.clone()),
            requests,
            ..self.pod.clone()
        })
    }
}

#[derive(Debug, Clone)]
pub struct SpreadBuilder(SpreadConstraint);

/// A hard constraint that selects nothing yet.
pub fn spread(key: &str, max_skew: i32) -> SpreadBuilder {
    SpreadBuilder(SpreadConstraint {
        max_skew,
        topology_key: key.into(),
        when_unsatisfiable: Unsatisfiable::DoNotSchedule,
        selector: Selector::NOTHING,
        min_domains: 1,
        node_affinity: Inclusion::Honor,
        node_taints: Inclusion::Ignore,
    })
}

impl SpreadBuilder {
    pub fn hard(mut self) -> Self {
        self.0.when_unsatisfiable = Unsatisfiable::DoNotSchedule;
        self
    }

    pub fn soft(mut self) -> Self {
        self.0.when_unsatisfiable = Unsatisfiable::ScheduleAnyway;
        self
    }

    /// Selects pods with this label `app`.
    pub fn app(mut self, app: &str) -> Self {
        self.0.selector = Selector::all([Requirement::equals("app", app)]);
        self
    }

    pub fn everything(mut self) -> Self {
        self.0.selector = Selector::EVERYTHING;
        self
    }

    pub fn min_domains(mut self, domains: i32) -> Self {
        self.0.min_domains = domains;
        self
    }

    pub fn ignore_affinity(mut self) -> Self {
        self.0.node_affinity = Inclusion::Ignore;
        self
    }

    pub fn honor_taints(mut self) -> Self {
        self.0.node_taints = Inclusion::Honor;
        self
    }
}
