//! Pods.

use std::sync::Arc;

use engine::admission::keys::{KOORDINATOR_BAND, KOORDINATOR_CLASS};
use engine::model::{
    ContainerResources, DELETION_COST, Disk, Effect, HostPort, Inclusion, OpenPriority, Pod,
    PodKind, PodRequests, PodResources, PodTerm, PreferredNodeTerm, PreferredPodTerm, QosLabels,
    Quantities, Quantity, RequiredNodes, Requirement, Resource, Selector, SelectorError,
    SpreadConstraint, StatusResources, TierAccount, Toleration, TolerationOperator, Unsatisfiable,
    Volume, VolumeSource,
};
use engine::scheduling::scheduler::score_count;

use super::katalyst;
use super::selector::{label_selector, node_selector, node_term};
use super::{
    ParseError, controller, given, labels, name, names, object, preemption_policy, quantities, time,
};
use crate::wire::core;

const DEBUG_SCORES: &str = "tidepool.io/debug-scores";

pub fn pod(pod: &core::Pod) -> Result<Pod, ParseError> {
    let object = object("pod", &pod.metadata);
    let (meta, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
    let mut affinity_errors = Vec::new();
    let kind = kind(pod, &mut affinity_errors);
    let mut spread_errors = Vec::new();
    let spread: Result<Vec<_>, _> = spec
        .topology_spread_constraints
        .iter()
        .map(|constraint| spread(&object, constraint, &kind, &mut spread_errors))
        .collect();
    let affinity = spec.affinity.node_affinity.as_ref();
    let mut warnings = Vec::new();
    let level = katalyst::level(pod, &mut warnings);
    let show_scores = show_scores(pod, &mut warnings);
    let requests = PodRequests::of(&PodResources {
        level,
        ..resources(&object, pod)?
    });
    let named = requests.wanted.iter();
    // The author of a pod chooses its class. What it takes from others is its requests, in the account of that class, which capacity
    // and quotas limit; no admission lets users choose the class system.
    let qos = QosLabels {
        katalyst_level: meta.annotations.get(katalyst::LEVEL).map(String::as_str),
        koordinator_class: meta.labels.get(KOORDINATOR_CLASS).map(String::as_str),
        koordinator_band: meta.labels.get(KOORDINATOR_BAND).map(String::as_str),
        priority_class: Some(&*spec.priority_class_name),
        account: named
            .filter_map(|(resource, _)| TierAccount::of(resource.name()))
            .max(),
    };
    let policy = preemption_policy(spec.preemption_policy.as_deref());
    let containers = || spec.init_containers.iter().chain(&spec.containers);
    let mut parsed = Pod {
        name: name(&meta.name),
        uid: name(&meta.uid),
        node: given(&spec.node_name),
        nominated_node: given(&status.nominated_node_name),
        scheduler_name: name(&spec.scheduler_name),
        priority: spec.priority.unwrap_or(0),
        open_priority: spec.priority.is_none().then(|| OpenPriority {
            class: given(&spec.priority_class_name),
            preemption_policy: policy,
        }),
        preemption_policy: policy.unwrap_or_default(),
        requests,
        nodes: RequiredNodes {
            pairs: (!spec.node_selector.is_empty()).then(|| labels(&spec.node_selector)),
            affinity: affinity
                .and_then(|affinity| affinity.required.as_ref())
                .map(node_selector),
        },
        preferred_nodes: affinity
            .map(|affinity| &affinity.preferred)
            .filter(|terms| !terms.is_empty())
            .map(|terms| {
                let term = |term: &core::PreferredSchedulingTerm| PreferredNodeTerm {
                    weight: i64::from(term.weight),
                    term: node_term(&term.preference),
                };
                terms.iter().map(term).collect()
            }),
        tolerations: spec.tolerations.iter().map(toleration).collect(),
        spread: spread?,
        scheduling_gates: spec
            .scheduling_gates
            .iter()
            .map(|gate| name(&gate.name))
            .collect(),
        owner: controller(meta),
        images: containers()
            .map(|container| name(&container.image))
            .collect(),
        image_volumes: spec
            .volumes
            .iter()
            .filter_map(|volume| volume.source.image.as_ref())
            .map(|image| name(&image.reference))
            .collect(),
        volumes: spec.volumes.iter().map(volume).collect(),
        resource_claims: spec
            .resource_claims
            .iter()
            .map(|claim| name(&claim.name))
            .collect(),
        generated_claims: status
            .resource_claim_statuses
            .iter()
            .map(|claim| (name(&claim.name), name(&claim.resource_claim_name)))
            .collect(),
        needed_features: needed_features(spec),
        qos: qos.class(),
        level,
        enhancements: katalyst::enhancements(
            meta.annotations
                .get(katalyst::MEMORY_ENHANCEMENT)
                .map(String::as_str),
            &mut warnings,
        ),
        pinned_cores: pinned_cores(pod),
        zones: katalyst::zones(pod, &mut warnings),
        claims: katalyst::claims(pod),
        created: meta.creation_timestamp.map(time).unwrap_or_default(),
        started: status.start_time.map(time),
        preempted: meta.deletion_timestamp.is_some()
            && status.conditions.iter().any(|condition| {
                condition.kind == "DisruptionTarget"
                    && condition.status == "True"
                    && condition.reason == "PreemptionByScheduler"
            }),
        affinity_errors,
        spread_errors,
        // It concerns the author's own pods: which of them their controller deletes first.
        has_deletion_cost: meta.annotations.contains_key(DELETION_COST),
        show_scores,
        warnings: Vec::new(),
        kind: Arc::new(kind),
    };
    katalyst::warn_of_binding(&parsed, &mut warnings);
    katalyst::warn_of_native_requests(&parsed, &mut warnings);
    katalyst::warn_of_unknown_requests(&parsed, &mut warnings);
    parsed.warnings = warnings;
    Ok(parsed)
}

/// Whether the kubelet may give its containers cores of their own: Guaranteed, and whole cores only.
fn pinned_cores(pod: &core::Pod) -> bool {
    let mut containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let is_whole = |container: &core::Container| {
        let cpu = container.resources.requests.get("cpu");
        let cpu = cpu.and_then(|text| Quantity::parse(&text.0).ok());
        cpu.is_some_and(|cpu| Resource::Cpu.integer(cpu) % 1000 == 0)
    };
    pod.status.qos_class == "Guaranteed" && containers.all(is_whole)
}

/// Any user may ask for the scores of an own pod; `score_count` limits them.
fn show_scores(pod: &core::Pod, warnings: &mut Vec<String>) -> Option<u16> {
    let text = pod.metadata.annotations.get(DEBUG_SCORES)?;
    match score_count(text) {
        Ok(count) => Some(count),
        Err(error) => {
            warnings.push(format!(
                "ignoring invalid annotation {DEBUG_SCORES}: found `{text}`; {error}"
            ));
            None
        }
    }
}

fn kind(pod: &core::Pod, errors: &mut Vec<String>) -> PodKind {
    let spec = &pod.spec;
    let namespace = &pod.metadata.namespace;
    let mut required = |group, terms: &[core::PodAffinityTerm]| -> Vec<PodTerm> {
        let terms = terms.iter().map(|term| pod_term(namespace, term)).collect();
        or_none(group, terms, errors)
    };
    let (near, apart) = (
        &spec.affinity.pod_affinity,
        &spec.affinity.pod_anti_affinity,
    );
    let affinity = required("requiredAffinityTerms", &near.required);
    let anti_affinity = required("requiredAntiAffinityTerms", &apart.required);
    let mut preferred = |group, terms: &[core::WeightedPodAffinityTerm]| -> Vec<PreferredPodTerm> {
        let term = |weighted: &core::WeightedPodAffinityTerm| {
            let term = pod_term(namespace, &weighted.pod_affinity_term)?;
            Ok(PreferredPodTerm {
                weight: i64::from(weighted.weight),
                term,
            })
        };
        or_none(group, terms.iter().map(term).collect(), errors)
    };
    let preferred_affinity = preferred("preferredAffinityTerms", &near.preferred);
    let preferred_anti_affinity = preferred("preferredAntiAffinityTerms", &apart.preferred);
    let sidecars = spec
        .init_containers
        .iter()
        .filter(|container| is_sidecar(container));
    let claims = spec
        .volumes
        .iter()
        .filter_map(|volume| volume.source.persistent_volume_claim.as_ref());
    PodKind {
        namespace: name(namespace),
        labels: labels(&pod.metadata.labels),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        affinity,
        anti_affinity,
        preferred_affinity,
        preferred_anti_affinity,
        ports: sidecars
            .chain(&spec.containers)
            .flat_map(|container| &container.ports)
            .filter_map(host_port)
            .collect(),
        claims: claims.map(|claim| name(&claim.claim_name)).collect(),
        disks: spec.volumes.iter().filter_map(disk).collect(),
    }
}

/// kube-scheduler ignores a whole group of terms when one of them does not parse.
fn or_none<T>(
    group: &str,
    terms: Result<Vec<T>, SelectorError>,
    errors: &mut Vec<String>,
) -> Vec<T> {
    terms.unwrap_or_else(|error| {
        errors.push(format!("{group}: {error}"));
        Vec::new()
    })
}

fn pod_term(namespace: &str, term: &core::PodAffinityTerm) -> Result<PodTerm, SelectorError> {
    let namespaces = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        vec![name(namespace)]
    } else {
        names(&term.namespaces)
    };
    Ok(PodTerm {
        namespaces,
        namespace_selector: label_selector(term.namespace_selector.as_ref())?,
        selector: label_selector(term.label_selector.as_ref())?,
        topology_key: name(&term.topology_key),
    })
}

fn spread(
    object: &str,
    constraint: &core::TopologySpreadConstraint,
    kind: &PodKind,
    errors: &mut Vec<(Unsatisfiable, String)>,
) -> Result<SpreadConstraint, ParseError> {
    let value = |field, found: &str, allowed| ParseError::Value {
        object: object.to_owned(),
        field,
        found: found.to_owned(),
        allowed,
    };
    let inclusion = |field, policy: &Option<String>, default| match policy.as_deref() {
        None => Ok(default),
        Some("Honor") => Ok(Inclusion::Honor),
        Some("Ignore") => Ok(Inclusion::Ignore),
        Some(other) => Err(value(field, other, "Honor or Ignore")),
    };
    let when_unsatisfiable = match &constraint.when_unsatisfiable[..] {
        "DoNotSchedule" => Unsatisfiable::DoNotSchedule,
        "ScheduleAnyway" => Unsatisfiable::ScheduleAnyway,
        other => {
            let field = "spec.topologySpreadConstraints.whenUnsatisfiable";
            return Err(value(field, other, "DoNotSchedule or ScheduleAnyway"));
        }
    };
    let selector = label_selector(constraint.label_selector.as_ref()).unwrap_or_else(|error| {
        errors.push((when_unsatisfiable, error.to_string()));
        Selector::NOTHING
    });
    let own = constraint.match_label_keys.iter();
    let own = own.filter_map(|key| Some(Requirement::equals(key.as_str(), kind.labels.get(key)?)));
    Ok(SpreadConstraint {
        max_skew: constraint.max_skew,
        topology_key: name(&constraint.topology_key),
        when_unsatisfiable,
        selector: selector.and(own),
        min_domains: constraint.min_domains.unwrap_or(1),
        node_affinity: inclusion(
            "spec.topologySpreadConstraints.nodeAffinityPolicy",
            &constraint.node_affinity_policy,
            Inclusion::Honor,
        )?,
        node_taints: inclusion(
            "spec.topologySpreadConstraints.nodeTaintsPolicy",
            &constraint.node_taints_policy,
            Inclusion::Ignore,
        )?,
    })
}

fn toleration(toleration: &core::Toleration) -> Toleration {
    Toleration {
        key: name(&toleration.key),
        operator: TolerationOperator::parse(&toleration.operator),
        value: name(&toleration.value),
        effect: (!toleration.effect.is_empty()).then(|| Effect::parse(&toleration.effect)),
    }
}

fn is_sidecar(container: &core::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn host_port(port: &core::ContainerPort) -> Option<HostPort> {
    let or = |text: &str, default: &str| name(if text.is_empty() { default } else { text });
    (port.host_port > 0).then(|| HostPort {
        ip: or(&port.host_ip, "0.0.0.0"),
        protocol: or(&port.protocol, "TCP"),
        port: port.host_port,
    })
}

fn needed_features(spec: &core::PodSpec) -> Vec<engine::model::Name> {
    let restarts_all = |container: &core::Container| {
        container
            .restart_policy_rules
            .iter()
            .any(|rule| rule.action == "RestartAllContainers")
    };
    let features = [
        (
            "RestartAllContainersOnContainerExits",
            spec.containers
                .iter()
                .chain(&spec.init_containers)
                .any(restarts_all),
        ),
        (
            "UserNamespacesHostNetworkSupport",
            spec.host_network && spec.host_users == Some(false),
        ),
    ];
    features
        .into_iter()
        .filter(|(_, needed)| *needed)
        .map(|(feature, _)| name(feature))
        .collect()
}

fn volume(volume: &core::Volume) -> Volume {
    let in_tree = |plugin: &str, id: &str| VolumeSource::InTree {
        plugin: name(plugin),
        id: name(id),
    };
    let source = if let Some(claim) = &volume.source.persistent_volume_claim {
        VolumeSource::Claim(name(&claim.claim_name))
    } else if volume.source.ephemeral.is_some() {
        VolumeSource::Ephemeral
    } else if let Some(csi) = &volume.source.csi {
        VolumeSource::Csi {
            driver: name(&csi.driver),
        }
    } else if let Some(disk) = &volume.source.aws_elastic_block_store {
        in_tree("kubernetes.io/aws-ebs", &disk.volume_id)
    } else if let Some(disk) = &volume.source.gce_persistent_disk {
        in_tree("kubernetes.io/gce-pd", &disk.pd_name)
    } else if let Some(disk) = &volume.source.azure_disk {
        in_tree("kubernetes.io/azure-disk", &disk.disk_uri)
    } else if let Some(disk) = &volume.source.cinder {
        in_tree("kubernetes.io/cinder", &disk.volume_id)
    } else if let Some(disk) = &volume.source.portworx_volume {
        in_tree("kubernetes.io/portworx-volume", &disk.volume_id)
    } else if volume.source.azure_file.is_some() {
        in_tree("kubernetes.io/azure-file", "")
    } else if volume.source.vsphere_volume.is_some() {
        in_tree("kubernetes.io/vsphere-volume", "")
    } else {
        VolumeSource::Other
    };
    Volume {
        name: name(&volume.name),
        source,
    }
}

fn disk(volume: &core::Volume) -> Option<Disk> {
    if let Some(disk) = &volume.source.gce_persistent_disk {
        return Some(Disk::GcePersistentDisk {
            name: name(&disk.pd_name),
            read_only: disk.read_only,
        });
    }
    if let Some(disk) = &volume.source.aws_elastic_block_store {
        return Some(Disk::AwsElasticBlockStore {
            volume: name(&disk.volume_id),
        });
    }
    if let Some(disk) = &volume.source.iscsi {
        return Some(Disk::Iscsi {
            iqn: name(&disk.iqn),
            read_only: disk.read_only,
        });
    }
    volume.source.rbd.as_ref().map(|disk| Disk::Rbd {
        monitors: names(&disk.monitors),
        pool: name(&disk.pool),
        image: name(&disk.image),
        read_only: disk.read_only,
    })
}

fn resources(object: &str, pod: &core::Pod) -> Result<PodResources, ParseError> {
    let (spec, status) = (&pod.spec, &pod.status);
    let statuses = |field: &'static str,
                    requests: &Option<core::ResourceRequirements>,
                    allocated: &crate::wire::meta::ResourceList|
     -> Result<Option<StatusResources>, ParseError> {
        let Some(requests) = requests else {
            return Ok(None);
        };
        Ok(Some(StatusResources {
            requests: quantities(object, field, &requests.requests)?,
            allocated: quantities(object, field, allocated)?,
        }))
    };
    let containers =
        |field: &'static str, containers: &[core::Container], known: &[core::ContainerStatus]| {
            containers
                .iter()
                .map(|container| {
                    let sidecar = is_sidecar(container);
                    // The status of an init container that is no sidecar does not count.
                    let reported = known
                        .iter()
                        .find(|status| status.name == container.name)
                        .filter(|_| sidecar || field == "spec.containers");
                    let status = match reported {
                        Some(s) => statuses(
                            "status.containerStatuses",
                            &s.resources,
                            &s.allocated_resources,
                        )?,
                        None => None,
                    };
                    let requests = quantities(object, field, &container.resources.requests)?;
                    Ok(ContainerResources {
                        requests,
                        sidecar,
                        status,
                    })
                })
                .collect::<Result<Vec<_>, ParseError>>()
        };
    let pod_level: Quantities = match &spec.resources {
        Some(resources) => quantities(object, "spec.resources", &resources.requests)?,
        None => Quantities::new(),
    };
    Ok(PodResources {
        containers: containers(
            "spec.containers",
            &spec.containers,
            &status.container_statuses,
        )?,
        init_containers: containers(
            "spec.initContainers",
            &spec.init_containers,
            &status.init_container_statuses,
        )?,
        pod_level,
        pod_level_status: statuses(
            "status.resources",
            &status.resources,
            &status.allocated_resources,
        )?,
        overhead: quantities(object, "spec.overhead", &spec.overhead)?,
        resize_infeasible: status.conditions.iter().any(|condition| {
            condition.kind == "PodResizePending" && condition.reason == "Infeasible"
        }),
        ..PodResources::default()
    })
}

#[cfg(test)]
mod tests;
