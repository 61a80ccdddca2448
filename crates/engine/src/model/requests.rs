//! What a pod requests and what it occupies, by every rule that Kubernetes applies in one place or another.

use std::collections::BTreeMap;

use super::{
    Amounts, QosLevel, Quantity, Reclaimed, ReclaimedRequests, ReclaimedResource, Resource,
};

/// Accounted for a container that does not say how much cpu it wants, where that must not look like nothing.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Accounted for a container that does not say how much memory it wants: 200 MiB.
pub const DEFAULT_MEMORY: i64 = 200 << 20;

pub type Quantities = BTreeMap<Resource, Quantity>;

/// The resources a pod's object names.
#[derive(Debug, Clone, Default)]
pub struct PodResources {
    pub containers: Vec<ContainerResources>,
    /// In their order, sidecars among them.
    pub init_containers: Vec<ContainerResources>,
    pub pod_level: Quantities,
    pub pod_level_status: Option<StatusResources>,
    pub overhead: Quantities,
    /// A resize that the node can never grant: what the spec requests no longer counts.
    pub resize_infeasible: bool,
    pub level: QosLevel,
}

#[derive(Debug, Clone, Default)]
pub struct ContainerResources {
    pub requests: Quantities,
    /// An init container that keeps running.
    pub sidecar: bool,
    /// What the kubelet reports, once it reports resources at all.
    pub status: Option<StatusResources>,
}

#[derive(Debug, Clone, Default)]
pub struct StatusResources {
    pub requests: Quantities,
    pub allocated: Quantities,
}

/// The four answers to "how much".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodRequests {
    /// What must be free before the pod may come: spec, pod level, overhead.
    pub wanted: Amounts,
    /// What the pod occupies once it is there, resizes in progress included.
    pub placed: Amounts,
    /// What the pod occupies in thousandths of units, if that says more than `placed`.
    fractions: Option<Box<Amounts>>,
    /// What the pod occupies, with defaults for containers that do not say.
    pub placed_non_zero: NonZero,
    /// What scorers of NodeResourcesFit see: defaults for containers that do not say, but no pod level.
    pub scored: Amounts,
    /// `None` if the pod neither names reclaimed resources nor is of the level that lives on them.
    pub reclaimed: Option<Box<ReclaimedRequests>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NonZero {
    pub milli_cpu: i64,
    pub memory: i64,
}

impl PodRequests {
    pub fn of(pod: &PodResources) -> Self {
        let plain = Rules {
            pod_level: true,
            status: false,
            cpu_default: false,
            memory_default: false,
        };
        let placed = pod.total(Rules {
            status: true,
            ..plain
        });
        // With pod-level requests, a default stands in only for what the whole pod does not name.
        let unnamed = |resource| !pod.has_pod_level() || !placed.contains_key(&resource);
        let non_zero = pod.total(Rules {
            status: true,
            cpu_default: unnamed(Resource::Cpu),
            memory_default: unnamed(Resource::Memory),
            ..plain
        });
        let non_zero = integers(&non_zero);
        Self {
            wanted: integers(&pod.total(plain)),
            placed: integers(&placed),
            fractions: fractions(&placed).map(Box::new),
            placed_non_zero: NonZero {
                milli_cpu: non_zero.get(&Resource::Cpu),
                memory: non_zero.get(&Resource::Memory),
            },
            scored: integers(&pod.total(Rules {
                pod_level: false,
                status: false,
                cpu_default: true,
                memory_default: true,
            })),
            reclaimed: reclaimed(pod).map(Box::new),
        }
    }

    /// Whether less of something is requested than before, to a thousandth of a unit, as Kubernetes compares.
    pub fn shrank_from(&self, before: &Self) -> bool {
        before.placed.iter().any(|(resource, _)| {
            !self.placed.contains(resource)
                || self.placed_milli(resource) < before.placed_milli(resource)
        })
    }

    fn placed_milli(&self, resource: &Resource) -> i64 {
        match &self.fractions {
            Some(all) => all.get(resource),
            None => milli(resource, self.placed.get(resource)),
        }
    }

    /// What must be free of the reclaimed account before the pod may come.
    pub fn wanted_reclaimed(&self) -> Reclaimed {
        self.reclaimed
            .as_ref()
            .map_or(Reclaimed::default(), |requests| requests.wanted)
    }

    /// What must be free of the idle pool that reclaimed and batch pods share.
    pub fn wanted_of_pool(&self, resource: ReclaimedResource) -> i64 {
        let reclaimed = self.wanted_reclaimed().get(resource);
        reclaimed.saturating_add(self.wanted.get(&resource.batch()))
    }
}

/// Reclaimed resources are accounted as cpu and memory are, so they are summed as cpu and memory.
fn reclaimed(pod: &PodResources) -> Option<ReclaimedRequests> {
    if pod.level != QosLevel::Reclaimed && !pod.names_reclaimed() {
        return None;
    }
    let plain = Rules {
        pod_level: false,
        status: false,
        cpu_default: false,
        memory_default: false,
    };
    let view = pod.only_reclaimed();
    let total = |rules| Reclaimed::wanted(&integers(&view.total(rules)));
    Some(ReclaimedRequests {
        wanted: total(plain),
        placed: total(Rules {
            status: true,
            ..plain
        }),
        non_zero: total(Rules {
            status: true,
            cpu_default: true,
            memory_default: true,
            ..plain
        }),
    })
}

/// Both spellings of each resource as one amount of cpu or memory; each is rounded up on its own.
fn as_native(list: &Quantities) -> Quantities {
    let mut all = Quantities::new();
    for (resource, quantity) in list {
        let (native, amount) = match ReclaimedResource::of(resource) {
            Some(ReclaimedResource::Cpu) => (Resource::Cpu, Quantity::from_milli(quantity.units())),
            Some(ReclaimedResource::Memory) => {
                (Resource::Memory, Quantity::from_units(quantity.units()))
            }
            None => continue,
        };
        *all.entry(native).or_default() += amount;
    }
    all
}

#[derive(Clone, Copy)]
struct Rules {
    pod_level: bool,
    status: bool,
    cpu_default: bool,
    memory_default: bool,
}

impl PodResources {
    fn names_reclaimed(&self) -> bool {
        let containers = self.containers.iter().chain(&self.init_containers);
        let lists = containers.map(|container| &container.requests);
        lists
            .chain([&self.overhead])
            .flat_map(Quantities::keys)
            .any(|resource| ReclaimedResource::of(resource).is_some())
    }

    /// The pod as it would be if reclaimed resources were cpu and memory, and there were no others.
    fn only_reclaimed(&self) -> Self {
        let containers = |all: &[ContainerResources]| -> Vec<ContainerResources> {
            let status = |status: &StatusResources| StatusResources {
                requests: as_native(&status.requests),
                allocated: as_native(&status.allocated),
            };
            let container = |container: &ContainerResources| ContainerResources {
                requests: as_native(&container.requests),
                sidecar: container.sidecar,
                status: container.status.as_ref().map(status),
            };
            all.iter().map(container).collect()
        };
        Self {
            containers: containers(&self.containers),
            init_containers: containers(&self.init_containers),
            overhead: as_native(&self.overhead),
            resize_infeasible: self.resize_infeasible,
            ..Self::default()
        }
    }

    fn has_pod_level(&self) -> bool {
        self.pod_level.keys().any(Resource::is_pod_level)
    }

    fn total(&self, rules: Rules) -> Quantities {
        let mut total = Quantities::new();
        for container in &self.containers {
            add(&mut total, &self.of_container(container, rules));
        }
        let mut sidecars = Quantities::new();
        let mut most = Quantities::new();
        for container in &self.init_containers {
            let own = self.of_container(container, rules);
            let mut candidate;
            if container.sidecar {
                add(&mut total, &own);
                add(&mut sidecars, &own);
                candidate = sidecars.clone();
            } else {
                candidate = own;
                add(&mut candidate, &sidecars);
            }
            raise(&mut most, &candidate);
        }
        raise(&mut total, &most);
        if rules.pod_level && self.has_pod_level() {
            let status = self.pod_level_status.as_ref().filter(|_| rules.status);
            let effective = self.effective(&self.pod_level, status);
            // What only the status names is left to the containers.
            for resource in self.pod_level.keys().filter(|r| r.is_pod_level()) {
                let quantity = effective.get(resource).copied().unwrap_or_default();
                total.insert(resource.clone(), quantity);
            }
        }
        add(&mut total, &self.overhead);
        total
    }

    fn of_container(&self, container: &ContainerResources, rules: Rules) -> Quantities {
        let status = container.status.as_ref().filter(|_| rules.status);
        let mut requests = self.effective(&container.requests, status);
        if rules.cpu_default {
            requests
                .entry(Resource::Cpu)
                .or_insert(Quantity::from_milli(DEFAULT_MILLI_CPU));
        }
        if rules.memory_default {
            requests
                .entry(Resource::Memory)
                .or_insert(Quantity::from_units(DEFAULT_MEMORY));
        }
        requests
    }

    fn effective(&self, spec: &Quantities, status: Option<&StatusResources>) -> Quantities {
        let Some(status) = status else {
            return spec.clone();
        };
        let mut most = if self.resize_infeasible {
            Quantities::new()
        } else {
            spec.clone()
        };
        raise(&mut most, &status.requests);
        raise(&mut most, &status.allocated);
        most
    }
}

fn add(total: &mut Quantities, more: &Quantities) {
    for (resource, quantity) in more {
        *total.entry(resource.clone()).or_default() += *quantity;
    }
}

fn raise(most: &mut Quantities, candidate: &Quantities) {
    for (resource, quantity) in candidate {
        let known = most.entry(resource.clone()).or_insert(*quantity);
        *known = (*known).max(*quantity);
    }
}

/// Rounded once, after summing.
fn integers(quantities: &Quantities) -> Amounts {
    quantities
        .iter()
        .map(|(resource, quantity)| (resource.clone(), resource.integer(*quantity)))
        .collect()
}

fn milli(resource: &Resource, amount: i64) -> i64 {
    match resource {
        Resource::Cpu => amount,
        _ => amount.saturating_mul(1000),
    }
}

fn fractions(quantities: &Quantities) -> Option<Amounts> {
    let loses = |(resource, quantity): (&Resource, &Quantity)| {
        milli(resource, resource.integer(*quantity)) != quantity.milli()
    };
    let exact = |(resource, quantity): (&Resource, &Quantity)| (resource.clone(), quantity.milli());
    let all = quantities.iter();
    all.clone().any(loses).then(|| all.map(exact).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"cpu=100m memory=1Gi"`
    fn quantities(text: &str) -> Quantities {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| {
                (
                    Resource::parse(name).unwrap(),
                    Quantity::parse(value).unwrap(),
                )
            })
            .collect()
    }

    fn container(text: &str) -> ContainerResources {
        ContainerResources {
            requests: quantities(text),
            ..Default::default()
        }
    }

    fn sidecar(text: &str) -> ContainerResources {
        ContainerResources {
            sidecar: true,
            ..container(text)
        }
    }

    fn cpu(amounts: &Amounts) -> i64 {
        amounts.get(&Resource::Cpu)
    }

    #[test]
    fn init_containers_sidecars_and_overhead() {
        let mut pod = PodResources {
            containers: vec![container("cpu=100m"), container("cpu=200m")],
            init_containers: vec![
                container("cpu=500m"),
                sidecar("cpu=50m"),
                container("cpu=400m"),
            ],
            ..Default::default()
        };
        assert_eq!(
            cpu(&PodRequests::of(&pod).wanted),
            500,
            "the first init container needs most"
        );
        pod.overhead = quantities("cpu=10m example.com/x=1");
        let requests = PodRequests::of(&pod);
        assert_eq!(cpu(&requests.wanted), 510);
        assert_eq!(
            requests
                .wanted
                .get(&Resource::Scalar("example.com/x".into())),
            1,
            "overhead may bring a new name"
        );
        pod.init_containers = vec![container("cpu=100m"), sidecar("cpu=300m")];
        assert_eq!(
            cpu(&PodRequests::of(&pod).wanted),
            610,
            "sidecars run beside the containers"
        );
    }

    #[test]
    fn defaults_stand_in_for_missing_keys_only() {
        let pod = PodResources {
            containers: vec![container("cpu=0"), container("")],
            ..Default::default()
        };
        let requests = PodRequests::of(&pod);
        assert_eq!(
            requests.placed_non_zero,
            NonZero {
                milli_cpu: 100,
                memory: 400 << 20
            }
        );
        assert_eq!(cpu(&requests.placed), 0);
        assert_eq!(cpu(&requests.scored), 100);
        assert_eq!(
            PodRequests::of(&PodResources::default()).placed_non_zero,
            NonZero::default(),
            "no containers"
        );
    }

    #[test]
    fn pods_shrink_by_thousandths() {
        for (before, after, want) in [
            ("cpu=1 memory=1Gi", "cpu=1 memory=1Gi", false),
            ("cpu=1 memory=1Gi", "cpu=2 memory=1Gi", false),
            ("cpu=1 memory=1Gi", "cpu=1 memory=1023Mi", true),
            ("cpu=1 memory=1Gi", "cpu=1", true),
            ("memory=2", "memory=1500m", true),
            ("memory=1500m", "memory=2", false),
            ("memory=1500m", "memory=1400m", true),
            ("cpu=1 memory=1500m", "cpu=1 memory=1500m", false),
            ("cpu=1 memory=1", "cpu=900m memory=1500m", true),
            ("cpu=1", "cpu=999900u", false),
        ] {
            let requests = |text| {
                PodRequests::of(&PodResources {
                    containers: vec![container(text)],
                    ..Default::default()
                })
            };
            assert_eq!(
                requests(after).shrank_from(&requests(before)),
                want,
                "{before} to {after}"
            );
        }
    }

    #[test]
    fn pod_level_replaces_what_it_names() {
        let pod = PodResources {
            containers: vec![container(""), container("")],
            pod_level: quantities("cpu=1"),
            ..Default::default()
        };
        let requests = PodRequests::of(&pod);
        assert_eq!(cpu(&requests.wanted), 1000);
        assert_eq!(
            requests.placed_non_zero,
            NonZero {
                milli_cpu: 1000,
                memory: 2 * DEFAULT_MEMORY
            }
        );
        assert_eq!(
            cpu(&requests.scored),
            200,
            "scorers do not see the pod level"
        );

        let unsupported = PodResources {
            containers: vec![container("cpu=1")],
            pod_level: quantities("example.com/x=5"),
            ..Default::default()
        };
        assert_eq!(
            PodRequests::of(&unsupported)
                .wanted
                .get(&Resource::Scalar("example.com/x".into())),
            0
        );
    }

    #[test]
    fn a_resize_in_progress_counts_the_larger_side() {
        let status = StatusResources {
            requests: quantities("cpu=300m"),
            allocated: quantities("cpu=200m"),
        };
        let resizing = ContainerResources {
            status: Some(status),
            ..container("cpu=500m")
        };
        let mut pod = PodResources {
            containers: vec![resizing],
            ..Default::default()
        };
        let requests = PodRequests::of(&pod);
        assert_eq!((cpu(&requests.placed), cpu(&requests.wanted)), (500, 500));
        pod.resize_infeasible = true;
        let requests = PodRequests::of(&pod);
        assert_eq!((cpu(&requests.placed), cpu(&requests.wanted)), (300, 500));
    }

    #[test]
    fn a_pod_level_resource_without_a_status_counts_nothing_once_its_resize_is_infeasible() {
        let pod = PodResources {
            containers: vec![container("memory=50")],
            pod_level: quantities("memory=100"),
            pod_level_status: Some(StatusResources {
                requests: quantities("cpu=1"),
                ..Default::default()
            }),
            resize_infeasible: true,
            ..Default::default()
        };
        let placed = PodRequests::of(&pod).placed;
        assert_eq!((placed.get(&Resource::Memory), cpu(&placed)), (0, 0));
    }

    #[test]
    fn reclaimed_resources_are_one_account_under_both_names() {
        const OLD: &str = "katalyst.kubewharf.io/reclaimed_millicpu";
        const NEW: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
        let of = |level, containers: &[&str], init: &str, overhead: &str| {
            PodRequests::of(&PodResources {
                containers: containers.iter().map(|text| container(text)).collect(),
                init_containers: vec![container(init)],
                overhead: quantities(overhead),
                level,
                ..Default::default()
            })
            .reclaimed
            .map(|requests| {
                let cpu = |amount: Reclaimed| amount.milli_cpu;
                (
                    cpu(requests.wanted),
                    cpu(requests.placed),
                    cpu(requests.non_zero),
                )
            })
        };
        use QosLevel::{Reclaimed as Lives, Shared};
        let name = |name: &str, amount| format!("{name}={amount}");
        let both = format!("{OLD}=1k {NEW}=500");
        let (two, one) = (name(OLD, "2k"), name(NEW, "1k"));
        // (case, level, containers, init container, overhead, wanted, placed and with defaults)
        for (case, level, containers, init, overhead, want) in [
            ("names none", Shared, vec!["cpu=1"], "", "", None),
            (
                "lives on it without a word",
                Lives,
                vec!["", ""],
                "",
                "",
                Some((0, 0, 200)),
            ),
            (
                "an explicit zero stays",
                Lives,
                vec![&format!("{NEW}=0")[..], ""],
                "",
                "",
                Some((0, 0, 100)),
            ),
            (
                "both names are the sum",
                Shared,
                vec![&both[..]],
                "",
                "",
                Some((1500, 1500, 1500)),
            ),
            (
                "the init container needs most",
                Lives,
                vec![&two[..], &one[..]],
                &name(NEW, "5k"),
                &name(OLD, "100"),
                Some((5100, 5100, 5100)),
            ),
        ] {
            assert_eq!(of(level, &containers, init, overhead), want, "{case}");
        }
    }

    #[test]
    fn rounding_happens_after_summing() {
        let pod = PodResources {
            containers: vec![container("cpu=0.3m"), container("cpu=0.3m")],
            ..Default::default()
        };
        assert_eq!(cpu(&PodRequests::of(&pod).wanted), 1);
    }
}
