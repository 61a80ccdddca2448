//! `cargo xtask mutants`: changes the engine in many small ways, one at a time, and checks that a test fails for each.
//!
//! A build of the engine for each change would take minutes. So one build of a copy, in `target/mutants`, has all of them, and an
//! environment variable selects one at the start of a test binary.
//!
//! | module | what it is |
//! |---|---|
//! | `sites` | what can be changed in a source file |
//! | `rewrite` | a source file with all its changes |
//! | `tree` | the copy of the workspace, and its build |
//! | `run` | tests against one mutant |
//! | `accepted` | mutants that may survive, with the reasons |

mod accepted;
mod rewrite;
mod run;
mod sites;
mod tree;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

use crate::{process, seed};
use run::{Baseline, Fate};
use sites::Site;
use tree::Tree;

#[derive(Args)]
pub(crate) struct Options {
    /// Try so many mutants, in equal numbers from each part; all when not given
    #[arg(long)]
    sample: Option<usize>,
    /// Chooses the sample; the commit when not given
    #[arg(long)]
    seed: Option<u32>,
    /// Try mutants of this part only
    #[arg(long)]
    part: Option<Part>,
    /// Start no mutant after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Print the mutants with their ids, and run nothing
    #[arg(long)]
    list: bool,
    /// Try only these mutants
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Plugins,
    Queue,
    Gate,
    Node,
}

impl Part {
    const ALL: [Self; 4] = [Self::Plugins, Self::Queue, Self::Gate, Self::Node];

    /// Below the sources: a folder, and the file beside it.
    fn path(self) -> &'static str {
        match self {
            Self::Plugins => "scheduling/plugins",
            Self::Queue => "scheduling/queue",
            Self::Gate => "binding/gate",
            Self::Node => "node",
        }
    }

    fn of(site: &Site) -> Option<Self> {
        let path = Path::new(&site.file).strip_prefix(SOURCES).ok()?;
        let is_of = |part: &Self| {
            path.starts_with(part.path()) || path.with_extension("") == Path::new(part.path())
        };
        Self::ALL.into_iter().find(is_of)
    }
}

const SOURCES: &str = "crates/engine/src";

/// Tests run in so many processes at a time.
const LANES: usize = 2;

/// A sample that the commit chooses, in a process of its own: it has a low priority.
pub(crate) fn command(minutes: u64) -> Result<Command> {
    let ourselves = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(ourselves);
    command.args(["mutants", &format!("--minutes={minutes}")]);
    Ok(command)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    // Other work on this machine comes first.
    let _ = rustix::process::nice(5);
    let sites = all_sites()?;
    let mut tree = Tree::new(&sites)?;
    let order = order(&sites, options)?;
    if options.list {
        for id in order {
            println!("{id}: {}", shown(&sites[id]));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let binaries = tree.build()?;
    let baseline = Baseline::record(&tree, binaries)?;
    let compiles = |id: &usize| !tree.is_dropped(&sites[*id]);
    let mut order: Vec<usize> = order.into_iter().filter(compiles).collect();
    order.truncate(options.sample.unwrap_or(usize::MAX));
    let deadline = options
        .minutes
        .map(|minutes| started + Duration::from_secs(minutes * 60));
    let tried = try_all(&sites, &order, &baseline, deadline)?;
    report(&sites, &tried)
}

/// The mutants of all parts; their indices are their ids.
fn all_sites() -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    for part in Part::ALL {
        let source = Path::new(SOURCES).join(part.path());
        add_file(&source.with_extension("rs"), &mut sites)?;
        add_folder(&source, &mut sites)?;
    }
    Ok(sites)
}

fn add_folder(folder: &Path, sites: &mut Vec<Site>) -> Result<()> {
    let entries = std::fs::read_dir(process::root().join(folder))
        .with_context(|| format!("cannot read {}", folder.display()))?;
    let names: Result<Vec<_>, _> = entries.map(|it| it.map(|it| it.file_name())).collect();
    let mut names = names?;
    names.sort();
    for name in names {
        let path = folder.join(&name);
        let is_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_tests {
            continue;
        }
        if process::root().join(&path).is_dir() {
            add_folder(&path, sites)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            add_file(&path, sites)?;
        }
    }
    Ok(())
}

fn add_file(path: &Path, sites: &mut Vec<Site>) -> Result<()> {
    let text = std::fs::read_to_string(process::root().join(path))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.to_str().context("paths of sources are text")?;
    sites.extend(sites::find(name, &text)?);
    Ok(())
}

/// Ids in the order in which they are tried: shuffled by the seed, and the parts take turns, so that each start of the order has all.
fn order(sites: &[Site], options: &Options) -> Result<Vec<usize>> {
    if let Some(id) = options.only.iter().find(|id| **id >= sites.len()) {
        bail!("there is no mutant {id}; --list prints them");
    }
    if !options.only.is_empty() {
        return Ok(options.only.clone());
    }
    let is_wanted = |part: Part| options.part.is_none_or(|wanted| wanted == part);
    let by_part = Part::ALL.map(|part| -> Vec<usize> {
        let is_of_part = |id: &usize| is_wanted(part) && Part::of(&sites[*id]) == Some(part);
        (0..sites.len()).filter(is_of_part).collect()
    });
    if options.list {
        return Ok(by_part.into_iter().flatten().collect());
    }
    let seed = options.seed.map_or_else(seed::of_commit, Ok)?;
    eprintln!("order of the mutants: --seed={seed}");
    let shuffled = by_part.map(|mut ids| {
        // A change elsewhere does not change the order of the others.
        ids.sort_by_cached_key(|id| Sha256::digest(format!("{seed} {}", sites[*id].key())));
        ids
    });
    let longest = shuffled.iter().map(Vec::len).max().unwrap_or_default();
    let turns = (0..longest).flat_map(|turn| shuffled.iter().filter_map(move |ids| ids.get(turn)));
    Ok(turns.copied().collect())
}

fn try_all(
    sites: &[Site],
    order: &[usize],
    baseline: &Baseline,
    deadline: Option<Instant>,
) -> Result<Vec<(usize, Fate)>> {
    let next = Mutex::new(order.iter().copied());
    let tried: Mutex<Vec<(usize, Fate)>> = Mutex::new(Vec::new());
    let started = Instant::now();
    let lane = || -> Result<()> {
        while deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let Some(id) = next.lock().ok().and_then(|mut next| next.next()) else {
                break;
            };
            let fate = baseline.run(id, &sites[id])?;
            let Ok(mut tried) = tried.lock() else { break };
            tried.push((id, fate));
            if matches!(fate, Fate::Survived | Fate::Unreached) {
                eprintln!("{id} {fate:?}: {}", shown(&sites[id]));
            }
            if tried.len() % 50 == 0 {
                let seconds = started.elapsed().as_secs();
                eprintln!("{} of {} mutants, {seconds} s", tried.len(), order.len());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            match lane.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<(), anyhow::Error>(())
    })?;
    let mut tried = tried.into_inner().unwrap_or_default();
    tried.sort_unstable_by_key(|(id, _)| *id);
    Ok(tried)
}

/// Prints what survived. It fails for a survivor that is not in the list, and for an entry of the list without a mutant.
fn report(sites: &[Site], tried: &[(usize, Fate)]) -> Result<ExitCode> {
    let accepted = accepted::accepted()?;
    let mut unexpected = 0;
    for (id, fate) in tried {
        let site = &sites[*id];
        let is_accepted = accepted.contains(&site.key());
        let note = match fate {
            Fate::Survived => "",
            Fate::Unreached => " (no test runs it)",
            Fate::Caught if is_accepted => {
                println!(
                    "caught, yet in the list of accepted survivors: {}",
                    shown(site)
                );
                continue;
            }
            Fate::Caught | Fate::TimedOut => continue,
        };
        if !is_accepted {
            println!("survived{note}: {}", shown(site));
            println!("    {}", site.key());
            unexpected += 1;
        }
    }
    let stale = accepted::stale(&accepted, sites);
    for key in &stale {
        println!("accepted, but there is no such mutant: {key}");
    }
    for part in Part::ALL {
        println!("{}", counts(part, sites, tried));
    }
    Ok(match unexpected == 0 && stale.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn counts(part: Part, sites: &[Site], tried: &[(usize, Fate)]) -> String {
    let of_part = |(id, _): &&(usize, Fate)| Part::of(&sites[*id]) == Some(part);
    let fates: Vec<Fate> = tried
        .iter()
        .filter(of_part)
        .map(|(_, fate)| *fate)
        .collect();
    let count = |wanted: Fate| fates.iter().filter(|fate| **fate == wanted).count();
    format!(
        "{}: {} tried, {} caught by a failed test, {} by a timeout, {} survived, {} not reached",
        part.path(),
        fates.len(),
        count(Fate::Caught),
        count(Fate::TimedOut),
        count(Fate::Survived),
        count(Fate::Unreached)
    )
}

fn shown(site: &Site) -> String {
    format!(
        "{}:{}:{}: `{}` -> `{}`",
        site.file, site.line, site.column, site.original, site.mutated
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn options() -> Options {
        Options {
            sample: None,
            seed: Some(1),
            part: None,
            minutes: None,
            list: false,
            only: Vec::new(),
        }
    }

    #[test]
    fn every_part_has_mutants_and_no_two_have_one_key() {
        let sites = all_sites().unwrap();
        for part in Part::ALL {
            let count = sites.iter().filter(|it| Part::of(it) == Some(part)).count();
            assert!(count > 50, "{count} in {}", part.path());
        }
        assert!(sites.iter().all(|site| Part::of(site).is_some()));
        let keys: HashSet<String> = sites.iter().map(Site::key).collect();
        assert_eq!(keys.len(), sites.len());
    }

    #[test]
    fn the_order_is_that_of_the_seed_and_parts_take_turns() {
        let sites = all_sites().unwrap();
        let order = |options: &Options| super::order(&sites, options).unwrap();
        let one = order(&options());
        assert_eq!(one.len(), sites.len());
        assert_eq!(one, order(&options()));
        let seed = Some(2);
        assert_ne!(one, order(&Options { seed, ..options() }));
        let first: Vec<Part> = one[..4]
            .iter()
            .filter_map(|it| Part::of(&sites[*it]))
            .collect();
        assert_eq!(first, Part::ALL);
        let part = Some(Part::Gate);
        let gate = order(&Options { part, ..options() });
        let is_gate = |id: &usize| Part::of(&sites[*id]) == Some(Part::Gate);
        assert!(gate.iter().all(is_gate));
        let only = vec![7];
        assert_eq!(order(&Options { only, ..options() }), [7]);
    }
}
