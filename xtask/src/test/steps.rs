//! The steps of `cargo xtask test`, in their order: what is cheap and often red comes first.

use std::path::PathBuf;

use anyhow::Result;

use super::count::{Count, count_tests, has_no_hits, passes};
use crate::{
    annotations, bench, boundaries, chaos, controlplane, guest, judge, layers, mutants, parity,
    process, seed, wording,
};

pub(super) struct Step {
    /// For `--only` and `--from`.
    pub(super) name: &'static str,
    /// For `--list`.
    pub(super) shows: &'static str,
    pub(super) lane: Lane,
    pub(super) needs: Needs,
    pub(super) run: fn(&mut Suite<'_>) -> Result<Count>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Before the lanes.
    First,
    /// Tests on the embedded cluster and on the real control plane.
    Clusters,
    /// Everything that needs no cluster.
    Others,
    /// What waits for clusters of its own, and for faults that last minutes.
    Waits,
    /// After the lanes, with nothing beside it: a real node measures the use of the whole machine.
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Go,
    /// Go too, unless a directory with the programs is given.
    ControlPlane,
    /// The control plane, and root, to run containers.
    ControlPlaneAndRoot,
    /// Valgrind, or root to install it.
    Valgrind,
    /// Go and the library that Koordinator's agent links, or root to install it.
    GoAndLibrary,
    /// An hour: it runs with `--full` only, or when it is selected by name.
    Full,
}

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "format",
        lane: Lane::First,
        shows: "sources are formatted",
        needs: Needs::Nothing,
        run: |_| passes(process::cargo().args(["fmt", "--all", "--check"])),
    },
    Step {
        name: "boundaries",
        lane: Lane::First,
        shows: "crates depend on each other as ARCHITECTURE.md says, and modules as their tables say",
        needs: Needs::Nothing,
        run: |_| {
            let mut found = boundaries::violations()?;
            found.extend(layers::violations()?);
            Ok(has_no_hits(&found))
        },
    },
    Step {
        name: "annotations",
        lane: Lane::First,
        shows: "one module per component reads annotations, so that each says why it believes them",
        needs: Needs::Nothing,
        run: |_| Ok(has_no_hits(&annotations::violations()?)),
    },
    Step {
        name: "wording",
        lane: Lane::First,
        shows: "texts for users have no phrase that is hard to read",
        needs: Needs::Nothing,
        run: |_| Ok(has_no_hits(&wording::hits()?)),
    },
    Step {
        name: "unit",
        lane: Lane::First,
        shows: "unit tests and scenarios of all crates",
        needs: Needs::Nothing,
        run: |suite| suite.cargo_test(UNIT, &[]),
    },
    Step {
        name: "lints",
        lane: Lane::Others,
        shows: "clippy has no warning",
        needs: Needs::Nothing,
        run: |_| passes(process::cargo().args(LINTS)),
    },
    Step {
        name: "components",
        lane: Lane::Clusters,
        shows: "the components and the command line on the embedded cluster, and the code in documentation comments",
        needs: Needs::Nothing,
        run: |suite| {
            let mut count = suite.cargo_test(COMPONENTS, &[THREADS])?;
            count.add(suite.cargo_test(&["--doc"], &[])?);
            Ok(count)
        },
    },
    Step {
        name: "control-plane",
        lane: Lane::Others,
        shows: "builds kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet and etcd",
        needs: Needs::ControlPlane,
        run: |_| {
            println!("    {}", controlplane::directory()?.display());
            Ok(Count::one(true))
        },
    },
    Step {
        name: "conformance",
        lane: Lane::Clusters,
        shows: "the embedded cluster answers as the real API server does",
        needs: Needs::ControlPlane,
        run: |suite| suite.real_test(CONFORMANCE, &[]),
    },
    Step {
        name: "real",
        lane: Lane::Clusters,
        shows: "everything on the real control plane",
        needs: Needs::ControlPlane,
        run: |suite| suite.real_test(REAL, &["--skip", TIMED, THREADS]),
    },
    Step {
        name: "parity-kube",
        lane: Lane::Others,
        shows: "our plugins decide as kube-scheduler's",
        needs: Needs::Go,
        run: |suite| suite.parity("kube", suite.cases()),
    },
    // Its own profile is the smaller part of the comparison.
    Step {
        name: "parity-up",
        lane: Lane::Others,
        shows: "the default profile of `tidepool up` decides as kube-scheduler's",
        needs: Needs::Go,
        run: |suite| suite.parity("up", suite.cases() / 4),
    },
    Step {
        name: "parity-koordinator",
        lane: Lane::Others,
        shows: "scores and tiers are Koordinator's",
        needs: Needs::Go,
        run: |suite| suite.parity("koordinator", suite.cases()),
    },
    Step {
        name: "parity-koordlet",
        lane: Lane::Others,
        shows: "figures of the agent are those of Koordinator's agent; installs libpfm4-dev",
        needs: Needs::GoAndLibrary,
        run: |suite| suite.parity("koordlet", suite.cases()),
    },
    Step {
        name: "parity-webhook",
        lane: Lane::Others,
        shows: "pods are admitted as by Koordinator's webhook",
        needs: Needs::Go,
        run: |suite| suite.parity("webhook", suite.cases()),
    },
    Step {
        name: "parity-katalyst",
        lane: Lane::Others,
        shows: "QoS-aware plugins and NUMA zones decide as Katalyst's",
        needs: Needs::Go,
        run: |suite| suite.parity("katalyst", suite.cases()),
    },
    Step {
        name: "instructions",
        lane: Lane::Others,
        shows: "a decision costs as many instructions as the repository says; installs Valgrind",
        needs: Needs::Valgrind,
        run: |_| Ok(has_no_hits(&bench::faults_of_instructions()?)),
    },
    Step {
        name: "chaos",
        lane: Lane::Waits,
        shows: "two schedulers lose no pod while network, processes and clocks fail",
        needs: Needs::ControlPlane,
        run: |suite| {
            let mut command = chaos::command()?;
            match suite.full {
                true => command.arg("--minutes=30"),
                // Every run has the same faults: if it fails, the last change is the cause.
                false => command.args(["--minutes=1", "--seed=1"]),
            };
            passes(&mut command)
        },
    },
    Step {
        name: "planted",
        lane: Lane::Waits,
        shows: "the chaos run finds planted faults: two, chosen by the commit",
        needs: Needs::ControlPlane,
        run: |suite| suite.planted_faults(),
    },
    Step {
        name: "mutants",
        lane: Lane::Others,
        shows: "tests fail for mutants of plugins, queue, gate and node advice: an hour, with --full only",
        needs: Needs::Full,
        run: |_| passes(&mut mutants::command(MINUTES_OF_MUTANTS)?),
    },
    Step {
        name: "judge",
        lane: Lane::Waits,
        shows: "Kubernetes' own tests of scheduling pass",
        needs: Needs::Go,
        run: |suite| {
            let mut command = judge::command()?;
            command.args((!suite.full).then_some("--quick"));
            count_tests(suite.step, &mut command, suite.failures)
        },
    },
    Step {
        name: "timed",
        lane: Lane::Last,
        shows: "tests with bounds on time, one by one",
        needs: Needs::ControlPlane,
        run: |suite| suite.real_test(REAL, &[TIMED, "--test-threads=1"]),
    },
    Step {
        name: "nodes",
        lane: Lane::Last,
        shows: "the agent on a real node of this machine and of a virtual machine; installs what they need",
        needs: Needs::ControlPlaneAndRoot,
        run: |suite| {
            Suite::build_tidepool()?;
            let variables = [
                ("TIDEPOOL_CONTROLPLANE", controlplane::directory()?),
                ("TIDEPOOL_GUEST", guest::directory()?),
            ];
            suite.cargo_test_with(&variables, NODES, &[])
        },
    },
];

/// Binaries without I/O, beside the unit tests. All steps select tests of the whole workspace: a selection of packages would give
/// dependencies other features, and compile them again.
pub(super) const UNIT: &[&str] = &["--lib", "--bins", "engine", "protobuf", "scenarios"];
const COMPONENTS: &[&str] = &[
    "all",
    "cli",
    "cluster",
    "runs",
    "--example=bench-drain",
    "--example=chaos",
    "--example=judge",
];
const CONFORMANCE: &[&str] = &["conformance"];
const REAL: &[&str] = &["real"];
const NODES: &[&str] = &["node"];

const LINTS: &[&str] = &[
    "clippy",
    "--workspace",
    "--all-targets",
    "--locked",
    "--quiet",
    "--",
    "--deny=warnings",
];

/// Tests on clusters wait most of their time, so that two processors can run more of them.
const THREADS: &str = "--test-threads=4";

/// Tests with this in their path have bounds on time, and run without other tests beside them.
const TIMED: &str = "timed::";

const MINUTES_OF_MUTANTS: u64 = 60;

/// What a step needs.
pub(super) struct Suite<'a> {
    step: &'static str,
    full: bool,
    /// What failed tests printed.
    failures: &'a mut Vec<String>,
}

impl<'a> Suite<'a> {
    pub(super) fn new(step: &'static str, full: bool, failures: &'a mut Vec<String>) -> Self {
        Self {
            step,
            full,
            failures,
        }
    }

    fn cases(&self) -> u64 {
        if self.full { 20_000 } else { 2_000 }
    }

    /// Compares the cases of the first seed, which are known to exercise everything, and new ones for every commit.
    fn parity(&self, comparison: &str, cases: u64) -> Result<Count> {
        let cases = format!("--cases={cases}");
        let seed = format!("--seed={}", seed::of_commit()?);
        println!("    {cases} --seed=1 {seed}");
        let flags = [comparison, &cases, "--seed=1", &seed].map(str::to_owned);
        passes(&mut parity::command(&flags)?)
    }

    /// Two that take turns, chosen by the commit; with `--full` all of them, and the rare one with more time.
    fn planted_faults(&self) -> Result<Count> {
        let mut faults = chaos::PLANTED_FAULTS.to_vec();
        let (mut most, mut minutes) = (faults.len(), "--minutes=15");
        if !self.full {
            faults.retain(|fault| *fault != chaos::RARELY_FOUND);
            // A round takes a minute, and the first one usually finds it. On a busy machine a fault of the network may come too late
            // to matter.
            (most, minutes) = (2, "--minutes=3");
        }
        let first = seed::of_commit()? as usize % faults.len();
        let mut count = Count::default();
        for fault in faults.iter().cycle().skip(first).take(most) {
            let mut command = chaos::command_with_planted_faults()?;
            command.args(["--planted", fault, minutes, "--seed=1"]);
            count.add(passes(&mut command)?);
        }
        Ok(count)
    }

    /// Runs these test binaries of the workspace, with flags of the tests.
    fn cargo_test(&mut self, binaries: &[&str], flags: &[&str]) -> Result<Count> {
        self.cargo_test_with(&[], binaries, flags)
    }

    /// Runs these test binaries with the real control plane.
    fn real_test(&mut self, binaries: &[&str], flags: &[&str]) -> Result<Count> {
        Self::build_tidepool()?;
        let programs = controlplane::directory()?;
        self.cargo_test_with(&[("TIDEPOOL_CONTROLPLANE", programs)], binaries, flags)
    }

    /// For tests that run it as a process: `cargo test` of another package does not build it. With `chaos`, an example, cargo gives
    /// dependencies the features that they have for tests.
    fn build_tidepool() -> Result<()> {
        process::build(&["--bin", "tidepool", "--example", "chaos"])?;
        Ok(())
    }

    fn cargo_test_with(
        &mut self,
        variables: &[(&str, PathBuf)],
        binaries: &[&str],
        flags: &[&str],
    ) -> Result<Count> {
        let mut tests = process::cargo();
        tests.args(["test", "--workspace", "--locked"]);
        tests.arg("--no-fail-fast");
        tests.args(targets(binaries));
        // Tests only ask whether it is set.
        match self.full {
            true => tests.env("TIDEPOOL_FULL", "1"),
            false => tests.env_remove("TIDEPOOL_FULL"),
        };
        tests.envs(variables.iter().cloned());
        count_tests(self.step, tests.arg("--").args(flags), self.failures)
    }
}

/// Flags of cargo that select these targets.
pub(super) fn targets(binaries: &[&str]) -> Vec<String> {
    let flag = |binary: &&str| match binary.starts_with("--") {
        true => (*binary).to_owned(),
        false => format!("--test={binary}"),
    };
    binaries.iter().map(flag).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_test_binary_of_the_workspace_is_in_a_step() {
        let metadata = process::read(process::cargo().args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--locked",
        ]));
        let metadata: Value = serde_json::from_str(&metadata.unwrap()).unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
        let found: BTreeSet<String> = targets
            .filter_map(|target| {
                let name = target["name"].as_str().unwrap();
                match target["kind"][0].as_str().unwrap() {
                    "test" => Some(name.to_owned()),
                    // Examples have tests only if their manifest says so.
                    "example" if target["test"] == true => Some(format!("--example={name}")),
                    _ => None,
                }
            })
            .collect();
        let steps = [UNIT, COMPONENTS, CONFORMANCE, REAL, NODES].concat();
        let all_of_a_kind = ["--lib", "--bins"];
        let run = steps
            .into_iter()
            .filter(|name| !all_of_a_kind.contains(name));
        let run: BTreeSet<String> = run.map(str::to_owned).collect();
        assert_eq!(run, found);
    }
}
