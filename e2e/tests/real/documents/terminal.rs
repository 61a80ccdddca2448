//! Terminals of a reader: a home directory, a copy of the repository, and the programs of the page.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use e2e::{Binaries, Process};
use regex::Regex;

/// For one block. Its own waits are shorter.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// Directories of the repository that commands of pages name.
const DIRECTORIES: &[&str] = &["crates", "deploy", "docs", "examples", "scenarios"];

/// `up` takes a free port, because other tests run `up`, too, and ends if the test is killed.
const TIDEPOOL: &str = r#"#!/bin/sh
if [ "$1" = up ]; then shift; set -- up --port 0 --for 10m "$@"; fi
exec PROGRAM "$@"
"#;
/// The program is built already.
const CARGO: &str = r#"#!/bin/sh
if [ "$1 $2 $3" != "run --release --" ]; then echo "the test has no cargo $*" >&2; exit 97; fi
shift 3
exec tidepool "$@"
"#;
/// The environment of a terminal lasts from one block to the next.
const PROLOGUE: &str = r#". "$HOME/.environment"
trap 'export -p >"$HOME/.environment"' EXIT
set -e
"#;

pub(super) struct Terminals {
    // Stopped before their directory is removed.
    running: Vec<Process>,
    home: tempfile::TempDir,
}

/// How a command that was started shows what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Display {
    Lines,
    /// Its output is a terminal.
    Page,
}

/// As wide as the pages in the documentation, with place for everything.
const SIZE: &str = "stty rows 60 cols 112";
/// What `up` writes before and after a page.
const PAGE_BEGIN: &str = "\x1b[?2026h";
const PAGE_END: &str = "\x1b[?2026l";
/// A line of the log, on the page of a machine that has no time.
const SLOW: &str = " WARN control_plane::scheduler::observe::attempts: slow scheduling decision ";
/// Movements of the cursor and styles.
static CONTROLS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("\x1b\\[[0-9;?]*[A-Za-z]|\r").unwrap());

/// What a block printed, on either stream, as on a terminal.
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) code: Option<i32>,
}

impl Terminals {
    pub(super) fn open(files: &[(String, String)]) -> Self {
        let terminals = Self {
            running: Vec::new(),
            home: tempfile::tempdir().unwrap(),
        };
        let directory = terminals.directory();
        let programs = terminals.programs();
        let release = directory.join("target/release");
        for folder in [&programs, &release] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in DIRECTORIES {
            symlink(root.join(name), directory.join(name)).unwrap();
        }
        let tidepool = e2e::tidepool::binary().unwrap().display().to_string();
        let tidepool = TIDEPOOL.replace("PROGRAM", &tidepool);
        for (name, text) in [("tidepool", &tidepool[..]), ("cargo", CARGO)] {
            let path = programs.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        symlink(programs.join("tidepool"), release.join("tidepool")).unwrap();
        let kubectl = Binaries::find().unwrap().path("kubectl").unwrap();
        symlink(kubectl, programs.join("kubectl")).unwrap();
        std::fs::write(terminals.home.path().join(".environment"), "").unwrap();
        for (name, text) in files {
            std::fs::write(directory.join(name), text).unwrap();
        }
        terminals
    }

    /// The kubeconfig of a reader who has a cluster.
    pub(super) fn write_kubeconfig(&self, text: &str) {
        let folder = self.home.path().join(".kube");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config"), text).unwrap();
    }

    /// Runs a block to its end.
    pub(super) fn run(&self, commands: &str) -> Printed {
        let mut output = tempfile::tempfile().unwrap();
        let mut child = Command::new("/usr/bin/env")
            .args(self.shell(commands))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output.try_clone().unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let status: Option<ExitStatus> = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() < deadline => std::thread::sleep(POLL),
                None => break None,
            }
        };
        if status.is_none() {
            let group = format!("-{}", child.id());
            let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
            assert!(killed.unwrap().success(), "{commands} cannot be killed");
            child.wait().unwrap();
        }
        let mut text = String::new();
        std::io::Seek::rewind(&mut output).unwrap();
        std::io::Read::read_to_string(&mut output, &mut text).unwrap();
        Printed {
            text,
            code: status.and_then(|status| status.code()),
        }
    }

    /// Starts a command in another terminal. It ends with the page.
    pub(super) fn start(&mut self, command: &str, display: Display) {
        let name = format!("{}.log", self.running.len());
        let log = self.home.path().join(name);
        let command = match display {
            Display::Lines => command.to_owned(),
            Display::Page => {
                assert!(!command.contains('\''), "{command} is quoted");
                format!(
                    "script --quiet --flush --return --command '{SIZE} && exec {command}' /dev/null"
                )
            }
        };
        let arguments = self.shell(&format!("trap - EXIT\nexec {command}\n"));
        let program = Path::new("/usr/bin/env");
        let process = Process::start(program, &arguments, &log).unwrap();
        self.running.push(process);
    }

    /// Waits until the command that was started last has printed this.
    pub(super) fn await_print(&mut self, part: &str) {
        let process = self.running.last_mut().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !process.log().contains(part) {
            let has_ended = process.ended().unwrap().is_some();
            let is_late = Instant::now() > deadline;
            assert!(!has_ended && !is_late, "no `{part}`: {}", process.log());
            std::thread::sleep(POLL);
        }
    }

    /// What the command that was started last shows on its terminal.
    pub(super) fn page(&self) -> String {
        let log = self.running.last().unwrap().log();
        let (before, _) = log.rsplit_once(PAGE_END).unwrap_or_default();
        let (_, page) = before.rsplit_once(PAGE_BEGIN).unwrap_or_default();
        let page = CONTROLS.replace_all(page, "");
        let lines = page.lines().filter(|line| !line.contains(SLOW));
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// What the command that was started first has printed.
    pub(super) fn log(&self) -> String {
        self.running.first().map(Process::log).unwrap_or_default()
    }

    /// Ends the commands that were started, as a reader does. They run until now, and end without an error.
    pub(super) fn close(&mut self) {
        for process in &mut self.running {
            let ended = process.ended().unwrap();
            assert_eq!(ended, None, "{}", process.log());
        }
        for mut process in self.running.drain(..).rev() {
            let status = process.terminate().unwrap();
            assert!(status.success(), "{status}: {}", process.log());
        }
    }

    fn shell(&self, commands: &str) -> Vec<String> {
        let home = self.home.path().display();
        let path = format!("PATH={}:/usr/bin:/bin", self.programs().display());
        let script = format!("{PROLOGUE}{commands}");
        let directory = format!("--chdir={}", self.directory().display());
        let home = format!("HOME={home}");
        let [time, terminal, shell] = ["TZ=UTC", "TERM=xterm", "SHELL=/bin/sh"];
        let variables = [&home, &path, time, terminal, shell];
        let arguments = [&["-i", &directory][..], &variables, &["sh", "-c", &script]];
        arguments.concat().into_iter().map(str::to_owned).collect()
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("repository")
    }

    fn programs(&self) -> PathBuf {
        self.home.path().join("bin")
    }
}
