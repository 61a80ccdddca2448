//! The mutants that may survive, each with a reason: `accepted.txt`.
//!
//! A line without indent is the key of a site, as the command prints it; the indented lines below are the reason.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};

use super::sites::Site;

const LIST: &str = include_str!("accepted.txt");

/// The keys of the list.
pub(super) fn accepted() -> Result<HashSet<String>> {
    parse(LIST)
}

fn parse(list: &str) -> Result<HashSet<String>> {
    let mut reasons: HashMap<String, String> = HashMap::new();
    let mut current = None;
    for line in list.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with(' ') {
            let Some(reason) = current.as_ref().and_then(|key| reasons.get_mut(key)) else {
                bail!("the list of accepted survivors has a reason without a mutant: {line}");
            };
            reason.push_str(line);
            continue;
        }
        if reasons.insert(line.to_owned(), String::new()).is_some() {
            bail!("the list of accepted survivors names a mutant twice: {line}");
        }
        current = Some(line.to_owned());
    }
    if let Some((key, _)) = reasons.iter().find(|(_, reason)| reason.is_empty()) {
        bail!("the list of accepted survivors has no reason for {key}");
    }
    Ok(reasons.into_keys().collect())
}

/// Entries that no site has.
pub(super) fn stale(accepted: &HashSet<String>, sites: &[Site]) -> Vec<String> {
    let known: HashSet<String> = sites.iter().map(Site::key).collect();
    let mut stale: Vec<String> = accepted.difference(&known).cloned().collect();
    stale.sort();
    stale
}

#[cfg(test)]
mod tests {
    use super::super::{all_sites, sites};
    use super::*;

    #[test]
    fn every_accepted_survivor_has_a_reason_and_a_site() {
        let stale = stale(&accepted().unwrap(), &all_sites().unwrap());
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    #[test]
    fn an_entry_names_a_mutant_wherever_it_moves() {
        let text = "fn f() -> i64 { a + b }";
        let found = sites::find("a.rs", text).unwrap();
        let moved = sites::find("a.rs", &format!("// A comment.\n\n{text}")).unwrap();
        let list =
            "# A comment.\na.rs, f: `a + b` -> `a - b`\n    b is always 0:\n    see there.\n";
        let list = parse(list).unwrap();
        assert_eq!(list, HashSet::from([found[0].key()]));
        assert_eq!(stale(&list, &moved), [""; 0]);
        let other = sites::find("a.rs", "fn f() -> i64 { a + c }").unwrap();
        assert_eq!(stale(&list, &other), [found[0].key()]);
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        for (list, want) in [
            ("a\nb\n  why\n", "no reason for a"),
            ("  why\n", "a reason without a mutant"),
            ("a\n  why\na\n  why\n", "twice"),
        ] {
            let error = parse(list).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
