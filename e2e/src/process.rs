//! One server process that cannot outlive the test that started it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Runs `"$@"` and stops it when standard input ends. We hold the other end of that pipe and the
/// kernel closes it however we end, so a test that is killed leaves nothing behind. (The parent
/// death signal would not do: it follows the starting thread, and a test's thread ends early.)
const KEEPER: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null & child=$!
(read -r _ <&3; kill -KILL "$child") & keeper=$!
wait "$child"; status=$?
kill "$keeper"
exit "$status"
"#;

pub(crate) struct Process {
    keeper: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; both its outputs are appended to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            keeper,
            log: log.to_owned(),
        })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.keeper.try_wait()?)
    }

    /// The end of its log, for a message about what went wrong.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 12;
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Ends it now, as a crash would.
    pub(crate) fn stop(&mut self) {
        drop(self.keeper.stdin.take());
        // Fails only if it was waited for before: then it has ended.
        let _ = self.keeper.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper(directory: &Path) -> Process {
        let script = "echo $$ > pid; exec sleep 1000";
        let arguments = [
            "-c".to_owned(),
            format!("cd '{}'; {script}", directory.display()),
        ];
        let process =
            Process::start(Path::new("/bin/sh"), &arguments, &directory.join("log")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(directory.join("pid"))
            .unwrap_or_default()
            .is_empty()
        {
            assert!(Instant::now() < deadline, "the child did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }

    fn is_running(directory: &Path) -> bool {
        let pid = std::fs::read_to_string(directory.join("pid")).unwrap();
        Path::new("/proc").join(pid.trim()).exists()
    }

    #[test]
    fn dropping_it_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = sleeper(directory.path());
        assert!(process.ended().unwrap().is_none());
        assert!(is_running(directory.path()));
        drop(process);
        assert!(!is_running(directory.path()));
    }

    #[test]
    fn a_closed_pipe_ends_it_even_when_nobody_waits() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = sleeper(directory.path());
        // What the kernel does when we are killed.
        drop(process.keeper.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_running(directory.path()) {
            assert!(Instant::now() < deadline, "it outlived the pipe");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn its_own_end_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let arguments = ["-c".to_owned(), "echo no such flag; exit 3".to_owned()];
        let mut process = Process::start(Path::new("/bin/sh"), &arguments, &log).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let status = loop {
            if let Some(status) = process.ended().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "its end was not seen");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.last_words(), "no such flag");
    }
}
