//! The invariants of the cluster state, recomputed from the objects. For tests; too slow for anything else.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::lending::lent_columns;
use super::{Cluster, Lost, Part, PodClassId, Share, ZoneRow, scalars};
use crate::model::{Name, ReclaimedResource, Resource};

/// A count that does not follow from the objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corruption(String);

fn same<T: PartialEq + std::fmt::Debug>(
    what: impl FnOnce() -> String,
    found: T,
    want: T,
) -> Result<(), Corruption> {
    if found == want {
        Ok(())
    } else {
        Err(Corruption(format!(
            "{}: found {found:?}, want {want:?}",
            what()
        )))
    }
}

impl Cluster {
    /// Every index, row and counter equals what the objects say.
    pub fn check(&self) -> Result<(), Corruption> {
        self.check_rows()?;
        self.check_pods()?;
        let nodes = || self.nodes.slots().iter().flatten();
        let labels: usize = nodes()
            .map(|entry| entry.node.spec.labels.iter().len())
            .sum();
        same(|| "label values".into(), self.nodes.domains.uses(), labels)?;
        let promised = self.catalog.storage.unaccounted();
        same(
            || "volumes and claims promised to no pod".into(),
            promised,
            0,
        )?;
        let images: usize = nodes()
            .map(|entry| entry.node.spec.images.iter().count())
            .sum();
        same(|| "image names".into(), self.catalog.images.uses(), images)?;
        let offers: usize = nodes().map(|entry| scalars(&entry.node).count()).sum();
        same(
            || "offered resources".into(),
            self.catalog.accounts.offers(),
            offers,
        )?;
        same(
            || "number of nodes".into(),
            self.catalog.node_count,
            nodes().count(),
        )?;
        let free: Vec<usize> = (0..self.nodes.slots().len())
            .filter(|slot| self.nodes.get(*slot).is_none())
            .collect();
        let is_homeless = |name: &&Name| self.nodes.slot(name).is_none();
        same(
            || "reports of unknown nodes".into(),
            self.reports_without_node,
            self.reports.keys().filter(is_homeless).count(),
        )?;
        same(
            || "free slots".into(),
            self.nodes.free_slots().iter().copied().collect(),
            free,
        )
    }

    fn check_rows(&self) -> Result<(), Corruption> {
        let accounts = self.catalog.accounts();
        for (slot, entry) in self.nodes.slots().iter().enumerate() {
            let mut row = vec![0; self.nodes.width()];
            if let Some(entry) = entry {
                same(
                    || "slot by name".into(),
                    self.nodes.slot(&entry.node.spec.name),
                    Some(slot),
                )?;
                for (resource, amount) in entry.node.allocatable.iter() {
                    match accounts.column(resource, Part::Allocatable) {
                        Some(column) => row[column] = amount,
                        None => {
                            return Err(Corruption(format!("{} has no account", resource.name())));
                        }
                    }
                }
                let report = self.reports.get(&entry.node.spec.name);
                for resource in ReclaimedResource::ALL {
                    for (part, amount) in lent_columns(report.map(|it| &**it), resource) {
                        if let Some(column) = accounts.reclaimed_column(resource, part) {
                            row[column] = amount;
                        }
                    }
                }
                same(
                    || format!("what is known of the report of {}", entry.node.spec.name),
                    (
                        entry.node.spec.reports,
                        &entry.node.spec.qos_taints[..],
                        entry.node.spec.refuses_mid_latency_sensitive,
                        &entry.node.spec.topology,
                    ),
                    (
                        report.is_some(),
                        report.map_or(&[][..], |report| &report.taints),
                        report.is_some_and(|report| report.refuses_mid_latency_sensitive),
                        report.map_or(&None, |report| &report.topology),
                    ),
                )?;
                self.pods_on(slot)
                    .for_each(|placed| accounts.charge(&mut row, &placed.pod.requests, 1));
                self.check_zones(slot, &mut row)?;
            }
            same(
                || format!("row of slot {slot}"),
                self.nodes.row(slot),
                &row[..],
            )?;
        }
        same(
            || "width".into(),
            self.nodes.width(),
            accounts
                .column(&Resource::Cpu, Part::Allocatable)
                .map_or(0, |_| accounts.width()),
        )
    }

    /// Checks who has which zones, and adds what is lost to the row.
    fn check_zones(&self, slot: usize, row: &mut [i64]) -> Result<(), Corruption> {
        let zones = self.zones_from_pods(slot);
        let known = self.zones_of(slot);
        same(|| format!("zones of slot {slot}"), known, zones.as_ref())?;
        let numbers = self.nodes.zone_row(slot).copied();
        same(
            || format!("numbers of the zones of slot {slot}"),
            numbers.unwrap_or(ZoneRow::NONE),
            ZoneRow::of(zones.as_ref()),
        )?;
        let lost = self.lost_from(slot, zones.as_ref());
        for placed in self.pods_on(slot) {
            let found = lost.iter().find(|(uid, _)| *uid == placed.pod.uid);
            let want = found.map_or(Lost::default(), |(_, lost)| *lost);
            same(
                || format!("what pod {} takes beyond its requests", placed.pod.uid),
                placed.lost,
                want,
            )?;
            self.catalog.accounts.charge_lost(row, &want, 1);
        }
        Ok(())
    }

    fn check_pods(&self) -> Result<(), Corruption> {
        let mut uses = 0;
        let mut terms = 0;
        let mut on: HashMap<(PodClassId, usize), u32> = HashMap::new();
        let mut seen: HashMap<PodClassId, ()> = HashMap::new();
        let mut strays = 0;
        for (index, placed) in self.pods.iter().enumerate() {
            let Some(placed) = placed else { continue };
            same(
                || format!("index of pod {}", placed.pod.uid),
                self.by_uid.get(&placed.pod.uid).map(|id| id.0),
                Some(index),
            )?;
            let pod = &placed.pod;
            same(
                || format!("what is kept of pod {}", pod.uid),
                (placed.priority, placed.started, placed.share),
                (pod.priority, pod.started, Share::of(&pod.requests)),
            )?;
            uses += 1;
            seen.insert(placed.class, ());
            match self.nodes.slot(&placed.node) {
                Some(slot) => {
                    *on.entry((placed.class, slot)).or_default() += 1;
                    let times = self
                        .pods_on(slot)
                        .filter(|other| other.pod.uid == placed.pod.uid)
                        .count();
                    same(|| format!("pod {} on its node", placed.pod.uid), times, 1)?;
                }
                None => {
                    strays += 1;
                    let times = self
                        .stray
                        .get(&placed.node)
                        .map_or(0, |ids| ids.iter().filter(|id| id.0 == index).count());
                    same(|| format!("stray pod {}", placed.pod.uid), times, 1)?;
                }
            }
        }
        same(|| "pods by uid".into(), self.by_uid.len(), uses)?;
        same(
            || "stray pods".into(),
            self.stray.values().map(Vec::len).sum::<usize>(),
            strays,
        )?;
        for nominated in self.nominated.values() {
            uses += 1;
            seen.insert(nominated.class, ());
            let times = self
                .nominated_to(&nominated.node)
                .filter(|n| n.pod.uid == nominated.pod.uid)
                .count();
            same(|| format!("nomination of {}", nominated.pod.uid), times, 1)?;
        }
        same(
            || "nominations by node".into(),
            self.nominated_to.values().map(BTreeMap::len).sum::<usize>(),
            self.nominated.len(),
        )?;
        same(|| "uses of pod classes".into(), self.classes.uses(), uses)?;
        let mut seen: Vec<PodClassId> = seen.into_keys().collect();
        seen.sort();
        same(
            || "number of pod classes".into(),
            self.classes.of(None).count(),
            seen.len(),
        )?;
        for id in seen {
            let Some(kind) = self.classes.get(id) else {
                return Err(Corruption(format!("{id:?} is gone")));
            };
            let k = &kind.kind;
            terms += k.affinity.iter().collect::<BTreeSet<_>>().len()
                + k.anti_affinity.iter().collect::<BTreeSet<_>>().len()
                + k.preferred_affinity.iter().collect::<BTreeSet<_>>().len()
                + k.preferred_anti_affinity
                    .iter()
                    .collect::<BTreeSet<_>>()
                    .len();
            same(
                || format!("pod class {id:?} in its namespace"),
                self.classes
                    .of(Some(&k.namespace))
                    .filter(|o| o.kind == *k)
                    .count(),
                1,
            )?;
            for (slot, pods) in &kind.on {
                same(
                    || format!("pods of {id:?} on slot {slot}"),
                    on.remove(&(id, *slot)),
                    Some(*pods),
                )?;
            }
        }
        same(|| "pod classes on nodes".into(), on.len(), 0)?;
        same(|| "terms".into(), self.catalog.terms.uses(), terms)
    }
}
