//! `--controllers`: which controllers run.

use anyhow::{Result, bail};
use control_plane::controllers::{ALL, Controller};

/// Every controller.
pub(super) const EVERY: &str = "*";

/// The controllers that the flag's list enables: `*` enables all, `NAME` one, and `-NAME` disables one. As in
/// kube-controller-manager, a name wins over `*`.
pub(super) fn chosen(list: &[String]) -> Result<&'static [Controller]> {
    let names = || ALL.iter().map(|it| it.name);
    for item in list {
        let name = item.strip_prefix('-').unwrap_or(item);
        if item != EVERY && !names().any(|known| known == name) {
            let known: Vec<&str> = names().collect();
            bail!(
                "--controllers: `{item}` is not known: use *, or NAME or -NAME with a name of {}",
                known.join(", ")
            );
        }
    }
    let has = |wanted: &str| list.iter().any(|item| item == wanted);
    let is_chosen = |controller: &&Controller| {
        has(controller.name) || (has(EVERY) && !has(&format!("-{}", controller.name)))
    };
    let chosen: Vec<Controller> = ALL.iter().filter(is_chosen).copied().collect();
    if chosen.is_empty() {
        bail!("--controllers: `{}` enables no controller", list.join(","));
    }
    // The flag holds until the process ends.
    Ok(chosen.leak())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Result<Vec<&'static str>> {
        let list: Vec<String> = list.split(',').map(str::to_owned).collect();
        Ok(chosen(&list)?.iter().map(|it| it.name).collect())
    }

    #[test]
    fn a_list_enables_and_disables_controllers() {
        let all: Vec<&str> = ALL.iter().map(|it| it.name).collect();
        let without_tiers: Vec<&str> = all.iter().copied().filter(|it| *it != "tiers").collect();
        for (list, want) in [
            ("*", all),
            ("*,-tiers", without_tiers),
            ("tiers", vec!["tiers"]),
            ("tiers,agents", vec!["agents", "tiers"]),
            ("agents,-tiers", vec!["agents"]),
        ] {
            assert_eq!(names(list).unwrap(), want, "{list}");
        }
    }

    #[test]
    fn unknown_names_and_empty_choices_are_refused() {
        let error = names("*,-tier").unwrap_err().to_string();
        assert!(error.contains("`-tier` is not known"), "{error}");
        assert!(error.contains("agents, hot-spots"), "{error}");
        let error = names("-tiers").unwrap_err().to_string();
        assert!(error.contains("enables no controller"), "{error}");
    }
}
