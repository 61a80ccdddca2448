//! Planted faults, and the rules that each of them breaks. A violation of another rule does not show that the checker finds the fault: a
//! scheduler that crashes or never starts breaks rules, too.

use crate::checker::Violation;
use crate::settle::NO_LEADER;

/// A fault of `crates/reconcile/src/planted.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlantedFault {
    pub(crate) name: &'static str,
    rules: &'static [&'static str],
}

const ALL: [PlantedFault; 5] = [
    PlantedFault {
        name: "bind-without-uid",
        rules: &["uid"],
    },
    // It uses what the previous leader has given away.
    PlantedFault {
        name: "no-fence",
        rules: &["overcommit", "reclaimed overcommit"],
    },
    PlantedFault {
        name: "lost-wake-up",
        rules: &["not woken"],
    },
    PlantedFault {
        name: "assumed-forever",
        rules: &["cache"],
    },
    // It does not know of the objects that are missing: pods wait for ever, or others have their room.
    PlantedFault {
        name: "incomplete-list",
        rules: &["stuck", "cache", "overcommit", "reclaimed overcommit"],
    },
];

/// Rules of a scheduler that does not run. What else is violated then shows nothing.
const NOT_RUNNING: [&str; 2] = ["panic", NO_LEADER];

impl PlantedFault {
    pub(crate) fn is_caught(self, violations: &[Violation]) -> bool {
        let breaks = |rules: &[&str]| violations.iter().any(|it| rules.contains(&it.rule));
        breaks(self.rules) && !breaks(&NOT_RUNNING)
    }
}

impl std::str::FromStr for PlantedFault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|fault| fault.name == name);
        let names = || ALL.map(|fault| fault.name).join(", ");
        found.ok_or_else(|| format!("it is none of {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(rules: &[&'static str]) -> Vec<Violation> {
        let text = String::new;
        let violation = |rule: &&'static str| Violation { rule, text: text() };
        rules.iter().map(violation).collect()
    }

    #[test]
    fn a_fault_is_caught_by_its_own_rules() {
        for (what, broken, caught_by) in [
            ("it never starts", &["no leader"][..], &[][..]),
            ("it crashes", &["panic", "stuck", "cache", "uid"], &[]),
            ("a pod is forgotten", &["stuck"], &["incomplete-list"]),
            ("it lost pods while it was killed", &["lost", "Lease"], &[]),
            ("binds without uids", &["uid"], &["bind-without-uid"]),
            (
                "two pods have the same room",
                &["overcommit"],
                &["no-fence", "incomplete-list"],
            ),
            (
                "pods wait although nodes lend",
                &["not woken"],
                &["lost-wake-up"],
            ),
            (
                "the cache has a pod that is gone",
                &["cache"],
                &["assumed-forever", "incomplete-list"],
            ),
        ] {
            let broken = violations(broken);
            let found = ALL.iter().filter(|fault| fault.is_caught(&broken));
            let found: Vec<&str> = found.map(|fault| fault.name).collect();
            assert_eq!(found, caught_by, "{what}");
        }
    }

    #[test]
    fn every_fault_of_the_scheduler_is_known_and_every_rule_is_documented() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
        let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
        let source = read("crates/reconcile/src/planted.rs");
        let of_the_scheduler: Vec<&str> = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("(Self::")?.split('"').nth(1))
            .collect();
        assert_eq!(of_the_scheduler, ALL.map(|fault| fault.name));
        let page = read("docs/chaos.md");
        let rules = ALL.iter().flat_map(|fault| fault.rules);
        for rule in rules.chain(&NOT_RUNNING) {
            assert!(page.contains(&format!("\n| {rule} | ")), "{rule}");
        }
        assert!("lost-wakeup".parse::<PlantedFault>().is_err());
    }
}
