//! Chaos: two replicas of the scheduler, the webhook and the gate on the real control plane, while network, processes and clocks
//! fail by a plan that is a pure function of the seed. A checker then reads etcd's history and the audit log.
//!
//! `cargo xtask chaos` builds all that this needs and runs it; docs/chaos.md has the details.

mod checker;
mod cluster;
mod conductor;
mod evidence;
mod journal;
mod plan;
mod planted;
mod proxy;
mod replicas;
mod settle;
mod table;
mod takeover;
mod token;
mod webhooks;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use e2e::{Api, ControlPlane};

use checker::{Evidence, Tally, Violation};
use conductor::Conductor;
use journal::Journal;
use plan::{Fault, plan};
use planted::PlantedFault;
use proxy::ChaosProxy;
use replicas::{LEASE_DURATION, Launch, Replicas};
use takeover::Takeover;
use webhooks::Webhooks;
use workload::Workload;

/// Faults end after this time, everything is checked, and the next round begins.
const ROUND: Duration = Duration::from_secs(120);
/// A round with a planted fault, which should be found soon.
const PLANTED_ROUND: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(
    about = "Runs two schedulers on a real control plane while everything fails, and checks them"
)]
struct Flags {
    /// Minutes with faults
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The faults are a function of it [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Print the plan and end
    #[arg(long)]
    plan: bool,
    /// A scheduler with this planted fault: a rule that it breaks must be violated
    #[arg(long, value_name = "NAME")]
    planted: Option<PlantedFault>,
    /// The scheduler's program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Keep the logs
    #[arg(long)]
    keep_logs: bool,
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is what this program is for"
)]
fn main() -> ExitCode {
    let flags = Flags::parse();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = flags.seed.unwrap_or(clock.map_or(0, |it| it.as_secs()));
    if flags.plan {
        for (round, faults) in rounds(&flags, seed).enumerate() {
            println!("{}", table::faults(round, &faults));
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "seed {seed}: `cargo xtask chaos --minutes {} --seed {seed}` repeats these faults",
        flags.minutes
    );
    match run(&flags, seed) {
        Ok(result) => {
            println!("{}", table::table(&result));
            let is_good = match flags.planted {
                Some(fault) if fault.is_caught(&result.violations) => {
                    println!("caught: {} after {:.0?}", fault.name, result.took);
                    true
                }
                Some(fault) => {
                    println!("NOT caught: {} within {:.0?}", fault.name, result.took);
                    false
                }
                None => result.violations.is_empty(),
            };
            match is_good {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The plans of all rounds.
fn rounds(flags: &Flags, seed: u64) -> impl Iterator<Item = Vec<Fault>> {
    let longest = if flags.planted.is_some() {
        PLANTED_ROUND
    } else {
        ROUND
    };
    let mut left = Duration::from_secs_f64((flags.minutes * 60.0).clamp(1.0, 1e6));
    let lengths = std::iter::from_fn(move || {
        let length = left.min(longest);
        left -= length;
        (!length.is_zero()).then_some(length)
    });
    (0..)
        .zip(lengths)
        .map(move |(round, length)| plan(seed, round, length))
}

/// What a run found, for the table.
struct RunResult {
    planned: Vec<Fault>,
    records: journal::Records,
    changes: workload::Changes,
    tally: Tally,
    violations: Vec<Violation>,
    took: Duration,
}

fn run(flags: &Flags, seed: u64) -> Result<RunResult> {
    let mut control_plane = cluster::start()?;
    if flags.keep_logs {
        control_plane.keep_logs();
    }
    let (token, expired) = cluster::tokens(&control_plane)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let journal = Arc::new(Journal::new());
    let admin = control_plane.admin();
    let proxy = runtime.block_on(ChaosProxy::start(
        &journal,
        &admin.server,
        &admin.certificate_authority_pem,
        [expired.clone(), expired],
    ))?;
    let program = match &flags.program {
        Some(program) => program.clone(),
        None => e2e::tidepool::binary()?,
    };
    let shim = replicas::build_shim(control_plane.logs())?;
    // The program with planted faults is a scheduler only.
    let webhooks = match flags.planted {
        Some(_) => None,
        None => Some(Webhooks::start(&control_plane, &program, &shim)?),
    };
    let launch = Launch {
        program: &program,
        directory: control_plane.logs(),
        token: &token,
        planted: flags.planted.map(|fault| fault.name),
        shim: &shim,
    };
    let replicas = Replicas::start(&launch, &proxy)?;
    let control_plane = Mutex::new(control_plane);
    let stage = Conductor {
        journal: &journal,
        proxy: &proxy,
        replicas: &replicas,
        control_plane: &control_plane,
        takeover: &Takeover::default(),
        webhooks: webhooks.as_ref(),
        api: &Api::new(&admin)?,
    };
    let mut workload = Workload::new(&admin, seed)?;
    let limit = match flags.planted {
        Some(_) => settle::PLANTED_LIMIT,
        None => settle::LIMIT,
    };
    let result = play(&stage, &mut workload, rounds(flags, seed), limit);
    let stopped = replicas.stop();
    let mut control_plane = control_plane
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let is_clean = matches!(&result, Ok(result) if result.violations.is_empty());
    if !is_clean && flags.planted.is_none() {
        control_plane.keep_logs();
    }
    // The proxy's tasks are of no use any more.
    runtime.shutdown_background();
    stopped.and(result)
}

fn play(
    stage: &Conductor<'_>,
    workload: &mut Workload,
    rounds: impl Iterator<Item = Vec<Fault>>,
    limit: Duration,
) -> Result<RunResult> {
    let begun = Instant::now();
    let mut planned = Vec::new();
    let mut last = (Tally::default(), Vec::new());
    for (round, faults) in (0..).zip(rounds) {
        let stopped = AtomicBool::new(false);
        let conducted = std::thread::scope(|scope| {
            let busy = scope.spawn(|| workload.run(&stopped, stage.takeover));
            let conducted = stage.run(&faults);
            stopped.store(true, Ordering::Release);
            busy.join().map_err(|_| anyhow!("the workload panicked"))?;
            conducted
        });
        conducted?;
        planned.extend(faults);
        let mut violations = settle::settle(workload, round, limit)?;
        violations.extend(stage.webhooks.map_or(Vec::new(), |it| it.settle(stage.api)));
        let control_plane = stage.control_plane.lock();
        let control_plane = control_plane.unwrap_or_else(PoisonError::into_inner);
        let (tally, found) = examine(&control_plane, stage.journal, workload)?;
        violations.extend(found);
        violations.extend(panics(&control_plane)?);
        last = (tally, violations);
        if !last.1.is_empty() {
            break;
        }
    }
    Ok(RunResult {
        planned,
        records: stage.journal.records(),
        changes: workload.changes,
        tally: last.0,
        violations: last.1,
        took: begun.elapsed(),
    })
}

fn examine(
    control_plane: &ControlPlane,
    journal: &Journal,
    workload: &Workload,
) -> Result<(Tally, Vec<Violation>)> {
    let history = evidence::history(&control_plane.history(1)?)?;
    let audit = evidence::audited(&control_plane.audit_log())?;
    let records = journal.records();
    Ok(checker::check(&Evidence {
        history: &history,
        audit: &audit,
        records: &records,
        deleted: &workload.deleted,
        lease_duration: u64::try_from(LEASE_DURATION.as_micros()).unwrap_or(u64::MAX),
    }))
}

/// How the names of logs begin.
const PROCESSES: [&str; 4] = ["a-", "b-", "webhook-", "gate-"];

/// No process may panic, whatever happens around it.
fn panics(control_plane: &ControlPlane) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(control_plane.logs())? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|it| it == "log");
        let name = path
            .file_stem()
            .context("a log has a name")?
            .to_string_lossy();
        if !is_log || !PROCESSES.iter().any(|it| name.starts_with(it)) {
            continue;
        }
        let log = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        let lines = log.lines().filter(|line| line.contains("panicked at"));
        found.extend(lines.map(|line| Violation {
            rule: "panic",
            text: format!("{name}: {line}"),
        }));
    }
    Ok(found)
}
