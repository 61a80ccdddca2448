//! Rejects nodes without enough free resources, and scores nodes by their utilization with the pod.

use serde::{Deserialize, Serialize};

use super::resource_strategy::{
    Fullness, Strategy, UtilizationShapePoint, WeightedResource, check_weights, shape,
};
use crate::model::{Node, Pod, RECLAIMED_GROUPS, Resource, qualified_name_faults};
use crate::scheduling::framework::{
    Actions, ArgOverride, ArgsError, Catalog, Changed, ColumnId, ConfigRules, ConfigVersion,
    Configure, Event, EventPattern, Kind, Part, Plan, Plugin, Point, Points, Reason,
    RequestedAmount, Row, RowFilter, Verdict,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeResourcesFitArgs {
    /// Extended resources that are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_resources: Vec<String>,
    /// Extended resources with one of these prefixes, without the slash, are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_resource_groups: Vec<String>,
    /// LeastAllocated over cpu and memory when not given.
    pub scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ScoringStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub resources: Vec<WeightedResource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatioParam>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestedToCapacityRatioParam {
    pub shape: Vec<UtilizationShapePoint>,
}

pub struct NodeResourcesFit {
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    scorer: Fullness,
}

impl Configure for NodeResourcesFit {
    const NAME: &'static str = "NodeResourcesFit";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ]);
    const RULES: ConfigRules = ConfigRules {
        extender_resources_arg: Some("ignoredResources"),
        ..ConfigRules::NONE
    };
    type Args = NodeResourcesFitArgs;

    fn complete(args: &mut NodeResourcesFitArgs) {
        let strategy = args.scoring_strategy.get_or_insert(ScoringStrategy {
            kind: "LeastAllocated".to_owned(),
            ..ScoringStrategy::default()
        });
        WeightedResource::complete(&mut strategy.resources);
    }

    fn new(args: NodeResourcesFitArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        for (i, name) in args.ignored_resources.iter().enumerate() {
            name_faults(&format!("ignoredResources[{i}]"), name, &mut errors);
        }
        for (i, name) in args.ignored_resource_groups.iter().enumerate() {
            let field = format!("ignoredResourceGroups[{i}]");
            if name.contains('/') {
                let text =
                    format!("Invalid value: \"{name}\": resource group name can't contain '/'");
                errors.push(ArgsError::new(field, text));
            } else {
                name_faults(&field, name, &mut errors);
            }
        }
        let scorer = scorer(args.scoring_strategy.unwrap_or_default(), &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            ignored: args.ignored_resources,
            ignored_groups: args.ignored_resource_groups,
            scorer,
        })
    }

    /// In v1beta1 other plugins give the scores.
    fn args_in(version: ConfigVersion, given: &[String]) -> Result<Option<ArgOverride>, ArgsError> {
        let field = "scoringStrategy";
        if version == ConfigVersion::V1beta1 && given.iter().any(|name| name == field) {
            let text = "unknown field in v1beta1, where NodeResourcesFit does not score: it was added in v1beta2";
            return Err(ArgsError::new(field, text));
        }
        Ok(None)
    }
}

fn name_faults(field: &str, name: &str, errors: &mut Vec<ArgsError>) {
    let faults = qualified_name_faults(name).into_iter();
    errors.extend(
        faults.map(|fault| ArgsError::new(field, format!("Invalid value: \"{name}\": {fault}"))),
    );
}

fn scorer(given: ScoringStrategy, errors: &mut Vec<ArgsError>) -> Fullness {
    const KINDS: [&str; 3] = [
        "LeastAllocated",
        "MostAllocated",
        "RequestedToCapacityRatio",
    ];
    if !KINDS.contains(&&given.kind[..]) {
        let text = format!(
            "Unsupported value: \"{}\": supported values: {}",
            given.kind,
            KINDS.map(|kind| format!("\"{kind}\"")).join(", ")
        );
        errors.push(ArgsError::new("scoringStrategy.type", text));
    }
    check_weights(&given.resources, "scoringStrategy.resources", errors);
    let ratio = "scoringStrategy.requestedToCapacityRatio";
    let strategy = match (&given.kind[..], &given.requested_to_capacity_ratio) {
        ("RequestedToCapacityRatio", Some(given)) => {
            let points = shape(&format!("{ratio}.shape"), &given.shape, errors);
            Strategy::RequestedToCapacityRatio(points)
        }
        ("RequestedToCapacityRatio", None) => {
            let text = "Required value: must be specified when type is RequestedToCapacityRatio";
            errors.push(ArgsError::new(ratio, text));
            Strategy::LeastAllocated
        }
        (kind, given) => {
            if given.is_some() {
                let text = "Forbidden: must be nil when type is not RequestedToCapacityRatio";
                errors.push(ArgsError::new(ratio, text));
            }
            match kind {
                "MostAllocated" => Strategy::MostAllocated,
                _ => Strategy::LeastAllocated,
            }
        }
    };
    Fullness::new(strategy, &given.resources)
}

impl Plugin for NodeResourcesFit {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let check = Fits {
            pods: plan.column(&Resource::Pods, Part::Requested),
            allowed_pods: plan.column(&Resource::Pods, Part::Allocatable),
            wants: wanted(pod)
                .filter(|(resource, _)| !self.ignores(resource))
                .map(|(resource, amount)| CheckedRequest {
                    amount,
                    allocatable: plan.column(resource, Part::Allocatable),
                    requested: plan.column(resource, Part::Requested),
                    resource: resource.clone(),
                })
                .collect(),
        };
        plan.filter_rows(check);
        self.scorer.prepare(pod, plan);
    }

    fn scored_resources(&self) -> Vec<Resource> {
        self.scorer.resources()
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::POD_SCALE_DOWN)),
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_ALLOCATABLE)),
            EventPattern::new(
                Kind::CustomNodeResource,
                Actions::DELETE.and(Actions::NODE_ALLOCATABLE),
            ),
        ]
    }

    /// Such a pod requests more than each node has.
    fn other_pods_help_unresolvable(&self) -> bool {
        false
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Node(change) = &event.changed {
            let Some(new) = &change.new else { return false };
            return fits_empty(pod, new)
                && change.old.as_ref().is_none_or(|old| grew(pod, old, new));
        }
        // Other pods may use a zone again that was seen in use by one pod alone.
        if let Changed::Report { change, .. } = &event.changed {
            let old = change.old.as_ref().and_then(|it| it.topology.as_ref());
            let new = change.new.as_ref().and_then(|it| it.topology.as_ref());
            return old.is_some_and(|old| new.is_none_or(|new| new.has_more_than(old)));
        }
        let Some((change, held)) = event.changed.pod() else {
            return false;
        };
        match (&change.old, &change.new) {
            (_, None) => held,
            (_, Some(new)) if new.uid == pod.uid => true,
            (Some(old), Some(new)) => {
                let requests = |pod: &Pod, it: &Resource| pod.requests.placed.get(it);
                let shrank = |(it, _): (&Resource, i64)| requests(new, it) < requests(old, it);
                held && (new.gave_up_zones(old) || wanted(pod).any(shrank))
            }
            (None, Some(_)) => false,
        }
    }
}

/// The requests that are checked: cpu, memory and storage if positive, other resources if not zero.
fn wanted(pod: &Pod) -> impl Iterator<Item = (&Resource, i64)> {
    pod.requests
        .wanted
        .iter()
        .filter(|(resource, amount)| match resource {
            Resource::Cpu | Resource::Memory | Resource::EphemeralStorage => *amount > 0,
            Resource::Scalar(_) => *amount != 0,
            Resource::Pods => false,
        })
}

fn fits_empty(pod: &Pod, node: &Node) -> bool {
    node.allocatable.get(&Resource::Pods) >= 1
        && wanted(pod).all(|(resource, amount)| amount <= node.allocatable.get(resource))
}

fn grew(pod: &Pod, old: &Node, new: &Node) -> bool {
    let grew = |resource: &Resource| new.allocatable.get(resource) > old.allocatable.get(resource);
    grew(&Resource::Pods) || wanted(pod).any(|(resource, _)| grew(resource))
}

impl NodeResourcesFit {
    fn ignores(&self, resource: &Resource) -> bool {
        let name = resource.name();
        resource.is_extended()
            && (self.ignored.iter().any(|ignored| ignored == name)
                || name
                    .split_once('/')
                    .is_some_and(|(group, _)| self.ignores_group(group)))
    }

    /// Both names of the group of reclaimed resources mean the same.
    fn ignores_group(&self, group: &str) -> bool {
        let [today, design] = RECLAIMED_GROUPS;
        self.ignored_groups
            .iter()
            .any(|ignored| ignored == group || (ignored == design && group == today))
    }
}

#[derive(PartialEq)]
struct Fits {
    pods: ColumnId,
    allowed_pods: ColumnId,
    wants: Vec<CheckedRequest>,
}

#[derive(PartialEq)]
struct CheckedRequest {
    amount: i64,
    allocatable: ColumnId,
    requested: ColumnId,
    resource: Resource,
}

impl Fits {
    fn too_many_pods(&self, row: Row) -> bool {
        row.get(self.pods).wrapping_add(1) > row.get(self.allowed_pods)
    }
}

impl CheckedRequest {
    fn is_insufficient(&self, row: Row) -> bool {
        self.amount
            > row
                .get(self.allocatable)
                .wrapping_sub(row.get(self.requested))
    }

    /// The pod does not fit even on the empty node.
    fn is_hopeless(&self, row: Row) -> bool {
        self.amount > row.get(self.allocatable)
    }
}

const INSUFFICIENT: u8 = 1;

impl RowFilter for Fits {
    fn filter(&self, row: Row) -> Verdict {
        let mut refused = self.too_many_pods(row);
        let mut hopeless = false;
        for want in &self.wants {
            let insufficient = want.is_insufficient(row);
            refused |= insufficient;
            hopeless |= insufficient && want.is_hopeless(row);
        }
        match (refused, hopeless) {
            (false, _) => Verdict::FITS,
            (true, false) => Verdict::unschedulable(INSUFFICIENT),
            (true, true) => Verdict::unresolvable(INSUFFICIENT),
        }
    }

    /// 0 is the number of pods; the requests follow.
    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32)) {
        if self.too_many_pods(row) {
            each(0);
        }
        for (code, want) in (1..).zip(&self.wants) {
            if want.is_insufficient(row) {
                each(code);
            }
        }
    }

    fn reason(&self, code: u32) -> Reason {
        let want = (code as usize).checked_sub(1).map(|at| &self.wants[at]);
        match want {
            None => "Too many pods".into(),
            Some(want) => format!("Insufficient {}", want.resource.name()).into(),
        }
    }

    fn amounts(&self, row: Row) -> Vec<RequestedAmount> {
        let amount = |resource, requested, allocatable, taken| RequestedAmount {
            resource,
            requested,
            allocatable: row.get(allocatable),
            free: row.get(allocatable).wrapping_sub(row.get(taken)),
        };
        let pods = amount(Resource::Pods, 1, self.allowed_pods, self.pods);
        let others = self.wants.iter().map(|want| {
            let resource = want.resource.clone();
            amount(resource, want.amount, want.allocatable, want.requested)
        });
        std::iter::once(pods).chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
