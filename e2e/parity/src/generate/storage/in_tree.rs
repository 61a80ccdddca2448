//! Volumes of plugins that were once part of Kubernetes, most of which CSI drivers serve today.

use serde_json::{Value, json};

use super::EBS_DRIVER;
use crate::random::Random;

/// Plugins, and the drivers that took their place.
pub(super) const PLUGINS: &[(&str, &str)] = &[
    ("kubernetes.io/aws-ebs", EBS_DRIVER),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The annotation of a CSINode that lists plugins: mostly many of them.
pub(super) fn migrated(random: &mut Random) -> String {
    let names: Vec<&str> = PLUGINS.iter().map(|(plugin, _)| *plugin).collect();
    let chosen = random.several(&names, 2, PLUGINS.len());
    chosen.join(",")
}

/// A disk in a pod's own spec.
pub(super) fn inline_disk(random: &mut Random) -> Value {
    let read_only = random.chance(25);
    match random.below(26) {
        0..=5 => {
            json!({"gcePersistentDisk": {"pdName": random.pick(&["disk-1", "disk-1", "disk-2"]), "readOnly": read_only}})
        }
        6..=11 => {
            json!({"awsElasticBlockStore": {"volumeID": random.pick(&["vol-1", "vol-1", "vol-1", "vol-2", "aws://z1/vol-1"]), "readOnly": read_only}})
        }
        12..=17 => {
            json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": random.pick(&["iqn.1", "iqn.1", "iqn.2"]), "lun": 0, "readOnly": read_only}})
        }
        18..=23 => json!({"rbd": {
            "monitors": random.several(&["m1", "m2", "m3"], 1, 2),
            "image": "img", "pool": random.pick(&["rbd", "rbd", "other"]), "readOnly": read_only,
        }}),
        24 => json!({"csi": {"driver": super::DRIVER}}),
        _ => {
            let (field, source) = old_disk(random);
            json!({field: source})
        }
    }
}

/// The source of a PersistentVolume: its field, and what stands there.
pub(super) fn source(random: &mut Random) -> (&'static str, Value) {
    match random.below(3) {
        0 => (
            "awsElasticBlockStore",
            json!({"volumeID": random.pick(&["vol-9", "vol-1", "aws://us-c1-a/vol-9", "aws:///vol-9", "aws://us-c1-a"])}),
        ),
        1 => (
            "gcePersistentDisk",
            json!({"pdName": random.pick(&["disk-1", "disk-9"])}),
        ),
        _ => match old_disk(random) {
            // A volume needs more to find the secret than a pod does.
            ("azureFile", _) => (
                "azureFile",
                json!({"shareName": "share", "secretName": "s", "secretNamespace": "alpha"}),
            ),
            other => other,
        },
    }
}

fn old_disk(random: &mut Random) -> (&'static str, Value) {
    let id = random.pick(&["old-1", "old-1", "old-2"]);
    match random.below(5) {
        0 => ("azureDisk", json!({"diskName": "d", "diskURI": id})),
        1 => ("cinder", json!({"volumeID": id})),
        2 => ("portworxVolume", json!({"volumeID": id})),
        3 => (
            "azureFile",
            json!({"shareName": "share", "secretName": "s"}),
        ),
        _ => ("vsphereVolume", json!({"volumePath": id})),
    }
}
