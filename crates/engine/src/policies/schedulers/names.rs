//! Names of schedulers, as pods, Leases, labels and the ConfigMap of the registry write them.

use std::collections::BTreeSet;

use crate::model::{Name, is_label_value};

/// The scheduler of pods that name none: kube-scheduler, or the one that runs in its place.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Names of one Lease beyond this are ignored.
const MOST_NAMES: usize = 64;
/// The names must fit into a ConfigMap.
pub(super) const MOST_REGISTERED: usize = 1_000;
/// One namespace must not take the place of all others.
pub(super) const MOST_OF_NAMESPACE: usize = 250;
/// Names that a message lists.
const MOST_LISTED: usize = 8;
/// The longest part of a foreign name in a message.
const LONGEST_SHOWN: usize = 63;

/// The names of a list; each is sorted and has no duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseNames {
    pub valid: Vec<Name>,
    /// Shortened for messages.
    pub invalid: Vec<String>,
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends: what a label value can hold.
pub fn is_scheduler_name(text: &str) -> bool {
    !text.is_empty() && is_label_value(text)
}

/// Reads names of a Lease, which are separated by commas.
pub fn read_names(list: &str) -> LeaseNames {
    read(list, MOST_NAMES)
}

/// Reads the names of all schedulers that run, as the registry writes them.
pub fn read_registered(list: &str) -> Vec<Name> {
    read(list, MOST_REGISTERED).valid
}

fn read(list: &str, most: usize) -> LeaseNames {
    let (mut valid, mut invalid) = (BTreeSet::new(), BTreeSet::new());
    for name in list.split(',').map(str::trim).take(most) {
        if is_scheduler_name(name) {
            valid.insert(Name::from(name));
        } else if !name.is_empty() {
            invalid.insert(shown(name));
        }
    }
    LeaseNames {
        valid: valid.into_iter().collect(),
        invalid: invalid.into_iter().collect(),
    }
}

/// The inverse of [`read_names`] and [`read_registered`].
pub fn join_names<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    let names: Vec<&str> = names.into_iter().map(|it| &**it).collect();
    names.join(",")
}

/// The sentence about a scheduler that does not run: it suggests the nearest name, or lists the known ones.
pub fn unknown_scheduler<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let shown = shown(name);
    let hint = match nearest(&shown, &known) {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => {
            let more = known.len().saturating_sub(MOST_LISTED);
            let list = known[..known.len() - more].join(", ");
            match more {
                0 => format!("running: {list}"),
                more => format!("running: {list} and {more} more"),
            }
        }
    };
    format!("no scheduler {shown:?} is running; {hint}")
}

/// The known name with the fewest differences, if at most a third of the letters differ.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let all = known.iter();
    let all = all.map(|known| {
        (
            strsim::damerau_levenshtein(&lower, &known.to_lowercase()),
            *known,
        )
    });
    let (distance, known) = all.min()?;
    (distance <= name.chars().count() / 3).then_some(known)
}

fn shown(name: &str) -> String {
    match name.char_indices().nth(LONGEST_SHOWN) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}...", &name[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names() {
        let long = "x".repeat(64);
        for (list, valid, invalid) in [
            ("", vec![], vec![]),
            (" b ,a,,b,", vec!["a", "b"], vec![]),
            ("a b,-c,d", vec!["d"], vec!["-c", "a b"]),
            ("Team_1.x", vec!["Team_1.x"], vec![]),
            ("é,\n,\u{7}", vec![], vec!["\u{7}", "é"]),
        ] {
            let read = read_names(list);
            let found: Vec<&str> = read.valid.iter().map(|it| &**it).collect();
            assert_eq!(
                (found, read.invalid),
                (valid, invalid.iter().map(|it| it.to_string()).collect()),
                "{list:?}"
            );
        }
        assert_eq!(read_names(&long).invalid, [format!("{}...", &long[..63])]);
        let many: Vec<String> = (0..1_000).map(|it| format!("s{it:04}")).collect();
        let read = read_names(&many.join(","));
        assert_eq!(read.valid.len(), MOST_NAMES);
        assert_eq!(read_registered(&many.join(",")).len(), many.len());
        assert_eq!(read_names(&join_names(&read.valid)), read);
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (name, known, want) in [
            (
                "my-schedular",
                vec!["default-scheduler", "my-scheduler"],
                "no scheduler \"my-schedular\" is running; did you mean \"my-scheduler\"?",
            ),
            (
                "My-Scheduler",
                vec!["my-scheduler"],
                "no scheduler \"My-Scheduler\" is running; did you mean \"my-scheduler\"?",
            ),
            (
                "volcano",
                vec!["default-scheduler", "tidepool"],
                "no scheduler \"volcano\" is running; running: default-scheduler, tidepool",
            ),
        ] {
            assert_eq!(unknown_scheduler(name, known.into_iter()), want);
        }
        let many: Vec<String> = (0..20).map(|it| format!("another-{it:02}")).collect();
        let text = unknown_scheduler(&"\n".repeat(300_000), many.iter().map(|it| &**it));
        assert!(text.ends_with("another-07 and 12 more"), "{text}");
        assert!(text.len() < 512 && !text.contains('\n'), "{text}");
    }
}
