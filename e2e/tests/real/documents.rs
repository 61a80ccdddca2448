//! The commands of the documentation run as printed, and print what the documentation shows.
//!
//! Every page is followed from top to bottom in terminals of its own (`documents/terminal.rs`). A page that starts
//! `tidepool up` uses that cluster, any other one the real control plane. `documents/blocks.rs` has the marks for blocks that
//! do not run.

mod blocks;
mod mask;
mod plan;
mod terminal;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::{Api, ControlPlane, Options};
use serde_json::{Value, json};

use self::plan::{Plan, Run, Shown, Step};
use self::terminal::{Display, Printed, Terminals};
use crate::shared::Shared;

/// How long the cluster may take until commands that only look print what the page shows.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Pages outside of `docs/` that may have commands for users.
const MORE_PAGES: [&str; 3] = ["CONTRIBUTING.md", "README.md", "SECURITY.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn plan(page: &str) -> Result<Plan, String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    Plan::of(&text).map_err(|problems| format!("{page}:\n{}\n", problems.join("\n")))
}

/// All pages that there are.
fn pages() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let documents = paths.filter(|path: &PathBuf| path.extension().is_some_and(|it| it == "md"));
    let names = documents.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    let mut pages: Vec<String> = names.map(|name| format!("docs/{name}")).collect();
    pages.extend(MORE_PAGES.map(str::to_owned));
    pages.sort();
    pages
}

/// One test per page that has something to run.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const FOLLOWED: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                follow($page);
            }
        )*
    };
}

pages! {
    the_readme_works: "README.md",
    jobs_run_on_idle_capacity: "docs/colocation.md",
    a_configuration_is_checked: "docs/configuration.md",
    dedicated_pods_have_numa_zones: "docs/dedicated-cores.md",
    the_embedded_cluster_works: "docs/embedded-cluster.md",
    the_first_five_minutes_work: "docs/getting-started.md",
    the_controller_of_hot_spots_is_installed: "docs/hot-spots.md",
    gpu_machines_are_kept_for_gpu_work: "docs/keep-gpu-machines-for-gpu-work.md",
    pods_find_their_schedulers: "docs/many-schedulers.md",
    reserved_machines_fill_first_and_spot_pods_go_first: "docs/resource-policy.md",
    the_scheduler_runs_on_a_cluster: "docs/run-on-a-cluster.md",
    the_agent_is_installed: "docs/run-the-agent.md",
    a_scenario_runs: "docs/scenarios.md",
    the_controller_of_agents_is_installed: "docs/silent-agents.md",
    a_cluster_has_simulated_nodes: "docs/simulated-nodes.md",
    mid_and_batch_resources_are_published: "docs/tier-capacity.md",
    pods_of_every_tier_are_admitted: "docs/tiers.md",
}

#[test]
fn every_page_runs_its_commands_or_says_why_not() {
    let (mut found, mut problems) = (BTreeSet::new(), String::new());
    for page in pages() {
        match plan(&page) {
            Ok(plan) if plan.steps.is_empty() => {}
            Ok(_) => drop(found.insert(page)),
            Err(problem) => problems.push_str(&problem),
        }
    }
    assert!(problems.is_empty(), "{problems}");
    let followed: BTreeSet<String> = FOLLOWED.iter().map(|&page| page.to_owned()).collect();
    assert_eq!(followed.len(), FOLLOWED.len(), "a page is followed twice");
    let forgotten: Vec<&String> = found.difference(&followed).collect();
    assert!(forgotten.is_empty(), "without a test above: {forgotten:?}");
    let gone: Vec<&String> = followed.difference(&found).collect();
    assert!(gone.is_empty(), "nothing to follow in: {gone:?}");
}

/// Does what a reader of the page does.
fn follow(page: &str) {
    let plan = plan(page).unwrap_or_else(|problem| panic!("{problem}"));
    let mut terminals = Terminals::open(&plan.files);
    match plan.needs_cluster() {
        true => SHARED.with(start_control_plane, |control_plane| {
            terminals.write_kubeconfig(&kubeconfig(control_plane));
            go(page, &plan, &mut terminals);
        }),
        false => go(page, &plan, &mut terminals),
    }
}

fn go(page: &str, plan: &Plan, terminals: &mut Terminals) {
    for step in &plan.steps {
        let (line, commands, result) = match step {
            Step::Start {
                line,
                command,
                output,
            } => (line, command, start(terminals, command, output.as_ref())),
            Step::ReadLog { line, shown } => {
                let result = eventually(|| compare(shown, &terminals.log()));
                (line, &String::new(), result)
            }
            Step::Run(run) => (&run.line, &run.commands, run_as_shown(terminals, run)),
        };
        if let Err(problem) = result {
            panic!("{page}:{line}:\n{commands}\n{problem}");
        }
    }
    terminals.close();
}

/// Starts a command in a terminal of its own, and waits until it shows what the page shows.
fn start(terminals: &mut Terminals, command: &str, output: Option<&Shown>) -> Result<(), String> {
    let Some(shown) = output else {
        terminals.start(command, Display::Lines);
        if command.split_whitespace().any(|word| word == "up") {
            terminals.await_print("kubeconfig: ");
        }
        return Ok(());
    };
    terminals.start(command, Display::Page);
    eventually(|| compare(shown, &terminals.page()))
}

/// Runs a block. Commands that only look are repeated until they print what the page shows, because a reader also waits.
fn run_as_shown(terminals: &Terminals, run: &Run) -> Result<(), String> {
    let once = || check(run, &terminals.run(&run.commands));
    match run.only_looks() {
        true => eventually(once),
        false => once(),
    }
}

fn eventually(attempt: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = attempt();
        if result.is_ok() || Instant::now() > deadline {
            return result;
        }
        std::thread::sleep(PAUSE);
    }
}

fn check(run: &Run, printed: &Printed) -> Result<(), String> {
    let text = &printed.text;
    if printed.code != Some(run.exit_code) {
        let code = printed.code;
        let want = run.exit_code;
        return Err(format!("exit code {code:?} instead of {want}:\n{text}"));
    }
    match &run.output {
        Some(shown) => compare(shown, text),
        None => Ok(()),
    }
}

fn compare(shown: &Shown, printed: &str) -> Result<(), String> {
    match shown.difference(printed) {
        None => Ok(()),
        Some(difference) => Err(format!("{difference}\n\nprinted as a whole:\n{printed}")),
    }
}

static SHARED: Shared<ControlPlane> = Shared::until_the_end();

/// The cluster of a reader. Pages install components on it, and each of them is complete.
fn start_control_plane() -> ControlPlane {
    let control_plane = ControlPlane::start(Options {
        // No controller makes the ServiceAccounts that one wants, and no kubelet is ready as the other one wants.
        disable_admission_plugins: ["ServiceAccount", "TaintNodesByCondition"]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    });
    let control_plane = control_plane.unwrap();
    add_nodes(&control_plane);
    control_plane
}

fn add_nodes(control_plane: &ControlPlane) {
    let api = Api::new(&control_plane.admin()).unwrap();
    for name in ["node-1", "node-2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}}});
        api.create(&node).unwrap();
    }
}

/// With a second context, which pages name.
fn kubeconfig(control_plane: &ControlPlane) -> String {
    let text = control_plane.admin().to_yaml();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    let contexts = kubeconfig["contexts"].as_array_mut().unwrap();
    let context = contexts[0]["context"].clone();
    contexts.push(json!({"name": "prod", "context": context}));
    kubeconfig.to_string()
}

#[test]
fn a_wrong_word_or_exit_code_on_a_page_is_found() {
    let document = "```sh\nls\n```\n```text\nNAME    AGE\nnode-1  3s\n```\n";
    let plan = Plan::of(document).unwrap();
    let [Step::Run(run)] = &plan.steps[..] else {
        panic!("{plan:?}");
    };
    for (text, code, is_shown) in [
        ("NAME     AGE\nnode-2   14m\n", Some(0), true),
        ("NAME     AGE\npod-2    14m\n", Some(0), false),
        ("NAME\nnode-2\n", Some(0), false),
        ("NAME     AGE\nnode-2   14m\nnode-3   14m\n", Some(0), false),
        ("NAME     AGE\nnode-2   14m\n", Some(1), false),
        ("NAME     AGE\nnode-2   14m\n", None, false),
    ] {
        let text = text.to_owned();
        let result = check(run, &Printed { text, code });
        assert_eq!(result.is_ok(), is_shown, "{result:?}");
    }
}
