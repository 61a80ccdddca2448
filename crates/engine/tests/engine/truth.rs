//! Random histories of updates: the cluster state follows from the objects after every step, and what goes leaves no trace.

use std::sync::Arc;

use engine::cluster::kinds::{Key, Kind, Update};
use engine::cluster::{Cluster, Storage, UpdateError};
use engine::cluster::{CsiDriver, CsiLimits, StorageCapacity, VolumeAttachment};
use engine::model::{Name, Pod, PodTerm, PreferredPodTerm, Selector};
use engine::testing::{NodeBuilder, claim, class, node, pod, volume};
use proptest::prelude::*;

const NODES: usize = 4;
const PODS: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    Node {
        name: usize,
        shape: usize,
    },
    NodeGone(usize),
    Bound {
        pod: usize,
        node: usize,
        shape: usize,
    },
    PodGone(usize),
    Assume {
        pod: usize,
        node: usize,
        shape: usize,
    },
    Forget(usize),
    Nominate {
        pod: usize,
        node: usize,
        shape: usize,
    },
    Denominate(usize),
}

fn step() -> impl Strategy<Value = Step> {
    // One node more than ever exists, so that some pods are on unknown nodes.
    let (name, target, which, shape) = (0..NODES, 0..NODES + 1, 0..PODS, 0..6_usize);
    prop_oneof![
        3 => (name.clone(), shape.clone()).prop_map(|(name, shape)| Step::Node { name, shape }),
        1 => name.prop_map(Step::NodeGone),
        4 => (which.clone(), target.clone(), shape.clone()).prop_map(|(pod, node, shape)| Step::Bound { pod, node, shape }),
        2 => which.clone().prop_map(Step::PodGone),
        2 => (which.clone(), target.clone(), shape.clone()).prop_map(|(pod, node, shape)| Step::Assume { pod, node, shape }),
        1 => which.clone().prop_map(Step::Forget),
        2 => (which.clone(), target, shape).prop_map(|(pod, node, shape)| Step::Nominate { pod, node, shape }),
        1 => which.prop_map(Step::Denominate),
    ]
}

fn node_name(index: usize) -> Name {
    format!("n{index}").into()
}

fn shaped_node(index: usize, shape: usize) -> NodeBuilder {
    let node = node(&node_name(index))
        .label("host", &node_name(index))
        .allocatable("cpu=4 memory=1Gi");
    match shape {
        0 => node,
        1 => node.label("zone", "a").allocatable("example.com/x=5"),
        2 => node
            .label("zone", "")
            .allocatable("example.com/x=5 example.com/y=7")
            .image("i", 5),
        3 => node
            .label("zone", "b")
            .allocatable("hugepages-2Mi=64")
            .image("i", 6)
            .image("j", 1),
        4 => node
            .allocatable("cpu=9223372036854775807 memory=8Ei")
            .unschedulable(),
        _ => node
            .taint("k", "v", "NoSchedule")
            .allocatable("example.com/z=1 pods=0"),
    }
}

fn shaped_pod(index: usize, on: Option<usize>, shape: usize) -> Arc<Pod> {
    let term = PodTerm {
        namespaces: vec!["default".into()],
        namespace_selector: Selector::NOTHING,
        selector: Selector::EVERYTHING,
        topology_key: "zone".into(),
    };
    let pod = pod(&format!("p{index}"));
    let pod = match shape {
        0 => pod,
        1 => pod.container("cpu=1 memory=8Ei example.com/x=2"),
        2 => pod
            .label("app", "a")
            .container("example.com/y=3 hugepages-2Mi=5")
            .terminating(),
        3 => pod
            .label("app", "a")
            .kind(|kind| kind.anti_affinity = vec![term.clone(), term]),
        4 => pod.namespace("other").container("cpu=-3").kind(|kind| {
            kind.affinity.push(term.clone());
            kind.preferred_affinity
                .push(PreferredPodTerm { weight: 5, term });
        }),
        _ => pod
            .namespace("other")
            .container("memory=8Ei")
            .container("memory=8Ei cpu=10E"),
    };
    match on {
        Some(node) => pod.on(&node_name(node)).build(),
        None => pod.build(),
    }
}

/// Some steps are refused (assuming a pod that is there); they must change nothing that the check sees.
fn take_step(step: &Step, cluster: &mut Cluster) {
    let uid = |index: &usize| Name::from(format!("p{index}"));
    let _refused = match step {
        Step::Node { name, shape } => cluster
            .apply(shaped_node(*name, *shape).build().into())
            .map(drop),
        Step::NodeGone(name) => cluster
            .apply(Update::Delete(Kind::Node, node_name(*name).into()))
            .map(drop),
        Step::Bound { pod, node, shape } => cluster
            .apply(shaped_pod(*pod, Some(*node), *shape).into())
            .map(drop),
        Step::PodGone(pod) => cluster
            .apply(Update::Delete(Kind::Pod, uid(pod).into()))
            .map(drop),
        Step::Assume { pod, node, shape } => {
            cluster.assume(shaped_pod(*pod, None, *shape), node_name(*node))
        }
        Step::Forget(pod) => cluster.forget(&uid(pod)).map(drop),
        Step::Nominate { pod, node, shape } => {
            cluster.nominate(shaped_pod(*pod, None, *shape), node_name(*node))
        }
        Step::Denominate(pod) => {
            cluster.remove_nomination(&uid(pod));
            Ok(())
        }
    };
}

/// Objects around storage, of each kind, by a small number.
fn stored(kind: usize, which: usize, shape: usize) -> Update {
    let name = Name::from(format!("s{which}"));
    let namespace = Name::from("default");
    match kind {
        0 => volume(&name).label("shape", &shape.to_string()).into(),
        1 => claim(&name).size(&format!("{shape}Gi")).into(),
        2 => class(&name).provisioner(&shape.to_string()).into(),
        3 => Update::from(CsiLimits {
            node: name,
            drivers: vec![("csi".into(), Some(shape as i64))],
            migrated_plugins: Vec::new(),
        }),
        4 => Update::from(CsiDriver {
            name,
            storage_capacity: shape == 0,
        }),
        5 => Update::from(StorageCapacity {
            namespace,
            name,
            class: shape.to_string().into(),
            topology: None,
            capacity: None,
            largest_volume: None,
        }),
        _ => Update::from(VolumeAttachment {
            name,
            attacher: "csi".into(),
            node: shape.to_string().into(),
            volume: None,
        }),
    }
}

fn gone(kind: usize, which: usize) -> Update {
    let kind = [
        Kind::PersistentVolume,
        Kind::PersistentVolumeClaim,
        Kind::StorageClass,
        Kind::CsiNode,
        Kind::CsiDriver,
        Kind::CsiStorageCapacity,
        Kind::VolumeAttachment,
    ][kind];
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    Update::Delete(kind, Key::new(namespace, format!("s{which}")))
}

const STORED_KINDS: usize = 7;
const STORED: usize = 3;

#[derive(Debug, Clone)]
enum StorageStep {
    Set(usize, usize, usize),
    Gone(usize, usize),
    /// A volume for a claim, and another claim on a node.
    Promise(usize, usize, usize),
    Withdraw(usize),
    Bound(usize),
}

fn storage_step() -> impl Strategy<Value = StorageStep> {
    let (kind, which) = (0..STORED_KINDS, 0..STORED);
    prop_oneof![
        4 => (kind.clone(), which.clone(), 0..3_usize).prop_map(|(kind, which, shape)| StorageStep::Set(kind, which, shape)),
        2 => (kind, which.clone()).prop_map(|(kind, which)| StorageStep::Gone(kind, which)),
        3 => (0..PODS, which.clone(), which).prop_map(|(pod, volume, claim)| StorageStep::Promise(pod, volume, claim)),
        2 => (0..PODS).prop_map(StorageStep::Withdraw),
        1 => (0..PODS).prop_map(StorageStep::Bound),
    ]
}

fn take(step: &StorageStep, cluster: &mut Cluster) -> Result<(), UpdateError> {
    match step {
        StorageStep::Set(kind, which, shape) => {
            cluster.apply(stored(*kind, *which, *shape))?;
        }
        StorageStep::Gone(kind, which) => {
            cluster.apply(gone(*kind, *which))?;
        }
        StorageStep::Promise(pod, number, other) => {
            let volume = volume(&format!("s{number}")).for_claim(&format!("s{other}"));
            let claim = claim(&format!("s{other}")).with(|claim| {
                claim.selected_node = Some(node_name(*number));
            });
            let pod = format!("p{pod}").into();
            let storage = cluster.catalog_mut().storage_mut();
            storage.promise_to(pod, vec![volume.build()], vec![claim.build()]);
        }
        StorageStep::Withdraw(pod) => {
            let storage = cluster.catalog_mut().storage_mut();
            storage.withdraw(&format!("p{pod}"));
        }
        StorageStep::Bound(pod) => {
            let bound = shaped_pod(*pod, Some(0), 0);
            cluster.apply(Update::from(bound))?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn storage_leaves_no_trace(steps in prop::collection::vec(storage_step(), 1..60)) {
        let mut cluster = Cluster::new();
        for step in &steps {
            take(step, &mut cluster).unwrap();
            if let Err(corruption) = cluster.check() {
                panic!("{corruption} after {step:?}");
            }
        }
        for index in 0..PODS {
            cluster.apply(Update::Delete(Kind::Pod, format!("p{index}").into())).unwrap();
            cluster.check().unwrap();
        }
        for (kind, which) in (0..STORED_KINDS).flat_map(|kind| (0..STORED).map(move |which| (kind, which))) {
            cluster.apply(gone(kind, which)).unwrap();
        }
        prop_assert_eq!(cluster.catalog().storage(), &Storage::default());
    }

    #[test]
    fn the_truth_follows_from_the_objects_and_leaves_no_trace(steps in prop::collection::vec(step(), 1..60)) {
        let mut cluster = Cluster::new();
        for step in &steps {
            take_step(step, &mut cluster);
            if let Err(corruption) = cluster.check() {
                panic!("{corruption} after {step:?}");
            }
        }
        // The inverse in another order: nodes go while pods are on them.
        for name in 0..NODES {
            cluster.apply(Update::Delete(Kind::Node, node_name(name).into())).unwrap();
            cluster.check().unwrap();
        }
        for index in 0..PODS {
            cluster.apply(Update::Delete(Kind::Pod, format!("p{index}").into())).unwrap();
            cluster.check().unwrap();
        }
        prop_assert_eq!(cluster.placed_count(), 0);
        prop_assert_eq!(cluster.pod_classes().of(None).count(), 0);
        prop_assert_eq!(cluster.catalog().terms().uses(), 0);
        prop_assert!(cluster.nodes().is_empty() && cluster.catalog().image("i").is_none());
        // Later objects find the same state as the first ones.
        cluster.apply(Update::from(shaped_node(0, 1).build())).unwrap();
        cluster.check().unwrap();
        prop_assert_eq!(cluster.nodes().slot("n0"), Some(0));
    }

    #[test]
    fn assume_then_forget_is_nothing(before in prop::collection::vec(step(), 0..30), node in 0..NODES, shape in 0..6_usize) {
        let mut cluster = Cluster::new();
        for step in &before {
            take_step(step, &mut cluster);
            cluster.check().unwrap();
        }
        let rows = |cluster: &Cluster| -> Vec<Vec<i64>> {
            (0..cluster.nodes().slots().len()).map(|slot| cluster.nodes().row(slot).to_vec()).collect()
        };
        let (rows_before, classes) = (rows(&cluster), cluster.pod_classes().of(None).count());
        let pod = shaped_pod(99, None, shape);
        cluster.assume(pod, node_name(node)).unwrap();
        cluster.check().unwrap();
        cluster.forget("p99").unwrap();
        cluster.check().unwrap();
        prop_assert_eq!(rows(&cluster), rows_before);
        prop_assert_eq!(cluster.pod_classes().of(None).count(), classes);
    }
}

#[test]
fn slots_are_given_by_first_appearance_and_the_lowest_free_one_again() {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.set_node(node(name).build());
    }
    cluster.remove_node("b");
    cluster.remove_node("a");
    cluster.set_node(node("d").build());
    cluster.set_node(node("a").build());
    cluster.set_node(node("e").build());
    let slots: Vec<Option<usize>> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| cluster.nodes().slot(name))
        .collect();
    assert_eq!(slots, [Some(1), None, Some(2), Some(0), Some(3)]);
}

#[test]
fn a_pod_assumed_on_one_node_and_seen_on_another_is_where_it_was_seen() {
    let mut cluster = Cluster::new();
    cluster.set_node(node("a").build());
    cluster.set_node(node("b").build());
    cluster.assume(pod("p").build(), "a".into()).unwrap();
    cluster
        .apply(Update::from(pod("p").on("b").build()))
        .unwrap();
    cluster.check().unwrap();
    assert_eq!(
        (cluster.pods_on(0).count(), cluster.pods_on(1).count()),
        (0, 1)
    );
    assert!(cluster.forget("p").is_err(), "it is bound");
    assert!(
        cluster.assume(pod("p").build(), "a".into()).is_err(),
        "it is there"
    );
}

#[test]
fn pods_without_uid_or_node_are_refused_by_name() {
    let mut cluster = Cluster::new();
    let nameless = pod("p").with(|pod| pod.uid = "".into()).on("a").build();
    assert_eq!(
        cluster
            .apply(Update::from(nameless))
            .unwrap_err()
            .to_string(),
        "pod default/p has no uid"
    );
    let unbound = cluster.apply(Update::from(pod("p").build())).unwrap_err();
    assert_eq!(unbound.to_string(), "pod default/p is bound to no node");
}

#[test]
fn each_difference_of_a_node_or_pod_is_an_event_of_its_own() {
    use engine::scheduling::framework::Actions;
    let heard = |was: Update, is: Update| -> Vec<Actions> {
        let mut cluster = Cluster::new();
        cluster.set_node(node("n").build());
        cluster.apply(was).unwrap();
        let events = cluster.apply(is).unwrap();
        events.iter().map(|event| event.actions).collect()
    };
    let was = || node("n").unschedulable();
    for (case, is, want) in [
        ("nothing", was(), vec![]),
        ("uncordoned", node("n"), vec![Actions::NODE_TAINT]),
        (
            "a condition",
            was().with(|node| node.conditions = 1),
            vec![Actions::NODE_CONDITION],
        ),
        (
            "an annotation and a label",
            was().label("k", "v").with(|node| node.annotations = 1),
            vec![Actions::NODE_LABEL, Actions::NODE_ANNOTATION],
        ),
    ] {
        let found = heard(Update::from(was().build()), Update::from(is.build()));
        assert_eq!(found, want, "{case}");
    }
    let bound = |claims: &[(&str, &str)]| {
        let claims = claims.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let pod = pod("p")
            .on("n")
            .with(|pod| pod.generated_claims = claims.collect());
        Update::from(pod.build())
    };
    assert_eq!(
        heard(bound(&[]), bound(&[("gpu", "p-gpu-x")])),
        [Actions::POD_GENERATED_CLAIM]
    );
    assert_eq!(heard(bound(&[]), bound(&[])), [Actions::UPDATE]);
    let asking = |requests: &str| Update::from(pod("p").on("n").container(requests).build());
    for (was, is, want) in [
        ("cpu=2", "cpu=1", Actions::POD_SCALE_DOWN),
        ("cpu=1", "cpu=2", Actions::UPDATE),
        ("cpu=1 memory=0", "cpu=1", Actions::POD_SCALE_DOWN),
    ] {
        assert_eq!(heard(asking(was), asking(is)), [want], "{was} to {is}");
    }
}
