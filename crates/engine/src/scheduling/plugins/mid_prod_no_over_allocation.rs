//! Rejects nodes where the native requests of all pods and the mid requests together exceed what is allocatable.
//!
//! Without it, mid pods run on what services request and do not use: both together may request more than the node has. The
//! feature gate of the same name enables it in every profile. A service that needs the capacity can then evict mid pods.

use crate::model::{Pod, Resource};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, ColumnId, Configure, Event, EventPattern, Kind, NoArgs, Part,
    Plan, Plugin, Point, Points, Reason, RequestedAmount, Row, RowFilter, Verdict,
};

pub struct MidProdNoOverAllocation;

impl Configure for MidProdNoOverAllocation {
    const NAME: &'static str = "MidProdNoOverAllocation";
    const POINTS: Points = Points::of(&[Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

/// The native resource, and that of the mid tier.
fn accounts() -> [(Resource, Resource); 2] {
    let mid = |name: &str| Resource::Scalar(name.into());
    [
        (Resource::Cpu, mid("kubernetes.io/mid-cpu")),
        (Resource::Memory, mid("kubernetes.io/mid-memory")),
    ]
}

impl Plugin for MidProdNoOverAllocation {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let wanted = &pod.requests.wanted;
        let checked: Vec<CheckedSum> = accounts()
            .into_iter()
            .filter_map(|(native, mid)| {
                let amount = wanted.get(&native).saturating_add(wanted.get(&mid));
                (amount > 0).then(|| CheckedSum {
                    amount,
                    allocatable: plan.column(&native, Part::Allocatable),
                    requested: plan.column(&native, Part::Requested),
                    mid: plan.column(&mid, Part::Requested),
                    resource: native,
                })
            })
            .collect();
        if !checked.is_empty() {
            plan.filter_rows(Sums(checked));
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::POD_SCALE_DOWN)),
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_ALLOCATABLE)),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        let Some((change, held)) = event.changed.pod() else {
            return true;
        };
        let gone = change.old.as_ref().filter(|_| held);
        event.changed.is_update_of(pod)
            || gone.is_some_and(|gone| {
                let placed = &gone.requests.placed;
                let held = |it: &Resource| placed.get(it) > 0;
                accounts()
                    .iter()
                    .any(|(native, mid)| held(native) || held(mid))
            })
    }
}

#[derive(PartialEq)]
struct Sums(Vec<CheckedSum>);

#[derive(PartialEq)]
struct CheckedSum {
    resource: Resource,
    amount: i64,
    allocatable: ColumnId,
    requested: ColumnId,
    mid: ColumnId,
}

impl CheckedSum {
    fn free(&self, row: Row) -> i64 {
        let requested = row.get(self.requested).saturating_add(row.get(self.mid));
        row.get(self.allocatable).saturating_sub(requested)
    }
}

const INSUFFICIENT: u8 = 1;

impl RowFilter for Sums {
    fn filter(&self, row: Row) -> Verdict {
        match self.0.iter().any(|sum| sum.amount > sum.free(row)) {
            true => Verdict::unschedulable(INSUFFICIENT),
            false => Verdict::FITS,
        }
    }

    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32)) {
        for (code, sum) in (0..).zip(&self.0) {
            if sum.amount > sum.free(row) {
                each(code);
            }
        }
    }

    fn reason(&self, code: u32) -> Reason {
        let name = self.0[code as usize].resource.name();
        format!("Insufficient {name} for services and mid pods together").into()
    }

    fn amounts(&self, row: Row) -> Vec<RequestedAmount> {
        let amounts = self.0.iter().map(|sum| RequestedAmount {
            resource: sum.resource.clone(),
            requested: sum.amount,
            allocatable: row.get(sum.allocatable),
            free: sum.free(row),
        });
        amounts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QosClass;
    use crate::testing::{Lab, node, pod};

    #[test]
    fn services_and_mid_pods_together_do_not_exceed_the_node() {
        let lab = |taken: &str, mid: &str| {
            Lab::new(MidProdNoOverAllocation)
                .node(node("n").allocatable(
                    "cpu=4 memory=4Gi pods=110 kubernetes.io/mid-cpu=4000 kubernetes.io/mid-memory=4Gi",
                ))
                .placed(pod("web").on("n").container(taken))
                .placed(pod("job").on("n").class(QosClass::MidBestEffort).container(mid))
        };
        let mid = "kubernetes.io/mid-cpu=2000 kubernetes.io/mid-memory=1Gi";
        let rejected = "U Insufficient cpu for services and mid pods together";
        let both = "U Insufficient cpu for services and mid pods together, Insufficient memory for services and mid pods together";
        for (case, taken, wants, want) in [
            (
                "room for a service",
                "cpu=1 memory=1Gi",
                "cpu=1 memory=1Gi",
                "ok",
            ),
            (
                "a service that is too large",
                "cpu=1 memory=1Gi",
                "cpu=1001m memory=1Gi",
                rejected,
            ),
            (
                "too much of one resource",
                "cpu=1 memory=1Gi",
                "cpu=1001m memory=2Gi",
                rejected,
            ),
            (
                "too much of another resource is taken",
                "cpu=1 memory=4Gi",
                "cpu=1",
                "ok",
            ),
            (
                "a mid pod that is too large",
                "cpu=1 memory=1Gi",
                "kubernetes.io/mid-cpu=1001",
                rejected,
            ),
            (
                "a mid pod",
                "cpu=1 memory=1Gi",
                "kubernetes.io/mid-cpu=1000",
                "ok",
            ),
            (
                "both resources",
                "cpu=2 memory=3Gi",
                "cpu=1 memory=1Gi",
                both,
            ),
            ("a pod without requests", "cpu=2 memory=3Gi", "", "ok"),
            (
                "a pod of another tier",
                "cpu=2 memory=3Gi",
                "kubernetes.io/batch-cpu=9000",
                "ok",
            ),
        ] {
            let found = lab(taken, mid).filter(&pod("p").container(wants));
            assert_eq!(found, [want], "{case}");
        }
    }

    #[test]
    fn what_can_help() {
        let lab = Lab::new(MidProdNoOverAllocation);
        let waits = pod("p").container("cpu=2");
        for (case, gone, want) in [
            ("a service ends", "cpu=1", true),
            ("a mid pod ends", "kubernetes.io/mid-cpu=1000", true),
            ("a pod with memory ends", "memory=1Gi", true),
            (
                "a pod of another tier ends",
                "kubernetes.io/batch-cpu=9000",
                false,
            ),
            ("a pod without requests ends", "", false),
        ] {
            let gone = pod("gone").container(gone);
            assert_eq!(
                lab.helps_pod(&waits, Some(gone.on("n")), None),
                want,
                "{case}"
            );
        }
        let waiting = pod("other").container("cpu=1");
        assert!(
            !lab.helps_pod(&waits, Some(waiting), None),
            "it held nothing"
        );
        assert!(lab.helps_node(&waits, None, Some(node("n"))));
        let less = pod("p").container("cpu=1");
        assert!(lab.helps_pod(&waits, Some(waits.clone()), Some(less)));
    }
}
