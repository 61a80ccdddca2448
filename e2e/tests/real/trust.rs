//! A user of one namespace cannot harm another, and the token of a component can do only what the component does: attempts on the
//! real API server, with everything in `deploy/` and with the components running.
//!
//! The attempts are data, in `trust/*.yaml`; [`attempt`] describes a row. After each one the objects of others are as before, and
//! their pods still find their places.

mod attempt;
mod cluster;
mod others;

use std::path::Path;
use std::time::{Duration, Instant};

use attempt::{Actor, Attempt};
use cluster::Cluster;
use others::Others;

/// The files with rows, in their order.
const TABLES: [&str; 6] = [
    "pods",
    "users",
    "agents",
    "controllers",
    "scheduler",
    "admission",
];
/// More attempts than there are places that read what others write.
const FEWEST: usize = 80;

/// Each attempt with the name of its table.
fn attempts() -> Vec<(&'static str, Attempt)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/trust");
    let tables = TABLES.iter().flat_map(|table| {
        let text = std::fs::read_to_string(folder.join(format!("{table}.yaml"))).unwrap();
        let rows: Vec<Attempt> = serde_saphyr::from_str(&text).unwrap();
        rows.into_iter().map(move |row| (*table, row))
    });
    tables.collect()
}

#[test]
fn the_table_is_valid_and_has_every_actor() {
    let attempts = attempts();
    assert!(attempts.len() >= FEWEST, "{} attempts", attempts.len());
    let mut names: Vec<&str> = attempts.iter().map(|(_, row)| &*row.name).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1], "two attempts have the same name");
    }
    for (table, row) in &attempts {
        let problem = row.problem();
        assert_eq!(problem, None, "{table}: {}", row.name);
    }
    for actor in Actor::ALL {
        let is_tried = attempts.iter().any(|(_, row)| row.by == actor);
        assert!(is_tried, "no attempt by {actor:?}");
    }
}

#[test]
fn no_attempt_changes_what_belongs_to_others() {
    let begun = Instant::now();
    let cluster = Cluster::start();
    println!("the cluster is ready after {:.1?}", begun.elapsed());
    let mut before = Others::settled(&cluster);
    let mut failures = Vec::new();
    for table in TABLES {
        let rows = attempts().into_iter().filter(|(of, _)| *of == table);
        for (number, (_, row)) in rows.enumerate() {
            let failed = row.run(&cluster, &format!("{table}-{number}"));
            let failed = failed.err().into_iter().chain(before.check(&cluster));
            failures.extend(failed.map(|it| format!("{table}: {}: {it}", row.name)));
        }
        // What components make of the objects that were stored.
        cluster.await_controllers();
        let late = before.check(&cluster).into_iter();
        failures.extend(late.map(|it| format!("{table}: after all attempts: {it}")));
    }
    println!("all attempts took {:.1?}", begun.elapsed());
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(begun.elapsed() < Duration::from_secs(300));
}
