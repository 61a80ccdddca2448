//! Rejects nodes outside the zones of the pod's volumes.

use std::collections::BTreeSet;

use super::csi_migration::{BETA_ZONE, ZONE, ZONE_SEPARATOR};
use crate::model::{Labels, Name, NodeSpec, Pod, VolumeSource};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Fact, Kind, NoArgs,
    NodeRule, Plan, Plugin, Point, Points, Rejection, Storage,
};
use crate::scheduling::framework::{BindingMode, Claim, PersistentVolume};

const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const REGION: &str = "topology.kubernetes.io/region";
const TOPOLOGY: [&str; 4] = [BETA_ZONE, BETA_REGION, ZONE, REGION];

pub struct VolumeZone;

impl Configure for VolumeZone {
    const NAME: &'static str = "VolumeZone";
    const POINTS: Points = Points::of(&[Point::PreFilter, Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for VolumeZone {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        match zones(pod, catalog.storage()) {
            Ok(zones) if zones.is_empty() => {}
            Ok(zones) => plan.gate(
                Fact::new(Elsewhere(zones)),
                "node(s) had no available volume zone",
            ),
            Err(text) => plan.reject(Rejection::unresolvable(text)),
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let changes = Actions::ADD.and(Actions::UPDATE);
        vec![
            EventPattern::new(Kind::StorageClass, Actions::ADD),
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_LABEL)),
            EventPattern::new(Kind::PersistentVolumeClaim, changes),
            EventPattern::new(Kind::PersistentVolume, changes),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::StorageClass(change) => change
                .new
                .as_ref()
                .is_some_and(|new| new.mode == Some(BindingMode::WaitForFirstConsumer)),
            Changed::Claim(change) => change.latest().is_some_and(|claim| uses(pod, claim)),
            Changed::Volume(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => zones_of(old) != zones_of(new),
                _ => true,
            },
            _ => true,
        }
    }
}

fn claims(pod: &Pod) -> impl Iterator<Item = &Name> {
    pod.volumes
        .iter()
        .filter_map(|volume| match &volume.source {
            VolumeSource::Claim(name) => Some(name),
            _ => None,
        })
}

fn uses(pod: &Pod, claim: &Claim) -> bool {
    claim.namespace == *pod.namespace() && claims(pod).any(|name| *name == claim.name)
}

/// A label of a volume, and the values of it that a node may have.
type Zone = (&'static str, BTreeSet<Name>);

fn zones_of(volume: &PersistentVolume) -> Vec<Zone> {
    let zone = |key: &&'static str| Some((*key, values(volume.labels.get(key)?)?));
    TOPOLOGY.iter().filter_map(zone).collect()
}

fn zones(pod: &Pod, storage: &Storage) -> Result<Vec<Zone>, String> {
    let mut zones = Vec::new();
    for name in claims(pod) {
        if let Some(volume) = volume(name, pod, storage)? {
            zones.extend(zones_of(volume));
        }
    }
    Ok(zones)
}

/// The volume of a claim; `None` if it is bound after the pod has a node.
fn volume<'s>(
    name: &str,
    pod: &Pod,
    storage: &'s Storage,
) -> Result<Option<&'s PersistentVolume>, String> {
    if name.is_empty() {
        return Err("PersistentVolumeClaim had no name".to_owned());
    }
    let claim = storage
        .claim(pod.namespace(), name)
        .ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
    if let Some(volume) = &claim.volume {
        let found = storage.volume(volume);
        let found = found.ok_or_else(|| format!("persistentvolume \"{volume}\" not found"))?;
        return Ok(Some(found));
    }
    let Some(class) = claim.class.as_ref().filter(|class| !class.is_empty()) else {
        return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
    };
    let found = storage.classes.get(class);
    let found =
        found.ok_or_else(|| format!("storageclass.storage.k8s.io \"{class}\" not found"))?;
    match found.mode {
        None => Err(format!(
            "VolumeBindingMode not set for StorageClass \"{class}\""
        )),
        Some(BindingMode::WaitForFirstConsumer) => Ok(None),
        Some(BindingMode::Immediate) => Err("PersistentVolume had no name".to_owned()),
    }
}

/// A label with an empty part is ignored.
fn values(label: &str) -> Option<BTreeSet<Name>> {
    label
        .split(ZONE_SEPARATOR)
        .map(str::trim)
        .map(|part| (!part.is_empty()).then(|| Name::from(part)))
        .collect()
}

/// 1 where a volume of the pod is in another zone or region.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Elsewhere(Vec<Zone>);

impl NodeRule for Elsewhere {
    fn of(&self, node: &NodeSpec) -> u32 {
        // A node without zone labels matches every zone.
        let says_nothing = TOPOLOGY.iter().all(|key| !node.labels.contains(key));
        let is_there = |(key, allowed): &Zone| {
            value(key, &node.labels).is_some_and(|value| allowed.contains(value))
        };
        u32::from(!says_nothing && !self.0.iter().all(is_there))
    }
}

/// A node's label, or the label with the newer key for a beta key; not the reverse.
fn value<'l>(key: &str, labels: &'l Labels) -> Option<&'l str> {
    labels.get(key).or_else(|| match key {
        BETA_ZONE => labels.get(ZONE),
        BETA_REGION => labels.get(REGION),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, claim, class, node, pod, volume};

    const REJECTED: &str = "UU node(s) had no available volume zone";

    #[test]
    fn volumes_and_one_node() {
        for (case, label, node, want) in [
            ("the same zone", (ZONE, "a"), vec![(ZONE, "a")], "ok"),
            ("another zone", (ZONE, "a"), vec![(ZONE, "b")], REJECTED),
            ("one of two zones", (ZONE, "a__b"), vec![(ZONE, "b")], "ok"),
            (
                "neither of two",
                (ZONE, "a__b"),
                vec![(ZONE, "c")],
                REJECTED,
            ),
            (
                "spaces do not count",
                (ZONE, " a __ b "),
                vec![(ZONE, "b")],
                "ok",
            ),
            (
                "an empty part voids the label",
                (ZONE, "a__"),
                vec![(ZONE, "b")],
                "ok",
            ),
            (
                "a node without zones",
                (ZONE, "a"),
                vec![("disk", "ssd")],
                "ok",
            ),
            (
                "a node with a region only",
                (ZONE, "a"),
                vec![(REGION, "r")],
                REJECTED,
            ),
            (
                "a beta volume, a new node",
                (BETA_ZONE, "a"),
                vec![(ZONE, "a")],
                "ok",
            ),
            (
                "a new volume, a beta node",
                (ZONE, "a"),
                vec![(BETA_ZONE, "a")],
                REJECTED,
            ),
            ("regions", (REGION, "r"), vec![(REGION, "s")], REJECTED),
            (
                "beta regions",
                (BETA_REGION, "r"),
                vec![(REGION, "r")],
                "ok",
            ),
            ("other labels", ("disk", "ssd"), vec![(ZONE, "a")], "ok"),
        ] {
            let lab = Lab::new(VolumeZone)
                .node(
                    node.iter()
                        .fold(crate::testing::node("n"), |n, (k, v)| n.label(k, v)),
                )
                .object(volume("v").label(label.0, label.1))
                .object(claim("c").bound_to("v"));
            assert_eq!(lab.filter(&pod("p").claim("c")), [want], "{case}");
        }
    }

    #[test]
    fn claims_that_end_the_cycle() {
        for (case, object, want) in [
            (
                "no claim",
                claim("other"),
                "UU persistentvolumeclaim \"c\" not found",
            ),
            (
                "no volume",
                claim("c").bound_to("x"),
                "UU persistentvolume \"x\" not found",
            ),
            (
                "no volume and no class",
                claim("c"),
                "UU PersistentVolumeClaim had no pv name and storageClass name",
            ),
            (
                "no such class",
                claim("c").class("x"),
                "UU storageclass.storage.k8s.io \"x\" not found",
            ),
            (
                "a class without a mode",
                claim("c").class("modeless"),
                "UU VolumeBindingMode not set for StorageClass \"modeless\"",
            ),
            (
                "an immediate class",
                claim("c").class("now"),
                "UU PersistentVolume had no name",
            ),
            ("a class that waits", claim("c").class("later"), "ok"),
        ] {
            let lab = Lab::new(VolumeZone)
                .node(node("n"))
                .object(class("modeless").with(|class| class.mode = None))
                .object(class("now").immediate())
                .object(class("later"))
                .object(object);
            assert_eq!(lab.filter(&pod("p").claim("c")), [want], "{case}");
        }
        let lab = Lab::new(VolumeZone).node(node("n"));
        let nameless = pod("p").claim("");
        assert_eq!(
            lab.filter(&nameless),
            ["UU PersistentVolumeClaim had no name"]
        );
    }

    #[test]
    fn hints() {
        let user = pod("p").claim("c");
        for (case, old, new, want) in [
            ("a volume came", None, volume("v"), true),
            (
                "a volume moved",
                Some(volume("v").label(ZONE, "a")),
                volume("v").label(ZONE, "b"),
                true,
            ),
            (
                "the same zones in other words",
                Some(volume("v").label(ZONE, "a__b")),
                volume("v").label(ZONE, " b __ a"),
                false,
            ),
            (
                "a zone that says nothing",
                Some(volume("v")),
                volume("v").label(ZONE, "a__"),
                false,
            ),
            (
                "a volume changed",
                Some(volume("v")),
                volume("v").label("disk", "ssd"),
                false,
            ),
        ] {
            assert_eq!(
                Lab::new(VolumeZone).helps_object(&user, old, new),
                want,
                "{case}"
            );
        }
        for (case, new, want) in [
            ("its claim came", claim("c"), true),
            ("another claim came", claim("d"), false),
            (
                "a claim of another namespace",
                claim("c").namespace("other"),
                false,
            ),
        ] {
            assert_eq!(
                Lab::new(VolumeZone).helps_object(&user, None, new),
                want,
                "{case}"
            );
        }
        let later = |lab: Lab, class| lab.helps_object(&user, None, class);
        assert!(later(Lab::new(VolumeZone), class("later")));
        assert!(!later(Lab::new(VolumeZone), class("now").immediate()));
    }
}
