//! Separates pods that cannot share a volume: inline disks that attach to one node once, and ReadWriteOncePod claims.

use std::collections::BTreeSet;

use crate::model::{Disk, Name, Pod, PodKind};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Count, CountId, Event, EventPattern, Fact,
    Kind, NoArgs, Place, PlaceFilter, Plan, Plugin, PodRule, PodSet, Point, Points, Reason,
    Rejection, Verdict,
};

const FOR_ONE_POD: &str = "ReadWriteOncePod";

pub struct VolumeRestrictions;

impl Configure for VolumeRestrictions {
    const NAME: &'static str = "VolumeRestrictions";
    const POINTS: Points = Points::of(&[Point::PreFilter, Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for VolumeRestrictions {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        let mut exclusive: BTreeSet<&Name> = BTreeSet::new();
        for name in &pod.kind.claims {
            let Some(claim) = catalog.storage().claim(pod.namespace(), name) else {
                let text = format!("persistentvolumeclaim \"{name}\" not found");
                return plan.reject(Rejection::unresolvable(text));
            };
            if claim.access_modes.iter().any(|mode| **mode == *FOR_ONE_POD) {
                exclusive.insert(name);
            }
        }
        let disks = &pod.kind.disks;
        if exclusive.is_empty() && disks.is_empty() {
            return;
        }
        let disks = (!disks.is_empty()).then(|| {
            let rivals = PodSet::new(Rivals(disks.clone()));
            plan.count(Count::on_node(rivals))
        });
        let everywhere = |pods: PodSet| Count::in_domain(pods, Fact::everywhere(), Vec::new());
        let users: Vec<CountId> = exclusive
            .iter()
            .map(|name| {
                let users = Users {
                    namespace: pod.namespace().clone(),
                    claim: (*name).clone(),
                };
                plan.count(everywhere(PodSet::new(users)))
            })
            .collect();
        let moved = Moved(exclusive.into_iter().cloned().collect());
        let moved = plan.count(everywhere(PodSet::new(moved)));
        if disks.is_none() {
            plan.filter_only_with(users.clone());
        }
        plan.filter_places(FreeVolumes {
            disks,
            users,
            moved,
        });
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE),
            EventPattern::new(Kind::Node, Actions::ADD),
            EventPattern::new(Kind::PersistentVolumeClaim, Actions::ADD),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::Claim(change) => change.latest().is_some_and(|claim| {
                claim.namespace == *pod.namespace() && pod.kind.claims.contains(&claim.name)
            }),
            Changed::AssignedPod(change) | Changed::WaitingPod(change) => {
                change.old.as_ref().is_some_and(|gone| {
                    let shared = |name: &Name| pod.kind.claims.contains(name);
                    gone.namespace() == pod.namespace()
                        && (clash(&pod.kind.disks, &gone.kind.disks)
                            || gone.kind.claims.iter().any(shared))
                })
            }
            _ => true,
        }
    }
}

fn clash(ours: &[Disk], theirs: &[Disk]) -> bool {
    ours.iter()
        .any(|ours| theirs.iter().any(|theirs| conflicts(ours, theirs)))
}

/// Whether two pods cannot use these on one node.
fn conflicts(a: &Disk, b: &Disk) -> bool {
    use Disk::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
    match (a, b) {
        (
            GcePersistentDisk { name, read_only },
            GcePersistentDisk {
                name: other,
                read_only: also,
            },
        ) => name == other && !(*read_only && *also),
        (AwsElasticBlockStore { volume }, AwsElasticBlockStore { volume: other }) => {
            volume == other
        }
        (
            Iscsi { iqn, read_only },
            Iscsi {
                iqn: other,
                read_only: also,
            },
        ) => iqn == other && !(*read_only && *also),
        (
            Rbd {
                monitors,
                pool,
                image,
                read_only,
            },
            Rbd {
                monitors: other_monitors,
                pool: other_pool,
                image: other_image,
                read_only: also,
            },
        ) => {
            monitors
                .iter()
                .any(|monitor| other_monitors.contains(monitor))
                && (pool, image) == (other_pool, other_image)
                && !(*read_only && *also)
        }
        _ => false,
    }
}

/// Pods with a disk that cannot be shared with one of these.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rivals(Vec<Disk>);

impl PodRule for Rivals {
    fn counts(&self, pod: &PodKind) -> i64 {
        i64::from(clash(&self.0, &pod.disks))
    }
}

/// Pods that use a claim. kube-scheduler counts them once; [`Moved`] counts hypothetical changes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Users {
    namespace: Name,
    claim: Name,
}

impl PodRule for Users {
    fn counts(&self, pod: &PodKind) -> i64 {
        i64::from(pod.claims.contains(&self.claim))
    }

    fn moves(&self, _: &PodKind) -> i64 {
        0
    }

    fn namespace(&self) -> Option<&Name> {
        Some(&self.namespace)
    }
}

/// Volumes of hypothetical pods by the name of their claim. kube-scheduler does not compare namespaces here.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Moved(Vec<Name>);

impl PodRule for Moved {
    fn counts(&self, _: &PodKind) -> i64 {
        0
    }

    fn moves(&self, pod: &PodKind) -> i64 {
        let named = pod.claims.iter().filter(|name| self.0.contains(name));
        named.count() as i64
    }
}

struct FreeVolumes {
    disks: Option<CountId>,
    /// One count per claim.
    users: Vec<CountId>,
    moved: CountId,
}

const NO_DISK: u8 = 1;
const CLAIM_IN_USE: u8 = 2;

impl PlaceFilter for FreeVolumes {
    fn filter(&self, at: Place) -> Verdict {
        if self.disks.is_some_and(|disks| at.count(disks) > 0) {
            return Verdict::unschedulable(NO_DISK);
        }
        let used = self
            .users
            .iter()
            .filter(|users| at.tally(**users).total > 0);
        if used.count() as i64 + at.tally(self.moved).total > 0 {
            return Verdict::unschedulable(CLAIM_IN_USE);
        }
        Verdict::FITS
    }

    fn reason(&self, code: u8) -> Reason {
        match code {
            NO_DISK => "node(s) had no available disk".into(),
            _ => "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, claim, node, pod};

    const NO_DISK: &str = "U node(s) had no available disk";
    const IN_USE: &str = "U node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

    fn with_disk(pod: PodBuilder, disk: Disk) -> PodBuilder {
        pod.kind(|kind| kind.disks.push(disk))
    }

    fn gce(name: &str, read_only: bool) -> Disk {
        Disk::GcePersistentDisk {
            name: name.into(),
            read_only,
        }
    }

    fn ebs(volume: &str) -> Disk {
        Disk::AwsElasticBlockStore {
            volume: volume.into(),
        }
    }

    fn iscsi(iqn: &str, read_only: bool) -> Disk {
        Disk::Iscsi {
            iqn: iqn.into(),
            read_only,
        }
    }

    fn rbd(monitors: &[&str], pool: &str, image: &str, read_only: bool) -> Disk {
        Disk::Rbd {
            monitors: monitors
                .iter()
                .map(|monitor| Name::from(*monitor))
                .collect(),
            pool: pool.into(),
            image: image.into(),
            read_only,
        }
    }

    #[test]
    fn inline_disks() {
        for (case, theirs, ours, want) in [
            ("one disk", gce("d", false), gce("d", false), NO_DISK),
            ("two disks", gce("d", false), gce("e", false), "ok"),
            ("both only read", gce("d", true), gce("d", true), "ok"),
            ("one writes", gce("d", true), gce("d", false), NO_DISK),
            ("one EBS volume", ebs("v"), ebs("v"), NO_DISK),
            ("two EBS volumes", ebs("v"), ebs("w"), "ok"),
            ("two kinds", ebs("d"), gce("d", false), "ok"),
            (
                "one iSCSI target",
                iscsi("q", false),
                iscsi("q", false),
                NO_DISK,
            ),
            (
                "an iSCSI target for reading",
                iscsi("q", true),
                iscsi("q", true),
                "ok",
            ),
            (
                "a common monitor",
                rbd(&["a", "b"], "p", "i", false),
                rbd(&["b"], "p", "i", false),
                NO_DISK,
            ),
            (
                "no common monitor",
                rbd(&["a"], "p", "i", false),
                rbd(&["b"], "p", "i", false),
                "ok",
            ),
            (
                "another pool",
                rbd(&["a"], "p", "i", false),
                rbd(&["a"], "q", "i", false),
                "ok",
            ),
            (
                "another image",
                rbd(&["a"], "p", "i", false),
                rbd(&["a"], "p", "j", false),
                "ok",
            ),
            (
                "images for reading",
                rbd(&["a"], "p", "i", true),
                rbd(&["a"], "p", "i", true),
                "ok",
            ),
        ] {
            let lab = Lab::new(VolumeRestrictions)
                .node(node("n"))
                .node(node("free"))
                .placed(with_disk(pod("other").on("n"), theirs));
            let found = lab.filter(&with_disk(pod("p"), ours));
            assert_eq!(found, [want, "ok"], "{case}");
        }
    }

    fn with_exclusive_claim() -> Lab {
        Lab::new(VolumeRestrictions)
            .node(node("n"))
            .node(node("m"))
            .object(claim("one").modes(&["ReadWriteOncePod"]))
            .object(claim("any").modes(&["ReadWriteOnce"]))
    }

    #[test]
    fn a_claim_for_one_pod_is_in_use_on_every_node() {
        let user = || pod("other").on("n").claim("one");
        let lab = with_exclusive_claim;
        assert_eq!(lab().filter(&pod("p").claim("one")), ["ok"; 2], "nobody");
        let used = lab().placed(user());
        assert_eq!(used.filter(&pod("p").claim("one")), [IN_USE; 2]);
        assert_eq!(used.filter(&pod("p").claim("any")), ["ok"; 2]);
        let elsewhere = lab().placed(user().namespace("other"));
        assert_eq!(elsewhere.filter(&pod("p").claim("one")), ["ok"; 2]);
        let missing = lab().filter(&pod("p").claim("none"));
        assert_eq!(missing, ["UU persistentvolumeclaim \"none\" not found"; 2]);
    }

    #[test]
    fn pods_that_come_or_go_are_counted_by_their_volumes() {
        let wants = pod("p").claim("one");
        let two = with_exclusive_claim()
            .placed(pod("a").on("n").claim("one"))
            .placed(pod("b").on("n").claim("one"));
        assert_eq!(
            two.filter_without(&wants, "n", &["a"]),
            "ok",
            "one of two users is enough"
        );
        let nominated = pod("a").priority(1).claim("one");
        let skipped = with_exclusive_claim().nominated(nominated.clone(), "n");
        assert_eq!(
            skipped.filter(&wants),
            ["ok"; 2],
            "a skipped plugin does not see nominated pods"
        );
        let seen = with_disk(wants.clone(), ebs("v"));
        assert_eq!(skipped.filter(&seen), [IN_USE, "ok"]);
        let foreign = with_exclusive_claim().nominated(nominated.namespace("other"), "n");
        assert_eq!(
            foreign.filter(&seen),
            [IN_USE, "ok"],
            "whatever its namespace"
        );
    }

    #[test]
    fn hints() {
        let waiting = with_disk(pod("p").claim("c"), ebs("v"));
        for (case, gone, want) in [
            (
                "a pod with the disk",
                with_disk(pod("o").on("n"), ebs("v")),
                true,
            ),
            ("a pod with the claim", pod("o").on("n").claim("c"), true),
            ("a pod with neither", pod("o").on("n").claim("d"), false),
            (
                "in another namespace",
                pod("o").on("n").claim("c").namespace("other"),
                false,
            ),
        ] {
            let lab = Lab::new(VolumeRestrictions);
            assert_eq!(lab.helps_pod(&waiting, Some(gone), None), want, "{case}");
        }
        let lab = Lab::new(VolumeRestrictions);
        assert!(lab.helps_object(&waiting, None, claim("c")));
        assert!(!lab.helps_object(&waiting, None, claim("d")));
        assert!(
            !lab.helps_object(&waiting, Some(claim("c")), claim("c").bound_to("v")),
            "no update"
        );
    }
}
