//! CSI migration: volumes of in-tree plugins as volumes of the CSI drivers that replaced these plugins: the driver, the
//! volume handle, and the nodes that can reach the volume. The rules are those of kube-scheduler v1.36.4.

use crate::model::{Labels, Name, NodeSelector, Requirement};
use crate::scheduling::framework::{PersistentVolume, VolumeHandle};

pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// Parts of a label that names several zones.
pub(super) const ZONE_SEPARATOR: &str = "__";

const AWS: &str = "kubernetes.io/aws-ebs";
const GCE: &str = "kubernetes.io/gce-pd";

/// The driver under which volumes of an in-tree plugin are counted; `None` if they are not counted.
pub(super) fn driver(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        AWS => "ebs.csi.aws.com",
        GCE => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        _ => return None,
    })
}

/// Whether volumes made for a class of this provisioner are counted under its own name.
pub(super) fn is_driver(provisioner: &str) -> bool {
    const UNCOUNTED: [&str; 2] = ["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];
    !provisioner.is_empty() && driver(provisioner).is_none() && !UNCOUNTED.contains(&provisioner)
}

/// The label in which the driver of a plugin stores the zone of a node.
fn zone_label(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        AWS => "topology.ebs.csi.aws.com/zone",
        GCE => "topology.gke.io/zone",
        "kubernetes.io/cinder" => "topology.cinder.csi.openstack.org/zone",
        _ => return None,
    })
}

/// The driver's handle of a volume of the plugin. `labels` are those of the PersistentVolume, if there is one.
pub(super) fn handle(plugin: &str, id: &Name, labels: Option<&Labels>) -> Result<Name, String> {
    match plugin {
        AWS => aws_handle(id),
        GCE => {
            let labelled = |key| labels?.get(key);
            let zone = labelled(BETA_ZONE).or_else(|| labelled(ZONE));
            let place = gce_place(zone.unwrap_or_default())?;
            Ok(format!("projects/UNSPECIFIED/{place}/disks/{id}").into())
        }
        _ => Ok(id.clone()),
    }
}

/// `vol-1`, also from `aws://zone/vol-1`.
fn aws_handle(id: &Name) -> Result<Name, String> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id.clone());
    };
    let volume = rest.split_once('/').map_or("", |(_, path)| path);
    let volume = volume.trim_matches('/');
    if volume.starts_with("vol-") && !volume.contains('/') {
        return Ok(volume.into());
    }
    Err(format!(
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"
    ))
}

fn gce_place(zone: &str) -> Result<String, String> {
    if zone.is_empty() {
        return Ok("zones/UNSPECIFIED".to_owned());
    }
    if !zone.contains(ZONE_SEPARATOR) {
        return Ok(format!("zones/{zone}"));
    }
    let mut regions = Vec::new();
    for zone in zone.split(ZONE_SEPARATOR) {
        let [locale, region, _] = zone.split('-').collect::<Vec<_>>()[..] else {
            return Err(format!(
                "failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        let region = format!("{locale}-{region}");
        if !regions.contains(&region) {
            regions.push(region);
        }
    }
    match &regions[..] {
        [region] => Ok(format!("regions/{region}")),
        _ => {
            regions.sort_unstable();
            let regions: Vec<String> = regions.iter().map(|r| format!("{r}:{{}}")).collect();
            Err(format!(
                "failed to get region from zones: multiple or no regions gotten from zones, got: map[{}]",
                regions.join(" ")
            ))
        }
    }
}

/// The nodes that can reach a volume if the driver serves its plugin.
pub(super) fn reach(volume: &PersistentVolume) -> Result<Option<NodeSelector>, String> {
    let affinity = volume.node_affinity.clone();
    let VolumeHandle::InTree { plugin, id } = &volume.source else {
        return Ok(affinity);
    };
    handle(plugin, id, Some(&volume.labels))?;
    let Some(label) = zone_label(plugin) else {
        return Ok(affinity);
    };
    // The affinity decides which of the two labels counts; if it names neither, the volume's own labels decide.
    let in_affinity = |key: &&&str| affinity.as_ref().and_then(|a| a.has_values(key)).is_some();
    let in_labels = |key: &&&str| volume.labels.get(key).is_some();
    let keys = [ZONE, BETA_ZONE];
    let key = keys
        .iter()
        .find(in_affinity)
        .or_else(|| keys.iter().find(in_labels));
    let Some(key) = key else {
        return Ok(affinity);
    };
    if affinity.as_ref().and_then(|a| a.has_values(key)) == Some(true) {
        return Ok(affinity.map(|affinity| affinity.renaming(key, label)));
    }
    // Without a zone in the affinity, the label of the volume decides.
    let zones: Vec<Name> = volume
        .labels
        .get(key)
        .unwrap_or_default()
        .split(ZONE_SEPARATOR)
        .map(str::trim)
        .filter(|zone| !zone.is_empty())
        .map(Name::from)
        .collect();
    if zones.is_empty() {
        return Ok(affinity);
    }
    let in_zone = Requirement::one_of(label, zones);
    Ok(Some(affinity.unwrap_or_default().requiring(in_zone)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeMatch;
    use crate::testing::volume;

    #[test]
    fn handles() {
        let bad_aws =
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume";
        let bad_zone = "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got:";
        for (plugin, id, labels, want) in [
            (AWS, "v", vec![], Ok("v".to_owned())),
            (AWS, "vol-1", vec![], Ok("vol-1".to_owned())),
            (AWS, "aws://us-east-1a/vol-1", vec![], Ok("vol-1".to_owned())),
            (AWS, "aws:///vol-1/", vec![], Ok("vol-1".to_owned())),
            (AWS, "aws://x/y/z", vec![], Err(format!("{bad_aws} (aws://x/y/z)"))),
            (AWS, "aws://x", vec![], Err(format!("{bad_aws} (aws://x)"))),
            (GCE, "d", vec![], Ok("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d".to_owned())),
            (GCE, "d", vec![(ZONE, "z1")], Ok("projects/UNSPECIFIED/zones/z1/disks/d".to_owned())),
            (
                GCE,
                "d",
                vec![(ZONE, "z1"), (BETA_ZONE, "z2")],
                Ok("projects/UNSPECIFIED/zones/z2/disks/d".to_owned()),
            ),
            (
                GCE,
                "d",
                vec![(ZONE, "us-c1-a__us-c1-b")],
                Ok("projects/UNSPECIFIED/regions/us-c1/disks/d".to_owned()),
            ),
            (GCE, "d", vec![(ZONE, "z1__z2")], Err(format!("{bad_zone} z1"))),
            (GCE, "d", vec![(ZONE, "us-c1-a__")], Err(format!("{bad_zone} "))),
            (
                GCE,
                "d",
                vec![(ZONE, "us-c2-a__us-c1-b")],
                Err("failed to get region from zones: multiple or no regions gotten from zones, got: map[us-c1:{} us-c2:{}]".to_owned()),
            ),
            ("kubernetes.io/cinder", "c", vec![], Ok("c".to_owned())),
        ] {
            let labels: Labels = labels.into_iter().collect();
            let found = handle(plugin, &id.into(), Some(&labels));
            assert_eq!(found, want.map(Name::from), "{plugin} {id} {labels:?}");
        }
    }

    #[test]
    fn where_migrated_volumes_are() {
        const KEY: &str = "topology.ebs.csi.aws.com/zone";
        let disk = || volume("v").in_tree(AWS, "vol-1");
        for (case, volume, reached, missed) in [
            (
                "its label's zone",
                disk().label(ZONE, "a__b"),
                vec![(KEY, "b")],
                vec![(ZONE, "a")],
            ),
            (
                "half a label",
                disk().label(ZONE, "a__"),
                vec![(KEY, "a")],
                vec![(KEY, "")],
            ),
            (
                "the new label wins",
                disk().label(ZONE, "a").label(BETA_ZONE, "b"),
                vec![(KEY, "a")],
                vec![(KEY, "b")],
            ),
            (
                "its affinity's zone wins over the label",
                disk()
                    .label(ZONE, "a")
                    .on_nodes("failure-domain.beta.kubernetes.io/zone In b"),
                vec![(KEY, "b")],
                vec![(KEY, "a")],
            ),
            (
                "an affinity that names the zone without a value, and the label",
                disk()
                    .label(ZONE, "a")
                    .on_nodes("topology.kubernetes.io/zone Exists"),
                vec![(KEY, "a"), (ZONE, "b")],
                vec![(KEY, "a")],
            ),
            (
                "an affinity that names one label, and the zone in the other",
                disk()
                    .label(BETA_ZONE, "a")
                    .on_nodes("topology.kubernetes.io/zone Exists"),
                vec![(ZONE, "b")],
                vec![(KEY, "a")],
            ),
            (
                "only the label that counts is renamed",
                disk()
                    .on_nodes("failure-domain.beta.kubernetes.io/zone In a")
                    .on_nodes("topology.kubernetes.io/zone In b"),
                vec![(BETA_ZONE, "a")],
                vec![(KEY, "a")],
            ),
            (
                "affinity without a zone, and the label",
                disk().label(ZONE, "a").on_nodes("disk In ssd"),
                vec![(KEY, "a"), ("disk", "ssd")],
                vec![("disk", "ssd")],
            ),
        ] {
            let reach = reach(&volume.build()).unwrap().unwrap();
            let on = |labels: Vec<(&str, &str)>| {
                reach.matches(NodeMatch::Labels(&labels.into_iter().collect()))
            };
            assert!(on(reached), "{case}");
            assert!(!on(missed), "{case}");
        }
    }
}
