//! Volumes: classes, claims and volumes in every state, CSI limits and capacity, inline disks.
//!
//! The claims have fixed names for what is special about them; what varies is which nodes,
//! zones and sizes they mean.

mod in_tree;

use serde_json::{Map, Value, json};

use in_tree::inline_disk;

use super::{Draft, HOSTNAME, Mood, REGION, ZONE, ZONES};
use crate::random::Random;

const DRIVER: &str = "csi.example.com";
const EBS_DRIVER: &str = "ebs.csi.aws.com";
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BOUND: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Claims that VolumeBinding's PreFilter lets pass, and how many percent of the pods with volumes
/// have them. They are judged per node.
const USABLE: &[(&str, u32)] = &[
    ("here", 48),
    ("zoned", 62),
    ("pv-gone", 25),
    ("static", 30),
    ("static-2", 12),
    ("csi", 72),
    ("csi-2", 15),
    ("chosen", 8),
    ("only-one", 55),
    ("shared-1", 15),
    ("shared-2", 15),
    ("shared-3", 10),
    ("ebs", 10),
    ("ebs-class", 6),
    ("old", 14),
    ("old-class", 6),
];

/// Claims that end the cycle before any node is looked at, besides the unbound immediate one.
const UNUSABLE: &[&str] = &[
    "missing",
    "lost",
    "leaving",
    "classless",
    "modeless",
    "class-gone",
    "half-bound",
];

/// Claims of pods that run already.
const IN_USE: &[&str] = &[
    "shared-1",
    "shared-2",
    "shared-3",
    "only-one",
    "only-one",
    "zoned",
    "ebs",
    "old",
    "old-class",
    "csi",
    "missing",
];

pub(super) struct Storage {
    /// The lists of objects, by their key in the case.
    pub objects: Map<String, Value>,
    used: bool,
}

/// Everything about storage; most of it only in cases in which some pod has volumes.
pub(super) fn storage(draft: &mut Draft) -> Storage {
    let mut objects = Map::new();
    objects.insert("persistentVolumes".into(), json!([]));
    let used = draft.mood == Mood::Stored || draft.random.chance(60);
    if used {
        objects.insert("storageClasses".into(), classes(&mut draft.random));
        objects.insert("persistentVolumeClaims".into(), claims(draft));
        objects.insert("persistentVolumes".into(), volumes(draft));
        objects.insert("csiNodes".into(), csi_nodes(draft));
        objects.insert("csiDrivers".into(), drivers(&mut draft.random));
        objects.insert("csiStorageCapacities".into(), capacities(&mut draft.random));
        objects.insert("volumeAttachments".into(), attachments(draft));
    }
    Storage { objects, used }
}

impl Storage {
    /// `spec.volumes` of the pod to place.
    pub(super) fn volumes_to_place(&self, random: &mut Random) -> Value {
        if !self.used {
            return Value::Null;
        }
        if random.chance(20) {
            // Just one, so that some node is left to score.
            return named(vec![claim_volume(random.one(USABLE).0)]);
        }
        let mut list: Vec<Value> = Vec::new();
        for (name, percent) in USABLE {
            if random.chance(*percent) {
                list.push(claim_volume(name));
            }
        }
        if random.chance(24) {
            list.push(claim_volume("immediate"));
        } else if random.chance(18) {
            list.push(claim_volume(random.pick(UNUSABLE)));
        }
        if random.chance(80) {
            list.push(inline_disk(random));
        }
        if random.chance(42) {
            list.push(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
        }
        if random.chance(10) {
            list.push(json!({"image": {"reference": random.pick(super::cluster::IMAGES)}}));
        }
        if random.chance(10) {
            list.push(json!({"emptyDir": {}}));
        }
        named(list)
    }

    /// `spec.volumes` of a pod that runs.
    pub(super) fn volumes_in_use(&self, random: &mut Random, namespace: &str) -> Value {
        if !self.used {
            return Value::Null;
        }
        let mut list = Vec::new();
        // Claims live in one namespace: elsewhere the same names mean nothing.
        if namespace == "alpha" || random.chance(10) {
            list.extend(random.several(IN_USE, 1, 2).into_iter().map(claim_volume));
        }
        if random.chance(70) {
            list.push(inline_disk(random));
        }
        if random.chance(6) {
            list.push(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
        }
        named(list)
    }
}

/// Gives each volume a name, and drops repeated claims.
fn named(list: Vec<Value>) -> Value {
    let mut kept: Vec<Value> = Vec::new();
    for volume in list {
        if !kept.contains(&volume) {
            kept.push(volume);
        }
    }
    kept.into_iter()
        .enumerate()
        .map(|(number, mut volume)| {
            volume["name"] = json!(if volume.get("ephemeral").is_some() {
                "scratch".to_owned()
            } else {
                format!("v{number}")
            });
            volume
        })
        .collect()
}

fn claim_volume(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

fn classes(random: &mut Random) -> Value {
    let mut csi = json!({
        "metadata": {"name": "csi"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    if random.chance(40) {
        let zone = json!({"key": ZONE, "values": random.several(ZONES, 1, 2)});
        csi["allowedTopologies"] = match random.below(8) {
            0 => json!([{}]),
            1 => json!([{"matchLabelExpressions": [zone, {"key": REGION, "values": ["r1"]}]}]),
            2 => json!([{}, {"matchLabelExpressions": [zone]}]),
            _ => json!([{"matchLabelExpressions": [zone]}]),
        };
    }
    json!([
        csi,
        {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "modeless"}, "provisioner": DRIVER},
        {"metadata": {"name": "immediate"}, "provisioner": DRIVER, "volumeBindingMode": "Immediate"},
        {"metadata": {"name": "ebs"}, "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "old"}, "provisioner": random.one(in_tree::PLUGINS).0, "volumeBindingMode": "WaitForFirstConsumer"},
    ])
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "alpha", "uid": format!("claim-{name}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    })
}

fn bound_claim(name: &str, volume: &str) -> Value {
    let mut claim = claim(name, "csi", "1Gi");
    claim["metadata"]["annotations"] = json!({BOUND: "yes"});
    claim["spec"]["volumeName"] = json!(volume);
    claim["status"]["phase"] = json!("Bound");
    claim
}

fn claims(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let mut list: Vec<Value> = [
        "here", "zoned", "shared-1", "shared-2", "shared-3", "ebs", "old",
    ]
    .into_iter()
    .map(|name| bound_claim(name, name))
    .collect();
    list.push(bound_claim("pv-gone", "no-such-volume"));
    let mut only_one = bound_claim("only-one", "only-one");
    only_one["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    list.push(only_one);
    let mut lost = bound_claim("lost", "no-such-volume");
    lost["status"]["phase"] = json!("Lost");
    list.push(lost);
    let mut leaving = bound_claim("leaving", "shared-1");
    leaving["metadata"]["deletionTimestamp"] = json!("2024-05-01T00:00:00Z");
    list.push(leaving);

    list.push(claim("immediate", "immediate", "1Gi"));
    list.push(claim("modeless", "modeless", "1Gi"));
    list.push(claim("class-gone", "no-such-class", "1Gi"));
    let mut classless = claim("classless", "", "1Gi");
    if let Some(spec) = classless["spec"].as_object_mut() {
        spec.remove("storageClassName");
    }
    list.push(classless);
    let mut half_bound = claim("half-bound", "csi", "1Gi");
    half_bound["spec"]["volumeName"] = json!("shared-1");
    list.push(half_bound);

    list.push(claim("ebs-class", "ebs", "2Gi"));
    list.push(claim("old-class", "old", "2Gi"));
    for name in ["csi", "csi-2"] {
        let size = random.pick(&["1Gi", "5Gi", "8Gi", "50Gi", "50Gi"]);
        let mut claim = claim(name, "csi", size);
        match random.below(12) {
            0 => claim["spec"]["resources"] = json!({}),
            1 => {
                claim["spec"]["storageClassName"] = json!("no-such-class");
                claim["metadata"]["annotations"] = json!({BETA_CLASS: "csi"});
            }
            _ => {}
        }
        list.push(claim);
    }
    let mut chosen = claim("chosen", "csi", "1Gi");
    chosen["metadata"]["annotations"] = json!({SELECTED_NODE: random.one(&draft.nodes)});
    list.push(chosen);
    for (name, size) in [("static", "2Gi"), ("static-2", "6Gi")] {
        let mut claim = claim(name, "static", size);
        if random.chance(25) {
            claim["spec"]["selector"] = json!({"matchLabels": {"kind": "fast"}});
        }
        if random.chance(10) {
            claim["spec"]["volumeMode"] = json!("Block");
        }
        if random.chance(15) {
            claim["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]);
        }
        if random.chance(15) {
            claim["spec"]["volumeAttributesClassName"] =
                json!(random.pick(&["gold", "silver", ""]));
        }
        list.push(claim);
    }
    list.extend(ephemeral_claim(random));
    list.extend(ephemeral_claims_in_use(random));
    Value::Array(list)
}

/// The claim of the incoming pod's volume `scratch`: its own, another's, or not there yet.
fn ephemeral_claim(random: &mut Random) -> Option<Value> {
    let mut claim = match random.below(7) {
        0 => return None,
        1 => claim("incoming-scratch", "csi", "1Gi"),
        2..=5 => bound_claim("incoming-scratch", "no-such-volume"),
        _ => bound_claim("incoming-scratch", "here"),
    };
    if random.chance(92) {
        claim["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "incoming", "uid": "incoming", "controller": true},
        ]);
    }
    Some(claim)
}

/// Claims of the volume `scratch` of some pods that run; seldom another's, because that is a fault.
fn ephemeral_claims_in_use(random: &mut Random) -> Vec<Value> {
    let mut list = Vec::new();
    for number in 1..6 {
        let (name, volume) = (
            format!("p{number}-scratch"),
            format!("shared-{}", number % 3 + 1),
        );
        let mut claim = bound_claim(&name, &volume);
        if random.chance(90) {
            let uid = format!("p{number}");
            claim["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "controller": true},
            ]);
        }
        list.push(claim);
    }
    list
}

/// Sizes are all different, because upstream takes any of two equal volumes.
fn volumes(draft: &mut Draft) -> Value {
    let mut list = Vec::new();
    for name in [
        "here", "zoned", "only-one", "shared-1", "shared-2", "shared-3", "ebs", "old",
    ] {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "csi",
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": "alpha", "name": name, "uid": format!("claim-{name}")},
            },
            "status": {"phase": "Bound"},
        });
        let source = match name {
            "ebs" => ("awsElasticBlockStore", json!({"volumeID": "vol-9"})),
            "old" => in_tree::source(&mut draft.random),
            _ => (
                "csi",
                json!({"driver": DRIVER, "volumeHandle": format!("handle-{name}")}),
            ),
        };
        volume["spec"][source.0] = source.1;
        if matches!(name, "zoned" | "ebs" | "old") {
            volume["metadata"]["labels"] = zone_labels(&mut draft.random);
        }
        if name == "here" || name == "old" && draft.random.chance(50) {
            volume["spec"]["nodeAffinity"] = json!({"required": reach(draft)});
        }
        list.push(volume);
    }
    for number in 0..draft.random.below(6) {
        list.push(static_volume(draft, number));
    }
    for (number, volume) in list.iter_mut().enumerate() {
        // Not in the order of the list: the smallest is somewhere in it.
        let size = (number * 7 + 5) % 17 + 1;
        volume["spec"]["capacity"] = json!({"storage": format!("{size}Gi")});
    }
    Value::Array(list)
}

/// The node selector of a volume: some zone, or some nodes.
fn reach(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let requirement = match random.below(14) {
        0..=3 => {
            json!({"key": HOSTNAME, "operator": "In", "values": random.several(&draft.nodes, 1, 3)})
        }
        4..=7 => json!({"key": ZONE, "operator": "NotIn", "values": [random.pick(ZONES)]}),
        8 => json!({"key": BETA_ZONE, "operator": "In", "values": random.several(ZONES, 1, 2)}),
        // No zone at all; `Exists` apart, these cannot be parsed.
        9 => {
            json!({"key": random.pick(&[ZONE, BETA_ZONE]), "operator": random.pick(&["In", "Near", "Exists"])})
        }
        _ => json!({"key": ZONE, "operator": "In", "values": random.several(ZONES, 1, 2)}),
    };
    let term = json!({"matchExpressions": [requirement]});
    let by_name = json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [random.one(&draft.nodes)]},
    ]});
    let terms = match random.below(10) {
        0 => json!([term, by_name]),
        1 => json!([{}, term]),
        2 => json!([term, {"matchExpressions": [{"key": REGION, "operator": "Exists"}]}]),
        3 => json!([term, {"matchExpressions": [
            {"key": BETA_ZONE, "operator": random.pick(&["In", "Near"]), "values": [random.pick(ZONES)]},
        ]}]),
        _ => json!([term]),
    };
    json!({"nodeSelectorTerms": terms})
}

fn zone_labels(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({ZONE: "z1__z2"}),
        1 => json!({BETA_ZONE: random.pick(ZONES)}),
        6 => json!({ZONE: random.pick(ZONES), BETA_ZONE: random.pick(ZONES)}),
        7 => json!({ZONE: random.pick(&["us-c1-a__us-c1-b", "us-c1-a__us-c2-b", " z1 __ z2"])}),
        2 => json!({ZONE: random.pick(ZONES), REGION: "r1"}),
        3 => json!({ZONE: "z1__"}),
        _ => json!({ZONE: random.pick(ZONES)}),
    }
}

/// A local volume that waits for a claim, or has been promised to one.
fn static_volume(draft: &mut Draft, number: usize) -> Value {
    let mut volume = json!({
        "metadata": {"name": format!("static-{number}")},
        "spec": {
            "storageClassName": "static", "accessModes": ["ReadWriteOnce"], "local": {"path": "/disk"},
            "nodeAffinity": {"required": reach(draft)},
        },
        "status": {"phase": "Available"},
    });
    let random = &mut draft.random;
    if random.chance(50) {
        volume["metadata"]["labels"] = json!({"kind": random.pick(&["fast", "slow"])});
    }
    if random.chance(10) {
        volume["spec"]["volumeAttributesClassName"] = json!(random.pick(&["gold", "silver", ""]));
    }
    match random.below(10) {
        // Only the first: upstream takes any of two volumes promised to one claim.
        0 if number == 0 => {
            volume["spec"]["claimRef"] = json!({"namespace": "alpha", "name": "static"});
            if random.chance(50) {
                volume["spec"]["claimRef"]["uid"] = json!(random.pick(&["claim-static", "old"]));
            }
        }
        5 => volume["metadata"]["deletionTimestamp"] = json!("2024-05-01T00:00:00Z"),
        6 => {
            volume["metadata"]["annotations"] =
                json!({BETA_CLASS: random.pick(&["static", "csi"])});
            volume["spec"]["storageClassName"] = json!(random.pick(&["static", "csi"]));
        }
        1 => {
            volume["spec"]["claimRef"] =
                json!({"namespace": "beta", "name": "static", "uid": "else"})
        }
        2 => volume["status"]["phase"] = json!("Released"),
        3 => volume["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]),
        4 => volume["spec"]["volumeMode"] = json!(random.pick(&["Block", "Filesystem"])),
        _ => {}
    }
    volume
}

fn csi_nodes(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let mut list = Vec::new();
    for node in &draft.nodes {
        if random.chance(12) {
            continue;
        }
        let mut drivers = Vec::new();
        let migrated = in_tree::PLUGINS.iter().map(|(_, driver)| *driver);
        for name in [DRIVER].into_iter().chain(migrated) {
            if !random.chance(85) {
                continue;
            }
            let mut driver = json!({"name": name, "nodeID": node});
            if random.chance(75) {
                driver["allocatable"] = json!({"count": random.one(&[1, 2, 3, 3, 8])});
            }
            drivers.push(driver);
        }
        let mut meta = json!({"name": node});
        if random.chance(70) {
            meta["annotations"] = json!({MIGRATED: in_tree::migrated(random)});
        }
        list.push(json!({"metadata": meta, "spec": {"drivers": drivers}}));
    }
    Value::Array(list)
}

fn drivers(random: &mut Random) -> Value {
    if random.chance(10) {
        return json!([]);
    }
    json!([{"metadata": {"name": DRIVER}, "spec": {"storageCapacity": random.chance(85)}}])
}

fn capacities(random: &mut Random) -> Value {
    let mut list = Vec::new();
    for (number, zone) in ZONES.iter().enumerate() {
        if random.chance(30) {
            continue;
        }
        let mut capacity = json!({
            "metadata": {"name": format!("k{number}"), "namespace": "alpha"},
            "storageClassName": random.pick(&["csi", "csi", "csi", "other"]),
        });
        match random.below(20) {
            0 | 1 => {}
            2 => capacity["nodeTopology"] = json!({}),
            3 => {
                let elsewhere = json!({"key": ZONE, "operator": "NotIn", "values": [zone]});
                capacity["nodeTopology"] = json!({"matchExpressions": [elsewhere]});
            }
            _ => capacity["nodeTopology"] = json!({"matchLabels": {ZONE: zone}}),
        }
        if random.chance(90) {
            capacity["capacity"] = json!(random.pick(&["0", "4Gi", "10Gi", "100Gi"]));
        }
        if random.chance(25) {
            capacity["maximumVolumeSize"] = json!(random.pick(&["2Gi", "60Gi"]));
        }
        list.push(capacity);
    }
    Value::Array(list)
}

fn attachments(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    (0..random.below(5))
        .map(|number| {
            json!({
                "metadata": {"name": format!("a{number}")},
                "spec": {
                    "attacher": random.pick(&[DRIVER, DRIVER, EBS_DRIVER]),
                    "nodeName": random.one(&draft.nodes),
                    "source": {"persistentVolumeName": random.pick(&["shared-1", "shared-2", "here", "old", "no-such-volume"])},
                },
            })
        })
        .collect()
}
