//! Terminals of a reader: a home directory, a copy of the repository, and the programs of the page.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use e2e::{Binaries, Process};

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
    pub(super) fn start(&mut self, command: &str) {
        let name = format!("{}.log", self.running.len());
        let log = self.home.path().join(name);
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

    /// Commands that were started run until the end of the page.
    pub(super) fn assert_running(&mut self) {
        for process in &mut self.running {
            let ended = process.ended().unwrap();
            assert_eq!(ended, None, "{}", process.log());
        }
    }

    fn shell(&self, commands: &str) -> Vec<String> {
        let home = self.home.path().display();
        let path = format!("PATH={}:/usr/bin:/bin", self.programs().display());
        let script = format!("{PROLOGUE}{commands}");
        let directory = format!("--chdir={}", self.directory().display());
        let arguments = ["-i", &directory, &path, "TZ=UTC", "sh", "-c", &script];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        arguments.insert(2, format!("HOME={home}"));
        arguments
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("repository")
    }

    fn programs(&self) -> PathBuf {
        self.home.path().join("bin")
    }
}
