//! The results of all clusters as a table: a row per test, a column per cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::run::{Outcome, State};
use crate::selection::Selection;

/// The results by cluster, in the order of the columns.
pub(crate) type Results = BTreeMap<Cluster, Vec<Outcome>>;

/// How many tests passed and failed, over all clusters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Count {
    pub(crate) fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let mut count = Self::default();
        for outcome in outcomes {
            match outcome.state() {
                State::Passed => count.passed += 1,
                State::Failed => count.failed += 1,
                State::NotSelected => {}
            }
        }
        count
    }
}

/// A name without the parts that all have.
pub(crate) fn short(name: &str) -> String {
    let name = name.trim_start_matches("[sig-scheduling] ");
    let words = name.split(' ').filter(|word| {
        let is_tag = word.starts_with('[') && word.ends_with(']');
        !is_tag
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The rows of all tests that ran on any of the clusters, and what is not run on them for which reason.
pub(crate) fn table(results: &Results, selection: &Selection) -> String {
    let ran = |outcome: &&Outcome| outcome.state() != State::NotSelected;
    let outcomes = results.values().flatten().filter(ran);
    let names: BTreeSet<&str> = outcomes.map(|outcome| outcome.name.as_str()).collect();
    let mut text = row(results.keys().map(|it| it.name().to_owned()), "TEST");
    for name in names {
        let cell = |outcomes: &Vec<Outcome>| {
            let outcome = outcomes.iter().find(|it| it.name == name);
            match outcome.map(|it| (it.state(), it.seconds)) {
                Some((State::Passed, seconds)) => format!("passed {seconds:.0}s"),
                Some((State::Failed, seconds)) => format!("FAILED {seconds:.0}s"),
                Some((State::NotSelected, _)) | None => "-".to_owned(),
            }
        };
        text += &row(results.values().map(cell), &short(name));
    }
    let sum = |outcomes: &Vec<Outcome>| {
        let Count { passed, failed } = Count::of(outcomes);
        format!("{passed} of {}", passed + failed)
    };
    text += &row(results.values().map(sum), "passed");
    for entry in &selection.left_out {
        let clusters = results.keys().filter(|cluster| entry.is_on(**cluster));
        let clusters: Vec<&str> = clusters.map(|cluster| cluster.name()).collect();
        if !clusters.is_empty() {
            let (test, clusters) = (short(&entry.test), clusters.join(", "));
            text += &format!("not run on {clusters}: {test}: {}\n", entry.reason);
        }
    }
    text
}

/// A column is as wide as the longest name of a cluster.
fn row(cells: impl Iterator<Item = String>, test: &str) -> String {
    let cells: String = cells.map(|cell| format!("{cell:16}")).collect();
    format!("{cells}{test}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(name: &str, state: &str, message: &str) -> Outcome {
        let outcome = json!({"name": name, "state": state, "seconds": 4.2, "message": message});
        serde_json::from_value(outcome).unwrap()
    }

    #[test]
    fn a_row_has_the_results_of_all_clusters() {
        let selection: Selection = serde_saphyr::from_str(
            "quick: []\nleftOut: [{test: LimitRange, clusters: [embedded], reason: why}, {test: X c, reason: alpha}]",
        )
        .unwrap();
        let limit_range = "[sig-scheduling] LimitRange works [Conformance]";
        let results = Results::from([
            (
                Cluster::Embedded,
                vec![
                    outcome(limit_range, "skipped", ""),
                    outcome("[sig-scheduling] X [Serial] a", "passed", ""),
                    outcome("[sig-scheduling] X b", "skipped", "needs two zones"),
                    outcome("[sig-scheduling] X c", "skipped", ""),
                ],
            ),
            (
                Cluster::KubeScheduler,
                vec![
                    outcome(limit_range, "passed", ""),
                    outcome("[sig-scheduling] X [Serial] a", "timedout", "too late"),
                ],
            ),
        ]);
        assert_eq!(
            table(&results, &selection),
            "\
embedded        kube-scheduler  TEST
-               passed 4s       LimitRange works
passed 4s       FAILED 4s       X a
FAILED 4s       -               X b
1 of 2          1 of 2          passed
not run on embedded: LimitRange: why
not run on embedded, kube-scheduler: X c: alpha
"
        );
        let count = Count {
            passed: 2,
            failed: 2,
        };
        assert_eq!(Count::of(results.values().flatten()), count);
    }
}
