use super::*;
use crate::cluster::Update;
use crate::model::{Name, Quantity, Requirement, Selector, TopologyTerm};
use crate::scheduling::framework::{ClaimRef, CsiDriver, CsiLimits, VolumePhase};
use crate::testing::{ClaimBuilder, Lab, NodeBuilder, claim, class, node, pod, volume};

const OUT_OF_REACH: &str = "UU node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "UU node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "UU node(s) did not have enough free storage";

fn plugin() -> VolumeBinding {
    VolumeBinding::new(VolumeBindingArgs::default()).unwrap()
}

/// Nodes `a` and `b`, each in a zone of its name, and classes that wait.
fn lab() -> Lab {
    let zoned = |name: &str| node(name).label("zone", name);
    Lab::new(plugin())
        .node(zoned("a"))
        .node(zoned("b"))
        .object(class("csi"))
        .object(class("static").provisioner("kubernetes.io/no-provisioner"))
        .object(class("now").immediate())
}

#[test]
fn claims_that_end_the_cycle() {
    let bound = || claim("c").bound_to("v");
    for (case, object, want) in [
        (
            "no such claim",
            claim("other"),
            "UU persistentvolumeclaim \"c\" not found",
        ),
        (
            "lost, and about to go",
            bound().with(|claim| (claim.phase, claim.deleting) = (ClaimPhase::Lost, true)),
            "UU persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
        ),
        (
            "about to go",
            bound().with(|claim| claim.deleting = true),
            "UU persistentvolumeclaim \"c\" is being deleted",
        ),
        (
            "immediate",
            claim("c").class("now"),
            "UU pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "without a class",
            claim("c"),
            "UU pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "of a class that is not there",
            claim("c").class("none"),
            "UU pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "with a volume, but binding is not complete",
            bound()
                .class("csi")
                .with(|claim| claim.bind_completed = false),
            "UU pod has unbound immediate PersistentVolumeClaims",
        ),
    ] {
        let found = lab().object(object).filter(&pod("p").claim("c"));
        assert_eq!(found, [want; 2], "{case}");
    }
    let lab = lab()
        .object(class("modeless").with(|class| class.mode = None))
        .object(claim("c").class("modeless"));
    let text = "running PreFilter plugin \"VolumeBinding\": VolumeBindingMode not set for StorageClass \"modeless\"";
    assert_eq!(lab.failure(&pod("p").claim("c")).as_deref(), Some(text));
}

#[test]
fn claims_made_for_the_pod() {
    let pod = pod("p").volume(VolumeSource::Ephemeral);
    let waiting =
        "UU waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v0\"";
    assert_eq!(lab().filter(&pod), [waiting; 2]);
    let foreign = lab().object(claim("p-v0").class("csi"));
    let not_ours = "UU PVC default/p-v0 was not created for pod default/p (pod is not owner)";
    assert_eq!(foreign.filter(&pod), [not_ours; 2]);
    let own = lab().object(claim("p-v0").class("csi").of_pod("p"));
    assert_eq!(own.filter(&pod), ["ok"; 2]);
}

#[test]
fn bound_claims_follow_their_volume() {
    let user = pod("p").claim("c");
    let bound = || lab().object(claim("c").bound_to("v"));
    assert_eq!(bound().object(volume("v")).filter(&user), ["ok"; 2]);
    let reachable = bound().object(volume("v").on_nodes("zone In a"));
    assert_eq!(reachable.filter(&user), ["ok", OUT_OF_REACH]);
    let nowhere = "UU node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    assert_eq!(bound().filter(&user), [nowhere; 2]);
    assert_eq!(bound().filter(&pod("p")), ["ok"; 2], "no claims");
}

#[test]
fn reasons_come_in_a_fixed_order() {
    let lab = lab()
        .object(claim("far").bound_to("far"))
        .object(volume("far").on_nodes("zone In c"))
        .object(claim("gone").bound_to("gone"))
        .object(claim("none").class("static"));
    let no_volume = "node(s) didn't find available persistent volumes to bind";
    let both = format!("{OUT_OF_REACH}, {no_volume}");
    assert_eq!(
        lab.filter(&pod("p").claim("none").claim("far")),
        [&both[..]; 2]
    );
    let nowhere = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    let last = format!("UU {no_volume}, {nowhere}");
    assert_eq!(
        lab.filter(&pod("p").claim("gone").claim("none")),
        [&last[..]; 2]
    );
    let first_only = lab.filter(&pod("p").claim("far").claim("gone"));
    assert_eq!(
        first_only, [OUT_OF_REACH; 2],
        "bound claims stop at the first"
    );
}

#[test]
fn volumes_of_migrated_plugins() {
    let served = |plugins: &[&str]| {
        Update::from(CsiLimits {
            node: "a".into(),
            drivers: Vec::new(),
            migrated_plugins: plugins.iter().map(|plugin| Name::from(*plugin)).collect(),
        })
    };
    let disk = |id: &str| {
        let zoned = volume("v").label("topology.kubernetes.io/zone", "a");
        zoned.in_tree("kubernetes.io/aws-ebs", id)
    };
    let user = pod("p").claim("c");
    let bound = lab().object(claim("c").bound_to("v")).object(disk("vol-1"));
    assert_eq!(bound.filter(&user), ["ok"; 2], "nobody serves it");
    let migrated = bound.object(served(&["kubernetes.io/aws-ebs"]));
    assert_eq!(
        migrated.filter(&user),
        [OUT_OF_REACH, "ok"],
        "the driver's label is missing"
    );
    let broken = migrated.object(disk("aws://x"));
    let text = "running \"VolumeBinding\" filter plugin: could not translate pv: failed to translate Kubernetes ID to \
                EBS Volume ID Invalid format for AWS volume (aws://x)";
    assert_eq!(broken.failure(&user).as_deref(), Some(text));
}

#[test]
fn which_volume_a_waiting_claim_gets() {
    let small = || volume("small").class("static").size("2Gi");
    let large = || volume("large").class("static").size("8Gi");
    let wants = |size: &str| claim("c").class("static").size(size);
    for (case, small, large, claim, want) in [
        (
            "the smallest",
            small(),
            large(),
            wants("1Gi"),
            Some("small"),
        ),
        (
            "the smallest that is large enough",
            small(),
            large(),
            wants("3Gi"),
            Some("large"),
        ),
        ("none is large enough", small(), large(), wants("9Gi"), None),
        (
            "one that can be reached",
            small().on_nodes("zone In b"),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one of its class",
            small().class("csi"),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one that is available",
            small().with(|v| v.phase = VolumePhase::Released),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one that stays",
            small().with(|v| v.deleting = true),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one of its mode",
            small().with(|v| v.volume_mode = "Block".into()),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one of its attributes",
            small().with(|v| v.attributes_class = Some("fast".into())),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "one that it selects",
            small(),
            large().label("disk", "ssd"),
            wants("1Gi")
                .with(|c| c.selector = Some(Selector::all([Requirement::equals("disk", "ssd")]))),
            Some("large"),
        ),
        (
            "one that it may use so",
            small(),
            large().with(|v| v.access_modes.push("ReadOnlyMany".into())),
            wants("1Gi").modes(&["ReadWriteOnce", "ReadOnlyMany"]),
            Some("large"),
        ),
        (
            "the one promised to it",
            small(),
            large().for_claim("c"),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "not one promised to another",
            small().for_claim("other"),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "not one promised to its predecessor",
            small()
                .for_claim("c")
                .with(|v| promised(v).uid = "old".into()),
            large(),
            wants("1Gi"),
            Some("large"),
        ),
        (
            "none, if the one promised to it is out of reach",
            small(),
            large().for_claim("c").on_nodes("zone In b"),
            wants("1Gi"),
            None,
        ),
    ] {
        let mut lab = lab().object(small).object(large).object(claim);
        let verdict = &lab.filter(&pod("p").claim("c"))[0];
        assert_eq!(verdict == "ok", want.is_some(), "{case}: {verdict}");
        if let Some(want) = want {
            assert_eq!(reserve(&mut lab, &["c"], "a").0, [want], "{case}");
        }
    }
}

fn promised(volume: &mut PersistentVolume) -> &mut ClaimRef {
    volume.claim.as_mut().unwrap()
}

/// Reserves for pod `p` with these claims; the names of volumes and claims that it is promised.
fn reserve(lab: &mut Lab, claims: &[&str], node: &str) -> (Vec<String>, Vec<String>) {
    let pod = claims
        .iter()
        .fold(pod("p"), |pod, name| pod.claim(name))
        .build();
    let spec = node_spec(lab, node);
    plugin()
        .reserve(&pod, &spec, lab.cluster.catalog_mut())
        .unwrap();
    lab.cluster.check().unwrap();
    let storage = lab.cluster.catalog().storage();
    let promise = storage.promise("p").cloned().unwrap_or_default();
    let volumes = promise.volumes.iter().map(|bound| bound.volume.to_string());
    let claims = promise.claims.iter().map(|made| made.claim.to_string());
    (volumes.collect(), claims.collect())
}

fn node_spec(lab: &Lab, name: &str) -> NodeSpec {
    let slot = lab.cluster.nodes().slot(name).unwrap();
    lab.cluster.nodes().get(slot).unwrap().node.spec.clone()
}

#[test]
fn two_claims_get_two_volumes_the_smaller_claim_first() {
    let mut lab = lab()
        .object(volume("small").class("static").size("2Gi"))
        .object(volume("large").class("static").size("8Gi"))
        .object(claim("big").class("static").size("2Gi"))
        .object(claim("tiny").class("static").size("1Gi"));
    assert_eq!(
        reserve(&mut lab, &["big", "tiny"], "a").0,
        ["small", "large"]
    );
    let three = lab.object(claim("third").class("static"));
    let other = pod("q").claim("big").claim("tiny").claim("third");
    assert_eq!(three.filter(&other), [NO_VOLUME; 2]);
}

#[test]
fn volumes_that_are_made() {
    let topology = |values: &[&str]| TopologyTerm {
        values: vec![(
            "zone".into(),
            values.iter().map(|v| Name::from(*v)).collect(),
        )],
    };
    let only_a = class("only-a").with(|class| class.allowed_topologies = vec![topology(&["a"])]);
    let user = pod("p").claim("c");
    for (case, claim, want) in [
        ("anywhere", claim("c").class("csi"), ["ok", "ok"]),
        ("in one zone", claim("c").class("only-a"), ["ok", NO_VOLUME]),
        (
            "never by this class",
            claim("c").class("static"),
            [NO_VOLUME; 2],
        ),
        (
            "where it was begun",
            claim("c")
                .class("csi")
                .with(|claim| claim.selected_node = Some("b".into())),
            [NO_VOLUME, "ok"],
        ),
    ] {
        let lab = lab().object(only_a.clone()).object(claim);
        assert_eq!(lab.filter(&user), want, "{case}");
    }
}

fn capacity(name: &str, zone: &str, size: &str, largest: Option<&str>) -> StorageCapacity {
    let quantity = |text| Quantity::parse(text).unwrap();
    StorageCapacity {
        namespace: "default".into(),
        name: name.into(),
        class: "csi".into(),
        topology: Some(Selector::all([Requirement::equals("zone", zone)])),
        capacity: Some(quantity(size)),
        largest_volume: largest.map(quantity),
    }
}

#[test]
fn drivers_that_publish_capacity_must_have_it() {
    let driver = |storage_capacity| {
        Update::from(CsiDriver {
            name: "csi".into(),
            storage_capacity,
        })
    };
    let wants = |size: &str| claim("c").class("csi").size(size);
    let with = |claim: ClaimBuilder, publishes, capacities: Vec<StorageCapacity>| {
        let lab = lab().object(driver(publishes)).object(claim);
        let apply = |lab: Lab, capacity| lab.apply(Update::from(capacity));
        capacities
            .into_iter()
            .fold(lab, apply)
            .filter(&pod("p").claim("c"))
    };
    let ten = || capacity("k", "a", "10Gi", None);
    assert_eq!(with(wants("5Gi"), true, vec![ten()]), ["ok", NO_SPACE]);
    assert_eq!(with(wants("10Gi"), true, vec![ten()]), ["ok", NO_SPACE]);
    assert_eq!(with(wants("11Gi"), true, vec![ten()]), [NO_SPACE; 2]);
    assert_eq!(
        with(wants("11Gi"), false, vec![ten()]),
        ["ok"; 2],
        "it does not publish"
    );
    let sizeless = wants("1Gi").with(|claim| claim.request = None);
    assert_eq!(
        with(sizeless, true, vec![]),
        ["ok"; 2],
        "no size is asked for"
    );
    let narrow = capacity("k", "a", "10Gi", Some("2Gi"));
    assert_eq!(
        with(wants("5Gi"), true, vec![narrow]),
        [NO_SPACE; 2],
        "in one piece"
    );
    let mut vague = ten();
    vague.topology = None;
    assert_eq!(
        with(wants("5Gi"), true, vec![vague]),
        [NO_SPACE; 2],
        "nobody knows where"
    );
    let mut other = ten();
    other.class = "else".into();
    assert_eq!(
        with(wants("5Gi"), true, vec![other]),
        [NO_SPACE; 2],
        "of another class"
    );
}

#[test]
fn what_one_pod_was_promised_is_not_there_for_the_next() {
    let mut lab = lab()
        .object(volume("v").class("static"))
        .object(claim("c").class("static"))
        .object(claim("d").class("static"));
    assert_eq!(
        reserve(&mut lab, &["c"], "a"),
        (vec!["v".to_owned()], vec![])
    );
    let next = pod("q").claim("d");
    assert_eq!(lab.filter(&next), [NO_VOLUME; 2]);
    assert_eq!(
        lab.filter(&pod("p").claim("c")),
        ["ok"; 2],
        "its own is still there for it"
    );
    let spec = node_spec(&lab, "a");
    let holder = pod("p").claim("c").build();
    plugin().unreserve(&holder, &spec, lab.cluster.catalog_mut());
    plugin().unreserve(&holder, &spec, lab.cluster.catalog_mut());
    assert_eq!(lab.cluster.catalog().storage().promise("p"), None);
    assert_eq!(lab.filter(&next), ["ok"; 2], "given back");
}

#[test]
fn giving_back_takes_nothing_from_another_pod() {
    let mut lab = lab()
        .object(volume("v").class("static"))
        .object(claim("c").class("static"))
        .object(claim("d").class("static"));
    let spec = node_spec(&lab, "a");
    let with = |name: &str, claim: &str| pod(name).claim(claim).build();
    let reserve = |lab: &mut Lab, pod: &Pod| {
        let reserved = plugin().reserve(pod, &spec, lab.cluster.catalog_mut());
        reserved.unwrap();
        lab.cluster.check().unwrap();
    };
    let unreserve = |lab: &mut Lab, pod: &Pod| {
        plugin().unreserve(pod, &spec, lab.cluster.catalog_mut());
        lab.cluster.check().unwrap();
    };
    let is_free = |lab: &Lab| lab.filter(&pod("q").claim("c")) == ["ok"; 2];

    let (first, second) = (with("p1", "d"), with("p2", "d"));
    reserve(&mut lab, &first);
    reserve(&mut lab, &second);
    unreserve(&mut lab, &first);
    assert!(!is_free(&lab), "the other pod shares the claim");
    unreserve(&mut lab, &second);
    assert!(is_free(&lab));

    reserve(&mut lab, &with("p3", "c"));
    lab = lab.object(volume("v").class("static"));
    reserve(&mut lab, &first);
    unreserve(&mut lab, &with("p3", "c"));
    assert!(!is_free(&lab), "its promise had ended with the news");
    lab.cluster
        .apply(Update::from(pod("p1").claim("d").on("a").build()))
        .unwrap();
    assert_eq!(
        lab.cluster.catalog().storage().promise("p1"),
        None,
        "it has it"
    );
}

#[test]
fn a_volume_being_made_ties_the_claim_to_the_node() {
    let mut lab = lab().object(claim("c").class("csi"));
    assert_eq!(
        reserve(&mut lab, &["c"], "a"),
        (vec![], vec!["c".to_owned()])
    );
    assert_eq!(lab.filter(&pod("q").claim("c")), ["ok", NO_VOLUME]);
    let news = lab.object(claim("c").class("csi"));
    assert_eq!(
        news.filter(&pod("q").claim("c")),
        ["ok"; 2],
        "what is seen ends the promise"
    );
}

#[test]
fn pods_without_waiting_claims_are_promised_nothing() {
    let mut lab = lab().object(volume("v")).object(claim("c").bound_to("v"));
    assert_eq!(reserve(&mut lab, &["c"], "a"), (vec![], vec![]));
    assert_eq!(lab.cluster.catalog().storage().promise("p"), None);
}

#[test]
fn what_must_be_done_before_the_pod_is_bound() {
    let mut lab = lab()
        .object(volume("v").class("static"))
        .object(claim("kept").class("static"))
        .object(claim("made").class("csi"));
    let pod = pod("p").claim("kept").claim("made").build();
    let node = node_spec(&lab, "a");
    let prepared = |lab: &Lab| plugin().pre_bind(&pod, &node, lab.cluster.catalog());
    assert_eq!(prepared(&lab), Ok(None), "nothing was promised");
    reserve(&mut lab, &["kept", "made"], "a");
    let (namespace, kept, made): (Name, Name, Name) =
        ("default".into(), "kept".into(), "made".into());
    let awaits = |claim: &Name| Step::AwaitClaim {
        namespace: namespace.clone(),
        claim: claim.clone(),
    };
    let steps = vec![
        Step::BindVolume {
            volume: "v".into(),
            namespace: namespace.clone(),
            claim: kept.clone(),
        },
        Step::ProvisionVolume {
            namespace: namespace.clone(),
            claim: made.clone(),
            node: "a".into(),
        },
        awaits(&kept),
        awaits(&made),
    ];
    let within = Duration::from_secs(600);
    assert_eq!(prepared(&lab), Ok(Some(Preparation { steps, within })));
}

#[test]
fn arguments() {
    let configure = |seconds, shape: bool| {
        VolumeBinding::new(VolumeBindingArgs {
            bind_timeout_seconds: seconds,
            shape: shape.then(Vec::new),
        })
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert!(configure(0, false).is_ok());
    let errors = configure(-1, true).err().unwrap();
    assert_eq!(
        errors,
        [
            "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
            "shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate \
             StorageCapacityScoring",
        ]
    );
}

#[test]
fn hints() {
    let lab = || Lab::new(plugin());
    let user = pod("p").claim("c");
    assert!(lab().helps_object(&user, None, claim("c")));
    assert!(!lab().helps_object(&user, None, claim("d")));
    assert!(lab().helps_object(&user, None, volume("v")));
    let ephemeral = pod("p").volume(VolumeSource::Ephemeral);
    assert!(lab().helps_object(&ephemeral, None, claim("p-v0")));
    let narrowed =
        class("c").with(|class| class.allowed_topologies = vec![TopologyTerm::default()]);
    assert!(lab().helps_object(&user, None, class("c")));
    assert!(lab().helps_object(&user, Some(class("c")), narrowed));
    assert!(!lab().helps_object(&user, Some(class("c")), class("c").immediate()));
    let labelled = |node: NodeBuilder| node.label("zone", "a");
    assert!(lab().helps_node(&user, Some(node("n")), Some(labelled(node("n")))));
    let served = |plugin: &str| {
        Update::from(CsiLimits {
            migrated_plugins: vec![plugin.into()],
            ..CsiLimits::default()
        })
    };
    assert!(lab().helps_object(&user, Some(served("x")), served("y")));
    assert!(!lab().helps_object(&user, Some(served("x")), served("x")));
    let inline = pod("p").volume(VolumeSource::Csi {
        driver: "csi".into(),
    });
    let publishes = |storage_capacity| {
        Update::from(CsiDriver {
            name: "csi".into(),
            storage_capacity,
        })
    };
    assert!(lab().helps_object(&inline, Some(publishes(true)), publishes(false)));
    assert!(!lab().helps_object(&inline, Some(publishes(false)), publishes(true)));
    assert!(!lab().helps_object(&user, Some(publishes(true)), publishes(false)));
    let space = |size| Update::from(capacity("k", "a", size, None));
    assert!(lab().helps_object(&user, Some(space("1Gi")), space("2Gi")));
    assert!(!lab().helps_object(&user, Some(space("2Gi")), space("1Gi")));
}
