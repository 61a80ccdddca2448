//! What a bind must not exceed. Sums include the holds, so they cover every bind that was allowed.

use super::{BindGate, BindRefusal, BindRequest, GatePod};
use crate::binding::kubelet::{self, Admission, AdmissionFailure, Host};
use crate::cluster::{NodeEntry, Part};
use crate::model::{NumaBinding, Pod, PolicySpec, ReclaimedResource, Resource};

impl BindGate {
    /// `candidate` is the pod as it would be held.
    pub(super) fn check(
        &self,
        pod: &GatePod,
        candidate: &Pod,
        request: &BindRequest,
    ) -> Result<(), BindRefusal> {
        let nodes = self.cluster.nodes();
        let slot = nodes.slot(&request.node).ok_or(BindRefusal::NoNode)?;
        let entry = nodes.get(slot).ok_or(BindRefusal::NoNode)?;
        self.check_node_uid(request)?;
        let is_critical = self.check_kubelet(pod, slot, entry)?;
        if !is_critical {
            self.check_zone_owners(candidate, slot, entry)?;
        }
        self.check_reclaimed(candidate, slot)?;
        self.check_pool(candidate, slot)?;
        self.check_zones(candidate, slot)?;
        self.check_units(candidate, entry)
    }

    fn check_node_uid(&self, request: &BindRequest) -> Result<(), BindRefusal> {
        let known = self.machines.get(&request.node).map(|it| &it.uid);
        match known {
            Some(found) if !request.node_uid.is_empty() && *found != request.node_uid => {
                Err(BindRefusal::NodeReplaced {
                    wanted: request.node_uid.clone(),
                    found: found.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// True for a critical pod that its kubelet evicts others for.
    fn check_kubelet(
        &self,
        pod: &GatePod,
        slot: usize,
        entry: &NodeEntry,
    ) -> Result<bool, BindRefusal> {
        let linux = Host::linux(&entry.node);
        let host = match self.machines.get(&entry.node.spec.name) {
            None => linux,
            Some(machine) => Host {
                os: if machine.os.is_empty() {
                    linux.os
                } else {
                    &machine.os
                },
                supports_strict_groups: machine.supports_strict_groups,
                ..linux
            },
        };
        let others: Vec<&Pod> = self.cluster.pods_on(slot).map(|it| &*it.pod).collect();
        match kubelet::admit(pod.applicant(), host, &others) {
            Admission::Admitted => Ok(pod.pod.priority >= kubelet::CRITICAL_PRIORITY),
            Admission::MakeRoom(_) => Ok(true),
            Admission::Rejected(failure) => Err(BindRefusal::Kubelet(failure)),
        }
    }

    /// No kubelet counts what pods with zones of their own take beyond their requests.
    fn check_zone_owners(
        &self,
        pod: &Pod,
        slot: usize,
        entry: &NodeEntry,
    ) -> Result<(), BindRefusal> {
        let holders = self.cluster.zones_of(slot).map(|zones| zones.holders());
        let mut holders = holders.into_iter().flatten();
        if !holders.any(|holder| holder.is_exclusive && !holder.zones.is_empty()) {
            return Ok(());
        }
        for resource in [Resource::Cpu, Resource::Memory] {
            let wanted = pod.requests.wanted.get(&resource);
            // A request of 0 fits, also where zones report more than the node allocates.
            if wanted <= 0 {
                continue;
            }
            let used = self.requested(slot, &resource);
            let failure = exceeded(
                resource.clone(),
                wanted,
                used,
                entry.node.allocatable.get(&resource),
            );
            if let Some(failure) = failure {
                return Err(BindRefusal::Exclusive(failure));
            }
        }
        Ok(())
    }

    /// No kubelet counts what is lent: it is not in the status of the Node.
    fn check_reclaimed(&self, pod: &Pod, slot: usize) -> Result<(), BindRefusal> {
        let wanted = pod.requests.wanted_reclaimed();
        if wanted.is_zero() {
            return Ok(());
        }
        let entry = self.cluster.nodes().get(slot);
        if !entry.is_some_and(|entry| entry.node.spec.reports) {
            return Err(BindRefusal::NotLending);
        }
        for resource in ReclaimedResource::ALL {
            let name = Resource::Scalar(resource.name().into());
            let used = self.reclaimed(slot, resource, Part::Requested);
            let lent = self.reclaimed(slot, resource, Part::Allocatable);
            if let Some(failure) = exceeded(name, wanted.get(resource), used, lent) {
                return Err(BindRefusal::Reclaimed(failure));
            }
        }
        Ok(())
    }

    fn check_pool(&self, pod: &Pod, slot: usize) -> Result<(), BindRefusal> {
        let entry = self.cluster.nodes().get(slot);
        let report = entry.and_then(|entry| self.cluster.report(&entry.node.spec.name));
        if report.is_none_or(|report| report.pool_bound().is_none()) {
            return Ok(());
        }
        for resource in ReclaimedResource::ALL {
            let requested = pod.requests.wanted_of_pool(resource);
            let reclaimed = self.reclaimed(slot, resource, Part::Requested);
            let used = reclaimed.saturating_add(self.requested(slot, &resource.batch()));
            // Without the share of zones that pods have alone.
            let capacity = self.reclaimed(slot, resource, Part::Pool);
            let capacity = capacity.wrapping_add(i64::MAX);
            if requested > 0 && requested > capacity.saturating_sub(used) {
                return Err(BindRefusal::Pool {
                    resource,
                    requested,
                    used,
                    capacity,
                });
            }
        }
        Ok(())
    }

    fn check_zones(&self, pod: &Pod, slot: usize) -> Result<(), BindRefusal> {
        let node = self.cluster.zones_of(slot);
        let (Some(node), Some(binding)) = (node, pod.numa_binding()) else {
            return Ok(());
        };
        let zones = node.given(pod);
        let is_exclusive = binding == NumaBinding::Exclusive;
        for holder in node.holders() {
            let both = holder.zones.both(zones);
            if !both.is_empty() && (is_exclusive || holder.is_exclusive) {
                return Err(BindRefusal::Zones {
                    zones: both,
                    holder: format!("{}/{}", holder.namespace, holder.name),
                });
            }
        }
        if is_exclusive && !node.others_fit_without(zones) {
            return Err(BindRefusal::OthersDoNotFit { zones });
        }
        Ok(())
    }

    /// The units of all policies that select the pod.
    fn check_units(&self, pod: &Pod, entry: &NodeEntry) -> Result<(), BindRefusal> {
        let catalog = self.cluster.catalog();
        for (policy, spec) in catalog.policies_for(pod.namespace(), pod.labels()) {
            for (index, unit) in spec.units_of(&entry.node.spec.labels) {
                let Some(max_count) = unit.max_count else {
                    continue;
                };
                if self.pods_in_unit(pod, spec, index) >= u64::from(max_count) {
                    return Err(BindRefusal::UnitFull {
                        policy: format!("{}/{}", policy.namespace, policy.name),
                        unit: unit.name.clone(),
                        max_count,
                    });
                }
            }
        }
        Ok(())
    }

    /// Pods of the pod's group on nodes of the unit.
    fn pods_in_unit(&self, pod: &Pod, spec: &PolicySpec, unit: usize) -> u64 {
        let group = spec.group(pod.labels());
        let classes = self.cluster.pod_classes().of(Some(pod.namespace()));
        let counted = classes.filter(|class| {
            let kind = &class.kind;
            spec.counts(&kind.labels, kind.terminating) && spec.is_in(&group, &kind.labels)
        });
        let on_nodes = counted.flat_map(|class| &class.on);
        let in_unit = on_nodes.filter(|(slot, _)| {
            let entry = self.cluster.nodes().get(**slot);
            entry.is_some_and(|entry| spec.units[unit].nodes.matches(&entry.node.spec.labels))
        });
        in_unit.map(|(_, pods)| u64::from(*pods)).sum()
    }

    fn requested(&self, slot: usize, resource: &Resource) -> i64 {
        let accounts = &self.cluster.catalog().accounts();
        let column = accounts.column(resource, Part::Requested);
        column.map_or(0, |column| self.cluster.nodes().row(slot)[column])
    }

    fn reclaimed(&self, slot: usize, resource: ReclaimedResource, part: Part) -> i64 {
        let accounts = &self.cluster.catalog().accounts();
        let column = accounts.reclaimed_column(resource, part);
        column.map_or(0, |column| self.cluster.nodes().row(slot)[column])
    }
}

/// What the kubelet would say.
fn exceeded(
    resource: Resource,
    requested: i64,
    used: i64,
    capacity: i64,
) -> Option<AdmissionFailure> {
    (requested > capacity.saturating_sub(used)).then_some(AdmissionFailure::Resource {
        resource,
        requested,
        used,
        capacity,
    })
}
