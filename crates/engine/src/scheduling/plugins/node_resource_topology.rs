//! Gives pods of level dedicated_cores with `numa_binding` whole NUMA zones of their own, or one zone that they share.
//!
//! A pod gets the fewest idle zones that suffice: in one socket if a socket is large enough, or else those with the least
//! distance. It waits for zones of one socket rather than span two. The zones are in the pod's Binding as an annotation, and
//! the pod has them until it leaves the node; nothing else is reserved. What is left over in a zone that a pod has alone is
//! in the node's account, so that NodeResourcesFit does not give it to others.
//!
//! With the policy `native` it only checks that a pod which the kubelet pins fits one zone.

mod choose;
mod score;

use serde::{Deserialize, Serialize};

use self::choose::{Shortfall, ZoneDemand};
use self::score::{Scored, ZoneStrategy};
use super::resource_strategy::{WeightedResource, check_weights, resource_name_fault};
use crate::model::{NUMA_ZONES, NodeSpec, Pod, Resource, ZoneSet};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Kind, NodeZones, Plan,
    Plugin, Point, Points, Reason, Verdict, ZoneFilter, ZoneRow,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeResourceTopologyArgs {
    /// LeastAllocated over cpu and memory when not given.
    pub scoring_strategy: Option<ZoneScoringStrategy>,
    /// Resources that a pod gets from the same zones; cpu and memory when not given.
    pub aligned_resources: Vec<String>,
    /// `dynamic` when not given.
    pub resource_plugin_policy: String,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneScoringStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    /// cpu and memory when not given.
    pub resources: Vec<WeightedResource>,
}

pub struct NodeResourceTopology {
    strategy: ZoneStrategy,
    aligned: Vec<Resource>,
    /// The kubelet pins pods, and not we.
    is_native: bool,
}

impl Configure for NodeResourceTopology {
    const NAME: &'static str = "NodeResourceTopology";
    const POINTS: Points =
        Points::of(&[Point::Filter, Point::Score, Point::Reserve, Point::PreBind]);
    type Args = NodeResourceTopologyArgs;

    fn complete(args: &mut Self::Args) {
        let strategy = args.scoring_strategy.get_or_insert(ZoneScoringStrategy {
            kind: "LeastAllocated".to_owned(),
            ..ZoneScoringStrategy::default()
        });
        WeightedResource::complete(&mut strategy.resources);
        if args.aligned_resources.is_empty() {
            args.aligned_resources = vec!["cpu".to_owned(), "memory".to_owned()];
        }
        if args.resource_plugin_policy.is_empty() {
            args.resource_plugin_policy = "dynamic".to_owned();
        }
    }

    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let given = args.scoring_strategy.unwrap_or_default();
        check_weights(&given.resources, "scoringStrategy.resources", &mut errors);
        let strategy = ZoneStrategy::new(&given.kind, &given.resources).unwrap_or_else(|text| {
            errors.push(ArgsError::new("scoringStrategy.type", text));
            ZoneStrategy::default()
        });
        for (i, name) in args.aligned_resources.iter().enumerate() {
            let fault = resource_name_fault(name);
            let field = format!("alignedResources[{i}]");
            errors.extend(fault.map(|fault| ArgsError::new(field, fault)));
        }
        let is_native = match &args.resource_plugin_policy[..] {
            "native" => true,
            "dynamic" => false,
            other => {
                let text = format!(
                    "Unsupported value: \"{other}\": supported values: \"dynamic\", \"native\""
                );
                errors.push(ArgsError::new("resourcePluginPolicy", text));
                false
            }
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let aligned = args.aligned_resources.iter();
        Ok(Self {
            strategy,
            aligned: aligned.filter_map(|name| Resource::parse(name)).collect(),
            is_native,
        })
    }
}

impl NodeResourceTopology {
    /// `None` for pods that zones do not matter to.
    fn demand(&self, pod: &Pod) -> Option<ZoneDemand> {
        if self.is_native {
            return pod.pinned_cores.then(|| ZoneDemand::native(pod));
        }
        let binding = pod.numa_binding()?;
        Some(ZoneDemand::new(pod, binding, &self.aligned))
    }
}

impl Plugin for NodeResourceTopology {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let Some(demand) = self.demand(pod) else {
            return;
        };
        let aligned = (!self.is_native).then_some(&self.aligned[..]);
        let scored = Scored::new(&self.strategy, pod, aligned, demand.clone());
        plan.filter_zones(FitsZones(demand));
        plan.score_zones(scored);
    }

    fn scored_resources(&self) -> Vec<Resource> {
        self.strategy.resources()
    }

    fn events(&self) -> Vec<EventPattern> {
        let mut changes = Actions::ADD.and(Actions::NODE_ALLOCATABLE);
        if self.is_native {
            // Such a pod also fits a node without zones.
            changes = changes.and(Actions::DELETE);
        }
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::POD_SCALE_DOWN)),
            EventPattern::new(Kind::Node, Actions::ADD),
            EventPattern::new(Kind::CustomNodeResource, changes),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Report { change, .. } = &event.changed {
            let old = change.old.as_ref().and_then(|it| it.topology.as_ref());
            let new = change.new.as_ref().and_then(|it| it.topology.as_ref());
            return match (old, new) {
                (Some(old), Some(new)) => new.has_more_than(old),
                (None, new) => new.is_some(),
                (Some(_), None) => self.is_native,
            };
        }
        if event.changed.is_update_of(pod) {
            return true;
        }
        match event.changed.pod() {
            // A pod with zones gives them back; one without leaves more for others in the zones that remain.
            Some((change, held)) => held && change.old.is_some(),
            None => matches!(event.changed, Changed::Node(_)),
        }
    }

    fn zones(&self, pod: &Pod, node: Option<&NodeZones>) -> Option<ZoneSet> {
        if self.is_native {
            return None;
        }
        let chosen = self.demand(pod)?.choose(node?).ok()?;
        (!chosen.is_empty()).then_some(chosen)
    }

    fn annotations(&self, pod: &Pod, _: &NodeSpec, _: &Catalog) -> Vec<(&'static str, String)> {
        if self.is_native || pod.numa_binding().is_none() {
            return Vec::new();
        }
        // A pod without zones gets an empty annotation: it replaces what its author may have written.
        let zones = pod.zones.unwrap_or_default();
        vec![(NUMA_ZONES, zones.to_string())]
    }
}

/// Whether a node has zones for the pod.
struct FitsZones(ZoneDemand);

/// Up to this many zones are counted in messages; codes must fit a verdict.
const COUNTED: u8 = 30;
const TOO_LARGE: u8 = 2 * COUNTED + 1;
const NO_ZONE_FITS: u8 = TOO_LARGE + 1;
const OTHER_RESOURCES: u8 = TOO_LARGE + 2;
const OTHER_PODS: u8 = TOO_LARGE + 3;
const NO_ZONES: u8 = TOO_LARGE + 4;
const POD: u8 = TOO_LARGE + 5;

impl FitsZones {
    fn verdict(found: Result<(), Shortfall>) -> Verdict {
        let Err(shortfall) = found else {
            return Verdict::FITS;
        };
        let code = match shortfall {
            Shortfall::NoZones => return Verdict::unresolvable(NO_ZONES),
            Shortfall::Idle { needed, one_socket } => {
                let counted = u8::try_from(needed).unwrap_or(COUNTED).clamp(1, COUNTED);
                counted
                    + if one_socket && counted > 1 {
                        COUNTED
                    } else {
                        0
                    }
            }
            Shortfall::TooLarge => TOO_LARGE,
            Shortfall::NoZoneFits => NO_ZONE_FITS,
            Shortfall::OtherResources => OTHER_RESOURCES,
            Shortfall::OtherPods => OTHER_PODS,
            Shortfall::Pod => POD,
        };
        Verdict::unschedulable(code)
    }
}

impl ZoneFilter for FitsZones {
    fn filter(&self, node: Option<&NodeZones>) -> Verdict {
        Self::verdict(self.0.check(node))
    }

    fn filter_row(&self, row: &ZoneRow) -> Option<Verdict> {
        self.0.check_row(row).map(Self::verdict)
    }

    /// The first words are those of Katalyst.
    fn reason(&self, code: u8) -> Reason {
        let why = match code {
            1 => "it needs 1 idle NUMA zone",
            TOO_LARGE => "it is larger than the NUMA zones of the node",
            NO_ZONE_FITS => "no NUMA zone has enough left",
            OTHER_RESOURCES => "the NUMA zones do not have enough of its other resources",
            OTHER_PODS => "the other pods of the node do not fit the NUMA zones that would remain",
            NO_ZONES => return "node(s) reported no NUMA zones".into(),
            POD => return "cannot align pod".into(),
            several if several > COUNTED => {
                let needed = several - COUNTED;
                let text = format!("it needs {needed} idle NUMA zones of one socket");
                return format!("cannot align container: {text}").into();
            }
            several => {
                return format!("cannot align container: it needs {several} idle NUMA zones")
                    .into();
            }
        };
        format!("cannot align container: {why}").into()
    }
}

#[cfg(test)]
mod tests;
