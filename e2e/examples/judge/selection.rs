//! Which tests run on a cluster: `e2e/judge/tests.yaml`.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cluster::Cluster;

const FILE: &str = include_str!("../../judge/tests.yaml");

/// Tests are named by a part of their name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Selection {
    pub(crate) quick: Vec<String>,
    pub(crate) left_out: Vec<LeftOut>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeftOut {
    pub(crate) test: String,
    pub(crate) reason: String,
    /// Empty: all.
    #[serde(default)]
    clusters: Vec<Cluster>,
}

impl Selection {
    pub(crate) fn read() -> Result<Self> {
        serde_saphyr::from_str(FILE).context("cannot read e2e/judge/tests.yaml")
    }

    /// The flags that make the program run these tests. `focus` is a regular expression; without one all tests run that are
    /// not left out, or the quick ones.
    pub(crate) fn flags(&self, cluster: Cluster, quick: bool, focus: Option<&str>) -> Vec<String> {
        let entries = self.left_out.iter().filter(|entry| entry.is_on(cluster));
        let skip: Vec<String> = entries.map(|entry| regex::escape(&entry.test)).collect();
        let mut flags = vec![format!("--ginkgo.skip={}", skip.join("|"))];
        if let Some(focus) = focus {
            flags.push(format!("--ginkgo.focus={focus}"));
        } else if quick {
            let names: Vec<String> = self.quick.iter().map(|name| regex::escape(name)).collect();
            flags.push(format!("--ginkgo.focus={}", names.join("|")));
        }
        flags
    }

    /// Refuses an entry that names no test of this version.
    pub(crate) fn check(&self, tests: &[&str]) -> Result<()> {
        let left_out = self.left_out.iter().map(|entry| &entry.test);
        for part in self.quick.iter().chain(left_out) {
            if !tests.iter().any(|test| test.contains(part)) {
                bail!("e2e/judge/tests.yaml names a test that does not exist: {part}");
            }
        }
        Ok(())
    }
}

impl LeftOut {
    pub(crate) fn is_on(&self, cluster: Cluster) -> bool {
        self.clusters.is_empty() || self.clusters.contains(&cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_select_tests_by_a_part_of_their_name() {
        let text = "quick: [a (b), c]\nleftOut: [{test: '[x]', reason: r}, {test: y, reason: r, clusters: [embedded]}]";
        let selection: Selection = serde_saphyr::from_str(text).unwrap();
        for (cluster, quick, focus, want) in [
            (
                Cluster::Embedded,
                false,
                None,
                &[r"--ginkgo.skip=\[x\]|y"][..],
            ),
            (
                Cluster::Tidepool,
                true,
                None,
                &[r"--ginkgo.skip=\[x\]", r"--ginkgo.focus=a \(b\)|c"],
            ),
            (
                Cluster::Tidepool,
                false,
                Some("z.*"),
                &[r"--ginkgo.skip=\[x\]", "--ginkgo.focus=z.*"],
            ),
        ] {
            assert_eq!(selection.flags(cluster, quick, focus), want);
        }
    }

    #[test]
    fn a_name_without_a_test_is_refused() {
        let text = "quick: [quick]\nleftOut: [{test: gone, reason: r}]";
        let selection: Selection = serde_saphyr::from_str(text).unwrap();
        selection.check(&["a quick one", "gone too"]).unwrap();
        let error = selection.check(&["a quick one"]).unwrap_err();
        assert!(error.to_string().ends_with("does not exist: gone"));
    }

    #[test]
    fn the_file_is_valid() {
        let selection = Selection::read().unwrap();
        assert!(!selection.quick.is_empty());
    }
}
