//! Runs every behaviour on both servers, compares, and reports.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::normalise::normalise;
use e2e::transcript::{Delta, Transcript, differences};
use jiff::Timestamp;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use crate::behaviours;
use crate::differences::{DIFFERENCES, Difference};
use crate::servers::{Server, Servers};
use crate::session::Session;

/// One behaviour: what section of the protocol it shows, and how.
#[derive(Clone, Copy)]
pub(crate) struct Behaviour {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&mut Session),
}

/// Behaviours mostly wait, so more of them run at once than there are cores.
const THREADS: usize = 6;
/// A broken server differs everywhere; the first few places are enough to start with.
const SHOWN: usize = 25;

pub(crate) fn run() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let behaviours = behaviours::all();
    if arguments.list {
        let trials = behaviours
            .into_iter()
            .map(|behaviour| trial(behaviour, || Ok(())));
        return libtest_mimic::run(&arguments, trials.collect()).exit_code();
    }
    let mut servers = match Servers::start() {
        Ok(servers) => Arc::new(servers),
        Err(error) => {
            println!("failures:\n\nconformance: the servers did not start: {error:#}\n");
            println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
            return ExitCode::FAILURE;
        }
    };
    let compared = Arc::new(AtomicUsize::new(0));
    let trials = behaviours.into_iter().map(|behaviour| {
        let (servers, compared) = (Arc::clone(&servers), Arc::clone(&compared));
        trial(behaviour, move || {
            compared.fetch_add(1, Ordering::Relaxed);
            check(&behaviour, &servers)
        })
    });
    let documented = Trial::test("the documents list the same differences", documented);
    let conclusion = libtest_mimic::run(&arguments, trials.chain([documented]).collect());
    println!(
        "conformance: {} behaviours compared, {} differences listed",
        compared.load(Ordering::Relaxed),
        DIFFERENCES.len()
    );
    if let Some(servers) = Arc::get_mut(&mut servers)
        && conclusion.has_failed()
    {
        servers.keep_logs();
    }
    conclusion.exit_code()
}

fn trial(
    behaviour: Behaviour,
    check: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(format!("{} {}", behaviour.id, behaviour.title), check)
}

fn documented() -> Result<(), Failed> {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/embedded-cluster.md");
    let text =
        std::fs::read_to_string(PATH).map_err(|error| format!("cannot read {PATH}: {error}"))?;
    let table = crate::differences::table();
    if text.contains(&table) {
        return Ok(());
    }
    Err(Failed::from(format!(
        "docs/embedded-cluster.md must have this table:\n{table}"
    )))
}

/// Every difference must be listed, and everything listed must be seen.
fn check(behaviour: &Behaviour, servers: &Servers) -> Result<(), Failed> {
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| record(behaviour, &servers.real));
        let right = scope.spawn(|| record(behaviour, &servers.other));
        (left.join(), right.join())
    });
    let (left, right) = (
        left.expect("panics are caught inside")?,
        right.expect("panics are caught inside")?,
    );
    let deltas = differences(&left, &right);
    let listed: Vec<&Difference> = DIFFERENCES
        .iter()
        .filter(|difference| {
            difference.behaviours.contains(&behaviour.id) && servers.other_is_embedded
        })
        .collect();
    let mut report = String::new();
    let unlisted: Vec<&Delta> = deltas
        .iter()
        .filter(|delta| !listed.iter().any(|difference| difference.covers(delta)))
        .collect();
    // A difference that many answers have is reported once.
    let mut kinds: Vec<(&Delta, usize)> = Vec::new();
    for delta in unlisted {
        let same = |other: &Delta| {
            (&other.path, &other.left, &other.right) == (&delta.path, &delta.left, &delta.right)
        };
        match kinds.iter_mut().find(|(other, _)| same(other)) {
            Some((_, times)) => *times += 1,
            None => kinds.push((delta, 1)),
        }
    }
    for (delta, times) in kinds.iter().take(SHOWN) {
        describe(delta, &left, servers, &mut report);
        if *times > 1 {
            let _ = writeln!(report, "    and in {} more answers", times - 1);
        }
    }
    if kinds.len() > SHOWN {
        let _ = writeln!(report, "... and {} more places", kinds.len() - SHOWN);
    }
    for difference in listed {
        if !deltas.iter().any(|delta| difference.covers(delta)) {
            let _ = writeln!(
                report,
                "listed as a difference but not seen, so the list must lose it: {}",
                difference.what
            );
        }
    }
    if report.is_empty() {
        return Ok(());
    }
    Err(Failed::from(format!(
        "{} {}\n{report}",
        behaviour.id, behaviour.title
    )))
}

/// Runs the behaviour on one server; a panic in it is a failure that names the server.
fn record(behaviour: &Behaviour, server: &Server) -> Result<Transcript, Failed> {
    let mut session = Session::new(server, behaviour.id);
    let outcome = catch_unwind(AssertUnwindSafe(|| (behaviour.run)(&mut session)));
    if let Err(panic) = outcome {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        return Err(Failed::from(format!(
            "{} on the {} server: {message}",
            behaviour.id, server.name
        )));
    }
    let transcript = normalise(&session.into_transcript(), Timestamp::now());
    save(behaviour, server, &transcript)?;
    Ok(transcript)
}

/// `CONFORMANCE_TRANSCRIPTS=DIR` keeps what was compared, to look up the real answers.
fn save(behaviour: &Behaviour, server: &Server, transcript: &Transcript) -> Result<(), Failed> {
    let Some(directory) = std::env::var_os("CONFORMANCE_TRANSCRIPTS") else {
        return Ok(());
    };
    let mut text = String::new();
    for step in &transcript.steps {
        let _ = writeln!(text, "> {}", step.request);
        if !step.sent.is_null() {
            let _ = writeln!(text, "  {}", step.sent);
        }
        let _ = writeln!(text, "< {}\n", step.answer);
    }
    let path =
        std::path::Path::new(&directory).join(format!("{}.{}.txt", behaviour.id, server.name));
    std::fs::write(&path, text)
        .map_err(|error| Failed::from(format!("cannot write {}: {error}", path.display())))
}

fn describe(delta: &Delta, left: &Transcript, servers: &Servers, report: &mut String) {
    let sent = left
        .steps
        .get(delta.step)
        .map(|step| &step.sent)
        .filter(|sent| !sent.is_null());
    let _ = writeln!(report, "\n* {}", delta.request);
    if let Some(sent) = sent {
        let _ = writeln!(report, "  sent {}", shorten(&sent.to_string()));
    }
    let show = |side: &Option<Value>| {
        side.as_ref()
            .map_or("(absent)".to_owned(), |v| shorten(&v.to_string()))
    };
    let _ = writeln!(report, "  at {}", delta.path);
    let _ = writeln!(
        report,
        "    {:>8}: {}",
        servers.real.name,
        show(&delta.left)
    );
    let _ = writeln!(
        report,
        "    {:>8}: {}",
        servers.other.name,
        show(&delta.right)
    );
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 700;
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = (0..=LONGEST)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}...", &text[..end])
}
