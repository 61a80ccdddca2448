//! Where our tier capacity differs from Koordinator's on purpose; docs/tier-capacity.md lists the same.

use engine::policies::tiers::{CalculatePolicy, ratio_percent};
use serde_json::Value;

use super::generate::{RATIO_LABELS, TierCase};
use super::{Ours, Theirs};
use crate::intended;

type Situation<'a> = intended::Situation<'a, TierCase, Ours, Theirs>;
type IntendedDifference = intended::IntendedDifference<TierCase, Ours, Theirs>;

const BATCH: &[&str] = &["kubernetes.io/batch-"];
const AMOUNTS: &[&str] = &["kubernetes.io/"];

impl Situation<'_> {
    /// Pods that count, whatever their class.
    fn running(&self) -> impl Iterator<Item = &Value> {
        let pods = self.case.pods.iter();
        pods.filter(|pod| ["Running", "Pending"].contains(&text(&pod["status"]["phase"])))
    }

    fn has_metric(&self, pod: &Value) -> bool {
        let metrics = self.case.metric["status"]["podsMetric"].as_array();
        let mut metrics = metrics.into_iter().flatten();
        let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
        metrics.any(|metric| metric["name"] == *name && metric["namespace"] == *namespace)
    }

    /// The policy by which the resource of the difference is calculated.
    fn policy(&self) -> CalculatePolicy {
        match self.difference.starts_with("kubernetes.io/batch-cpu") {
            true => self.ours.strategy.cpu_calculate_policy,
            false => self.ours.strategy.memory_calculate_policy,
        }
    }

    /// Ours lends less.
    fn is_less(&self) -> bool {
        let mut numbers = self.difference.split([' ', ',']).filter_map(number);
        let pair = numbers.next().zip(numbers.next());
        pair.is_some_and(|(ours, theirs)| ours < theirs)
    }

    fn has_rounded_label(&self) -> bool {
        RATIO_LABELS.iter().any(|label| {
            let ratio = text(&self.case.node["metadata"]["labels"][*label]);
            let truncated = ratio.parse::<f64>().map(|ratio| (ratio * 100.0) as i64);
            ratio_percent(ratio).is_some_and(|rounded| truncated != Ok(rounded))
        })
    }

    /// The annotation is JSON of the right form with a value that is not allowed.
    fn has_invalid_annotation(&self) -> bool {
        let annotation =
            &self.case.node["metadata"]["annotations"]["node.koordinator.sh/colocation-strategy"];
        let is_object = serde_json::from_str::<Value>(text(annotation)).is_ok();
        is_object && api::parse::koordinator::colocation_strategy(text(annotation)).is_err()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(word: &str) -> Option<i64> {
    word.parse().ok()
}

pub(super) const KNOWN: &[IntendedDifference] = &[
    IntendedDifference {
        name: "listed: a new pod counts by its request in maxUsageRequest, too",
        starts: BATCH,
        explains: |it| {
            let is_new = |pod: &Value| !it.has_metric(pod);
            it.policy() == CalculatePolicy::MaxUsageRequest
                && it.is_less()
                && it.running().any(is_new)
        },
    },
    IntendedDifference {
        name: "listed: requests of mid pods count by their own names",
        starts: BATCH,
        explains: |it| {
            let counts = |pod: &Value| {
                let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
                let by_request = it.policy() != CalculatePolicy::Usage || !it.has_metric(pod);
                requests["kubernetes.io/mid-cpu"].is_number() && by_request
            };
            it.is_less() && it.running().any(counts)
        },
    },
    IntendedDifference {
        name: "listed: the ratios of labels are rounded",
        starts: &["cpuReclaim", "memoryReclaim", "midStatic", "kubernetes.io/"],
        explains: |it| it.has_rounded_label(),
    },
    IntendedDifference {
        name: "listed: a pod is of a tier by name, neither by a bare number nor without requests",
        starts: AMOUNTS,
        explains: |it| {
            let is_unnamed = |pod: &Value| {
                let labels = &pod["metadata"]["labels"];
                let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
                labels["koordinator.sh/qosClass"].is_null()
                    && (pod["spec"]["priority"].is_number() || requests["cpu"].is_null())
            };
            it.is_less() && it.running().any(is_unnamed)
        },
    },
    IntendedDifference {
        name: "listed: settings with a threshold above 1, another policy or an invalid group are refused",
        starts: &["valid: "],
        explains: |it| {
            let reasons = [
                "resourceDiffThreshold",
                "CalculatePolicy",
                "variant",
                "nodeConfigs",
            ];
            it.theirs.valid && reasons.iter().any(|reason| it.difference.contains(reason))
        },
    },
    IntendedDifference {
        name: "listed: an annotation with an invalid value sets nothing",
        starts: &[""],
        explains: |it| it.has_invalid_annotation(),
    },
    IntendedDifference {
        name: "listed: a value below what is bound is written at once",
        starts: &["write: ours true"],
        explains: |it| {
            let mut values = it.ours.old.iter().zip(it.ours.bound);
            values.any(|(old, bound)| old.is_some_and(|old| old < bound))
        },
    },
];
