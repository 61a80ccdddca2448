use super::*;
use crate::cluster::kinds::{Kind, Update};
use crate::scheduling::framework::VolumeAttachment;
use crate::testing::{Lab, PodBuilder, claim, class, node, pod, volume};

const FULL: &str = "U node(s) exceed max volume count";

fn limits(drivers: &[(&str, Option<i64>)]) -> Update {
    Update::from(CsiLimits {
        node: "n".into(),
        drivers: drivers
            .iter()
            .map(|(driver, limit)| (Name::from(*driver), *limit))
            .collect(),
        migrated_plugins: Vec::new(),
    })
}

fn attachment(name: &str, attacher: &str, volume: &str) -> Update {
    Update::from(VolumeAttachment {
        name: name.into(),
        attacher: attacher.into(),
        node: "n".into(),
        volume: Some(volume.into()),
    })
}

fn ebs(pod: PodBuilder, id: &str) -> PodBuilder {
    pod.volume(VolumeSource::InTree {
        plugin: "kubernetes.io/aws-ebs".into(),
        id: id.into(),
    })
}

/// Volumes `a`, `b` and `c` of the driver `csi`, of which node `n` takes two.
fn lab() -> Lab {
    ["a", "b", "c"].iter().fold(
        Lab::new(NodeVolumeLimits)
            .node(node("n"))
            .object(limits(&[("csi", Some(2)), ("ebs.csi.aws.com", Some(1))])),
        |lab, name| lab.object(volume(name)).object(claim(name).bound_to(name)),
    )
}

#[test]
fn volumes_there_and_volumes_to_come() {
    let with = |name: &str, claims: &[&str]| claims.iter().fold(pod(name), |pod, c| pod.claim(c));
    for (case, there, ours, want) in [
        ("one and one", vec!["a"], vec!["b"], "ok"),
        ("one and two", vec!["a"], vec!["b", "c"], FULL),
        ("two and one", vec!["a", "b"], vec!["c"], FULL),
        ("one that is there already", vec!["a", "b"], vec!["b"], "ok"),
        ("none", vec!["a", "b"], vec![], "ok"),
    ] {
        let lab = lab().placed(with("other", &there).on("n"));
        assert_eq!(lab.filter(&with("p", &ours)), [want], "{case}");
    }
}

#[test]
fn two_pods_share_a_volume() {
    let lab = lab()
        .placed(pod("x").on("n").claim("a"))
        .placed(pod("y").on("n").claim("a"));
    assert_eq!(lab.filter(&pod("p").claim("b")), ["ok"]);
}

#[test]
fn attachments_count_until_they_go() {
    for (case, attachments, want) in [
        ("none", vec![], "ok"),
        ("two others", vec![("a", "csi"), ("b", "csi")], FULL),
        (
            "one of another driver",
            vec![("a", "csi"), ("b", "else")],
            "ok",
        ),
        (
            "of a volume that is gone",
            vec![("a", "csi"), ("gone", "csi")],
            "ok",
        ),
        (
            "the very volume, twice charged",
            vec![("a", "csi"), ("c", "csi")],
            FULL,
        ),
    ] {
        let lab = attachments.iter().fold(lab(), |lab, (volume, driver)| {
            lab.object(attachment(volume, driver, volume))
        });
        assert_eq!(lab.filter(&pod("p").claim("c")), [want], "{case}");
    }
}

#[test]
fn volumes_that_are_to_be_made() {
    for (case, class_of, want) in [
        ("of the driver", "csi", FULL),
        ("of another driver", "other", "ok"),
        ("of no class that exists", "none", "ok"),
        ("of an in-tree plugin", "ebs", "ok"),
    ] {
        let lab = lab()
            .object(class("csi"))
            .object(class("other").provisioner("other"))
            .object(class("ebs").provisioner("kubernetes.io/aws-ebs"))
            .object(claim("new").class(class_of))
            .placed(pod("x").on("n").claim("a").claim("b"));
        assert_eq!(lab.filter(&pod("p").claim("new")), [want], "{case}");
        let twice = lab.placed(pod("y").on("n").claim("new"));
        assert_eq!(
            twice.filter(&pod("p").claim("new")),
            ["ok"],
            "{case}, known already"
        );
    }
}

#[test]
fn in_tree_volumes_count_for_their_driver() {
    let used = lab().placed(ebs(pod("x").on("n"), "aws://zone/vol-1"));
    assert_eq!(used.filter(&ebs(pod("p"), "vol-2")), [FULL]);
    assert_eq!(
        used.filter(&ebs(pod("p"), "vol-1")),
        ["ok"],
        "the same disk"
    );
    let as_volume = used
        .object(volume("v").in_tree("kubernetes.io/aws-ebs", "vol-2"))
        .object(claim("v").bound_to("v"));
    assert_eq!(as_volume.filter(&pod("p").claim("v")), [FULL]);
    let bare = Lab::new(NodeVolumeLimits)
        .node(node("n"))
        .placed(ebs(pod("x").on("n"), "vol-1"));
    assert_eq!(bare.filter(&ebs(pod("p"), "vol-2")), ["ok"], "no CSINode");
}

#[test]
fn a_driver_without_a_limit_takes_any_number() {
    let lab = lab()
        .object(limits(&[("csi", None)]))
        .placed(pod("x").on("n").claim("a").claim("b"));
    assert_eq!(lab.filter(&pod("p").claim("c")), ["ok"]);
}

#[test]
fn claims_that_cannot_be_counted() {
    let missing = "UU looking up PVC default/none: persistentvolumeclaim \"none\" not found";
    assert_eq!(lab().filter(&pod("p").claim("none")), [missing]);
    let there = lab().placed(pod("x").on("n").claim("none").claim("a"));
    assert_eq!(there.filter(&pod("p").claim("b")), ["ok"], "not of our pod");
    let ephemeral = pod("p").volume(VolumeSource::Ephemeral);
    let foreign = lab().object(claim("p-v0").bound_to("a"));
    let text = "running \"NodeVolumeLimits\" filter plugin: PVC default/p-v0 was not created for pod default/p (pod is not owner)";
    assert_eq!(foreign.failure(&ephemeral).as_deref(), Some(text));
    let own = lab().object(claim("p-v0").bound_to("a").of_pod("p"));
    assert_eq!(own.filter(&ephemeral), ["ok"]);
}

#[test]
fn other_pods_matter_only_to_volumes_that_count() {
    let lab = lab()
        .object(class("vsphere").provisioner("kubernetes.io/vsphere-volume"))
        .object(class("nobody").provisioner(""))
        .object(claim("vsphere").class("vsphere"))
        .object(claim("nobody").class("nobody"))
        .object(claim("x-v0").bound_to("a"))
        .placed(pod("x").on("n").volume(VolumeSource::Ephemeral));
    let text = "running \"NodeVolumeLimits\" filter plugin: PVC default/x-v0 was not created for pod default/x (pod is not owner)";
    assert_eq!(lab.failure(&pod("p").claim("b")).as_deref(), Some(text));
    for uncounted in ["vsphere", "nobody"] {
        assert_eq!(lab.filter(&pod("p").claim(uncounted)), ["ok"]);
    }
}

#[test]
fn hints() {
    let user = pod("p").claim("a");
    let lab = || Lab::new(NodeVolumeLimits);
    for (case, old, new, want) in [
        ("a CSINode came", None, limits(&[]), true),
        (
            "a limit grew",
            Some(limits(&[("csi", Some(1))])),
            limits(&[("csi", Some(2))]),
            true,
        ),
        (
            "a limit shrank",
            Some(limits(&[("csi", Some(2))])),
            limits(&[("csi", Some(1))]),
            false,
        ),
        (
            "a driver came",
            Some(limits(&[])),
            limits(&[("csi", Some(1))]),
            true,
        ),
    ] {
        assert_eq!(lab().helps_object(&user, old, new), want, "{case}");
    }
    for (case, gone, want) in [
        ("a pod with a claim", pod("o").on("n").claim("b"), true),
        ("a pod without volumes", pod("o").on("n"), false),
        ("a pod that was nowhere", pod("o").claim("b"), false),
    ] {
        assert_eq!(lab().helps_pod(&user, Some(gone), None), want, "{case}");
    }
    assert!(lab().helps_object(&user, None, claim("a")));
    assert!(!lab().helps_object(&user, None, claim("b")));
    let detached = |pod: &PodBuilder, attacher| {
        let old = attachment("x", attacher, "v");
        lab().helps_object(
            pod,
            Some(old),
            Update::Delete(Kind::VolumeAttachment, "x".into()),
        )
    };
    assert!(detached(&user, "csi"));
    assert!(detached(&ebs(pod("p"), "vol-1"), "ebs.csi.aws.com"));
    assert!(!detached(&ebs(pod("p"), "vol-1"), "csi"));
}

#[test]
fn a_claim_without_a_name_is_an_error() {
    let failure = lab().failure(&pod("p").claim(""));
    let want = "running \"NodeVolumeLimits\" filter plugin: PersistentVolumeClaim had no name";
    assert_eq!(failure.as_deref(), Some(want));
}
