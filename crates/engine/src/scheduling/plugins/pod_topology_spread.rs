//! Spreads matching pods evenly over topology domains: hosts, zones, racks.

use serde::{Deserialize, Serialize};

use crate::model::{
    Inclusion, Name, Node, Pod, PodKind, Requirement, Selector, SpreadConstraint, Unsatisfiable,
    qualified_name_faults,
};
use crate::scheduling::framework::WorkloadKind;
use crate::scheduling::framework::arithmetic::{MAX_SCORE, ln};
use crate::scheduling::framework::{
    Actions, ArgOverride, ArgsError, Catalog, Changed, ConfigVersion, Configure, Count, CountId,
    Event, EventPattern, Fact, FactId, Feasible, Kind, Place, PlaceFilter, PlaceScore, Plan,
    Plugin, PodRule, PodSet, Point, Points, Reason, Rejection, Verdict, facts,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PodTopologySpreadArgs {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_constraints: Vec<DefaultConstraint>,
    /// `System` or `List`; empty is `System`.
    pub defaulting_type: String,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DefaultConstraint {
    pub max_skew: i32,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// Must not be given: services and owners define the selector.
    #[serde(skip_serializing)]
    pub label_selector: Option<serde::de::IgnoredAny>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_label_keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
}

pub struct PodTopologySpread {
    /// Without selectors: those depend on the pod.
    defaults: Vec<SpreadConstraint>,
    system_defaulted: bool,
}

impl Configure for PodTopologySpread {
    const NAME: &'static str = "PodTopologySpread";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ]);
    type Args = PodTopologySpreadArgs;

    fn complete(args: &mut PodTopologySpreadArgs) {
        if args.defaulting_type.is_empty() {
            "System".clone_into(&mut args.defaulting_type);
        }
    }

    /// v1beta1 has no defaulting type: constraints that are given replace those of the system.
    fn args_in(version: ConfigVersion, given: &[String]) -> Result<Option<ArgOverride>, ArgsError> {
        let has = |field: &str| given.iter().any(|name| name == field);
        let is_list = version == ConfigVersion::V1beta1
            && has("defaultConstraints")
            && !has("defaultingType");
        Ok(is_list.then(|| ArgOverride::Text("defaultingType", "List".to_owned())))
    }

    fn new(args: PodTopologySpreadArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let system_defaulted = match &args.defaulting_type[..] {
            "System" => {
                if !args.default_constraints.is_empty() {
                    let text = "Invalid value: \"System\": when .defaultConstraints are not empty";
                    errors.push(ArgsError::new("defaultingType", text));
                }
                true
            }
            "List" => false,
            other => {
                let text = unsupported(other, &["System", "List"]);
                errors.push(ArgsError::new("defaultingType", text));
                false
            }
        };
        let mut defaults: Vec<SpreadConstraint> = Vec::new();
        for (i, given) in args.default_constraints.iter().enumerate() {
            let constraint =
                default_constraint(given, &format!("defaultConstraints[{i}]"), &mut errors);
            let same = |c: &&SpreadConstraint| {
                (&c.topology_key, c.when_unsatisfiable)
                    == (&constraint.topology_key, constraint.when_unsatisfiable)
            };
            if defaults.iter().any(|known| same(&known)) {
                let text = format!(
                    "Duplicate value: \"{{{}, {}}}\"",
                    given.topology_key, given.when_unsatisfiable
                );
                errors.push(ArgsError::new(format!("defaultConstraints[{i}]"), text));
            }
            defaults.push(constraint);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if system_defaulted {
            defaults = vec![soft(HOSTNAME, 3), soft(ZONE, 5)];
        }
        Ok(Self {
            defaults,
            system_defaulted,
        })
    }
}

fn unsupported(found: &str, supported: &[&str]) -> String {
    let supported: Vec<String> = supported
        .iter()
        .map(|value| format!("\"{value}\""))
        .collect();
    format!(
        "Unsupported value: \"{found}\": supported values: {}",
        supported.join(", ")
    )
}

fn soft(key: &str, max_skew: i32) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: key.into(),
        when_unsatisfiable: Unsatisfiable::ScheduleAnyway,
        selector: Selector::NOTHING,
        min_domains: 1,
        node_affinity: Inclusion::Honor,
        node_taints: Inclusion::Ignore,
    }
}

fn default_constraint(
    given: &DefaultConstraint,
    field: &str,
    errors: &mut Vec<ArgsError>,
) -> SpreadConstraint {
    let mut error =
        |name: &str, text: String| errors.push(ArgsError::new(format!("{field}.{name}"), text));
    if given.max_skew <= 0 {
        error(
            "maxSkew",
            format!(
                "Invalid value: {}: not in valid range (0, inf)",
                given.max_skew
            ),
        );
    }
    match &given.topology_key[..] {
        "" => error("topologyKey", "Required value: can not be empty".to_owned()),
        key => {
            for fault in qualified_name_faults(key) {
                error("topologyKey", format!("Invalid value: \"{key}\": {fault}"));
            }
        }
    }
    let when_unsatisfiable = match &given.when_unsatisfiable[..] {
        "DoNotSchedule" => Unsatisfiable::DoNotSchedule,
        "ScheduleAnyway" => Unsatisfiable::ScheduleAnyway,
        other => {
            let text = match other {
                "" => "Required value: can not be empty".to_owned(),
                _ => unsupported(other, &["DoNotSchedule", "ScheduleAnyway"]),
            };
            error("whenUnsatisfiable", text);
            Unsatisfiable::DoNotSchedule
        }
    };
    if given.label_selector.is_some() {
        error(
            "labelSelector",
            "Forbidden: constraint must not define a selector, as they deduced for each pod"
                .to_owned(),
        );
    }
    let mut inclusion = |name: &str, policy: &Option<String>, default| match policy.as_deref() {
        None => default,
        Some("Honor") => Inclusion::Honor,
        Some("Ignore") => Inclusion::Ignore,
        Some(other) => {
            error(name, unsupported(other, &["Honor", "Ignore"]));
            default
        }
    };
    SpreadConstraint {
        node_affinity: inclusion(
            "nodeAffinityPolicy",
            &given.node_affinity_policy,
            Inclusion::Honor,
        ),
        node_taints: inclusion(
            "nodeTaintsPolicy",
            &given.node_taints_policy,
            Inclusion::Ignore,
        ),
        max_skew: given.max_skew,
        topology_key: given.topology_key.as_str().into(),
        when_unsatisfiable,
        selector: Selector::NOTHING,
        min_domains: given.min_domains.unwrap_or(1),
    }
}

impl PodTopologySpread {
    /// The pod's own constraints of a kind, or the defaults if it has none of any kind.
    fn constraints(
        &self,
        pod: &Pod,
        catalog: &Catalog,
        kind: Unsatisfiable,
    ) -> Vec<SpreadConstraint> {
        if !pod.spread.is_empty() {
            return pod
                .spread
                .iter()
                .filter(|c| c.when_unsatisfiable == kind)
                .cloned()
                .collect();
        }
        let selector = default_selector(pod, catalog);
        if selector.is_empty() {
            return Vec::new();
        }
        let wanted = self
            .defaults
            .iter()
            .filter(|c| c.when_unsatisfiable == kind);
        wanted
            .map(|c| SpreadConstraint {
                selector: selector.clone(),
                ..c.clone()
            })
            .collect()
    }
}

/// The selectors of the pod's services and its owner, combined.
fn default_selector(pod: &Pod, catalog: &Catalog) -> Selector {
    let mut requirements: Vec<Requirement> = Vec::new();
    for service in catalog.services(pod.namespace()) {
        let selector = service.selector.as_ref().map(Selector::pairs);
        if let Some(matching) = selector.filter(|selector| selector.matches(pod.labels())) {
            requirements.extend_from_slice(matching.requirements());
        }
    }
    let kind = pod.owner.as_ref().and_then(WorkloadKind::of);
    let owner = kind
        .zip(pod.owner.as_ref())
        .and_then(|(kind, owner)| catalog.workload(kind, pod.namespace(), &owner.name));
    if let Some(workload) = owner {
        let own = workload.selector.requirements();
        if kind == Some(WorkloadKind::ReplicationController) {
            // Like a service it has pairs only. All pairs go into one map, and these are added last.
            requirements.retain(|known| own.iter().all(|own| own.key() != known.key()));
        }
        requirements.extend_from_slice(own);
    }
    Selector::all(requirements)
}

impl Plugin for PodTopologySpread {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        let error = |kind| pod.spread_errors.iter().find(|(of, _)| *of == kind);
        if let Some((_, error)) = error(Unsatisfiable::DoNotSchedule) {
            let text = "obtaining pod's hard topology spread constraints";
            let text = format!("get constraints from pod: {text}: {error}");
            plan.reject(Rejection::error(text));
        }
        if let Some((_, error)) = error(Unsatisfiable::ScheduleAnyway) {
            let text = "obtaining pod's soft topology spread constraints";
            plan.fail_scoring(format!("calculating preScoreState: {text}: {error}"));
        }
        let hard = self.constraints(pod, catalog, Unsatisfiable::DoNotSchedule);
        if !hard.is_empty() {
            let keys = facts::lacks_labels(hard.iter().map(|c| c.topology_key.clone()));
            let constraints = hard.iter().map(|c| {
                let domain = Fact::domain(c.topology_key.clone());
                Hard {
                    count: plan.count(Count::in_domain(
                        alike(pod, c),
                        domain,
                        included(pod, c, Some(&keys)),
                    )),
                    max_skew: i64::from(c.max_skew),
                    min_domains: c.min_domains,
                    own: i64::from(c.selector.matches(pod.labels())),
                }
            });
            let check = Skew(constraints.collect());
            plan.filter_places(check);
        }
        let soft = self.constraints(pod, catalog, Unsatisfiable::ScheduleAnyway);
        if !soft.is_empty() {
            self.prepare_score(pod, &soft, plan);
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let pod = Actions::ADD
            .and(Actions::POD_LABEL)
            .and(Actions::POD_TOLERATION)
            .and(Actions::DELETE);
        let node = Actions::ADD
            .and(Actions::DELETE)
            .and(Actions::NODE_LABEL)
            .and(Actions::NODE_TAINT);
        vec![
            EventPattern::new(Kind::Pod, pod),
            EventPattern::new(Kind::Node, node),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, catalog: &Catalog) -> bool {
        let hard = self.constraints(pod, catalog, Unsatisfiable::DoNotSchedule);
        if let Changed::Node(change) = &event.changed {
            return node_helps(&hard, change.old.as_deref(), change.new.as_deref());
        }
        let Some((change, held)) = event.changed.pod() else {
            return false;
        };
        let is_ours = change.latest().is_some_and(|other| other.uid == pod.uid);
        let near = change
            .latest()
            .is_some_and(|other| other.namespace() == pod.namespace());
        if !(is_ours || held && near) {
            return false;
        }
        let matches = |other: &Pod, c: &SpreadConstraint| c.selector.matches(other.labels());
        match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                let tolerations = is_ours && old.tolerations != new.tolerations;
                (tolerations && hard.iter().any(|c| c.node_taints == Inclusion::Honor))
                    || (old.labels() != new.labels()
                        && hard.iter().any(|c| matches(old, c) != matches(new, c)))
            }
            _ => change
                .latest()
                .is_some_and(|other| hard.iter().any(|c| matches(other, c))),
        }
    }
}

fn node_helps(hard: &[SpreadConstraint], old: Option<&Node>, new: Option<&Node>) -> bool {
    let has_all = |node: &Node| {
        hard.iter()
            .all(|c| node.spec.labels.contains(&c.topology_key))
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = |c: &SpreadConstraint| {
                old.spec.labels.get(&c.topology_key) != new.spec.labels.get(&c.topology_key)
            };
            has_all(old) != has_all(new)
                || has_all(new) && (hard.iter().any(moved) || old.spec.taints != new.spec.taints)
        }
        (old, new) => old.or(new).is_some_and(has_all),
    }
}

impl PodTopologySpread {
    fn prepare_score(&self, pod: &Pod, soft: &[SpreadConstraint], plan: &mut Plan) {
        // System defaults include nodes without the label, as the domain of the empty value.
        let require_all = !pod.spread.is_empty() || !self.system_defaulted;
        let keys =
            require_all.then(|| facts::lacks_labels(soft.iter().map(|c| c.topology_key.clone())));
        let constraints = soft.iter().map(|c| {
            let key = c.topology_key.clone();
            let (count, is_host) = if *key == *HOSTNAME {
                (Count::on_node(alike(pod, c)), true)
            } else {
                let domain = if require_all {
                    Fact::domain(key.clone())
                } else {
                    Fact::domain_or_empty(key.clone())
                };
                (
                    Count::in_domain(alike(pod, c), domain, included(pod, c, keys.as_ref())),
                    false,
                )
            };
            Soft {
                count: plan.count(count),
                label: plan.fact(Fact::domain(key)),
                is_host,
                max_skew: f64::from(c.max_skew - 1),
                weight: 0.0,
            }
        });
        let constraints = constraints.collect();
        let ignored = keys.map(|keys| plan.fact(keys));
        plan.score_places(SpreadScore {
            constraints,
            ignored,
        });
    }
}

/// Nodes that count for a constraint.
fn included(pod: &Pod, constraint: &SpreadConstraint, keys: Option<&Fact>) -> Vec<Fact> {
    let mut include: Vec<Fact> = keys.cloned().into_iter().collect();
    if constraint.node_affinity == Inclusion::Honor && !pod.nodes.is_absent() {
        include.push(facts::required_nodes(&pod.nodes));
    }
    if constraint.node_taints == Inclusion::Honor {
        include.push(facts::forbidding_taint(&pod.tolerations));
    }
    include
}

fn alike(pod: &Pod, constraint: &SpreadConstraint) -> PodSet {
    PodSet::new(MatchingPods {
        namespace: pod.namespace().clone(),
        selector: constraint.selector.clone(),
    })
}

/// Pods of a namespace that a selector picks.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MatchingPods {
    namespace: Name,
    selector: Selector,
}

impl PodRule for MatchingPods {
    fn counts(&self, pod: &PodKind) -> i64 {
        i64::from(
            !self.selector.is_empty() && !pod.terminating && self.selector.matches(&pod.labels),
        )
    }

    /// Here kube-scheduler ignores deletion timestamps and empty selectors.
    fn moves(&self, pod: &PodKind) -> i64 {
        i64::from(self.selector.matches(&pod.labels))
    }

    fn namespace(&self) -> Option<&Name> {
        Some(&self.namespace)
    }
}

struct Hard {
    count: CountId,
    max_skew: i64,
    min_domains: i32,
    /// 1 if the pod itself counts.
    own: i64,
}

/// Limits the skew: the difference between a domain and the smallest one.
struct Skew(Vec<Hard>);

const TOO_MANY: u8 = 1;
const NO_LABEL: u8 = 2;

impl PlaceFilter for Skew {
    fn filter(&self, at: Place) -> Verdict {
        for constraint in &self.0 {
            if !at.has_domain(constraint.count) {
                return Verdict::unresolvable(NO_LABEL);
            }
            let tally = at.tally(constraint.count);
            let too_few = i64::from(tally.domains) < i64::from(constraint.min_domains);
            let minimum = if too_few { 0 } else { tally.minimum };
            if at.count(constraint.count) + constraint.own - minimum > constraint.max_skew {
                return Verdict::unschedulable(TOO_MANY);
            }
        }
        Verdict::FITS
    }

    fn reason(&self, code: u8) -> Reason {
        match code {
            NO_LABEL => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
                    .into()
            }
            _ => "node(s) didn't match pod topology spread constraints".into(),
        }
    }
}

struct Soft {
    count: CountId,
    /// The domain; 0 where the label is missing.
    label: FactId,
    is_host: bool,
    max_skew: f64,
    /// Set by the survey: with more domains, a pod in one of them has more weight.
    weight: f64,
}

/// Prefers nodes with fewer matching pods in their domains.
struct SpreadScore {
    constraints: Vec<Soft>,
    /// Not 0 where a required label is missing.
    ignored: Option<FactId>,
}

impl SpreadScore {
    fn ignores(&self, at: Place) -> bool {
        self.ignored.is_some_and(|ignored| at.fact(ignored) != 0)
    }
}

/// The domain of nodes without the label under system defaults: that of the empty value.
fn domain_or_empty(label: u32) -> u32 {
    label.max(1)
}

impl PlaceScore for SpreadScore {
    fn survey(&mut self, feasible: Feasible) {
        let mut hosts = 0_u64;
        let mut domains: Vec<Vec<u32>> = vec![Vec::new(); self.constraints.len()];
        for (at, nodes) in feasible.iter().filter(|(at, _)| !self.ignores(*at)) {
            hosts += u64::from(nodes);
            for (known, constraint) in domains
                .iter_mut()
                .zip(&self.constraints)
                .filter(|(_, c)| !c.is_host)
            {
                let domain = domain_or_empty(at.fact(constraint.label)) as usize;
                if known.len() <= domain {
                    known.resize(domain + 1, 0);
                }
                known[domain] = 1;
            }
        }
        for (constraint, known) in self.constraints.iter_mut().zip(domains) {
            let size = if constraint.is_host {
                hosts
            } else {
                known.iter().map(|seen| u64::from(*seen)).sum()
            };
            constraint.weight = ln((size + 2) as f64);
        }
    }

    fn score(&self, at: Place) -> i64 {
        if self.ignores(at) {
            return 0;
        }
        let mut score = 0.0;
        for constraint in &self.constraints {
            if at.fact(constraint.label) != 0 {
                score +=
                    at.count(constraint.count) as f64 * constraint.weight + constraint.max_skew;
            }
        }
        score.round() as i64
    }

    fn normalize(&self, feasible: Feasible, scores: &mut [i64]) {
        let compared = || feasible.iter().map(|(at, _)| !self.ignores(at));
        let (mut min, mut max) = (i64::MAX, 0);
        for (score, _) in scores
            .iter()
            .zip(compared())
            .filter(|(_, compared)| *compared)
        {
            min = min.min(*score);
            max = max.max(*score);
        }
        for (score, compared) in scores.iter_mut().zip(compared()) {
            *score = match (compared, max) {
                (false, _) => 0,
                (true, 0) => MAX_SCORE,
                (true, max) => MAX_SCORE * (max + min - *score) / max,
            };
        }
    }
}

#[cfg(test)]
mod tests;
