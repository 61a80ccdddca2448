//! The result of a run as a table: faults by kind, pods, violations.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::RunResult;
use crate::plan::{Fault, FaultKind};

/// Violations that are shown in full.
const SHOWN: usize = 20;

pub(crate) fn table(result: &RunResult) -> String {
    let mut text = format!("{:<28}{:>8}{:>8}\n", "FAULT", "PLANNED", "HITS");
    for (kind, name, ..) in FaultKind::ALL {
        let planned = result.planned.iter().filter(|it| it.kind == kind).count();
        let hits = result.records.hits.get(&kind).copied().unwrap_or(0);
        // Writing into a string does not fail.
        let _ = writeln!(text, "{name:<28}{planned:>8}{hits:>8}");
    }
    let (changes, tally) = (&result.changes, &result.tally);
    for (name, count) in [
        ("pods created", tally.pods),
        ("re-created under a name", changes.recreated),
        ("bound", tally.bound),
        ("preempted", tally.preempted),
        ("CNRs grown", changes.grown),
        ("CNRs shrunk", changes.shrunk),
        ("holders of the Lease", tally.leaders),
    ] {
        let _ = writeln!(text, "{name:<36}{count:>8}");
    }
    let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
    for violation in &result.violations {
        *by_rule.entry(violation.rule).or_default() += 1;
    }
    let _ = writeln!(text, "{:<36}{:>8}", "VIOLATIONS", result.violations.len());
    for (rule, count) in by_rule {
        let _ = writeln!(text, "  {rule:<34}{count:>8}");
    }
    for violation in result.violations.iter().take(SHOWN) {
        let _ = writeln!(text, "{violation}");
    }
    text
}

/// The faults of a round, a line each.
pub(crate) fn faults(round: usize, faults: &[Fault]) -> String {
    let mut text = format!("round {round}\n");
    for fault in faults {
        let _ = writeln!(
            text,
            "{:>7.1}s {:<28} {:>5.1}s {:?}",
            fault.at.as_secs_f64(),
            fault.kind.name(),
            fault.lasts.as_secs_f64(),
            fault.victim
        );
    }
    text
}
