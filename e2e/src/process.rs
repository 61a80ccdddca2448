//! One server process that ends with the test that started it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs `"$@"`, writes its id to the file `$0` and stops it when standard input ends. We hold the other end of that pipe and the
/// kernel closes it however we end, so a test that is killed leaves nothing behind. (The parent
/// death signal would not do: it follows the starting thread, and a test's thread ends early.)
const KEEPER: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null & child=$!
echo "$child" >"$0"
(read -r _ <&3; kill -KILL "$child") & keeper=$!
wait "$child"; status=$?
kill "$keeper"
exit "$status"
"#;

/// How long a shell may take to start a program.
const STARTUP: Duration = Duration::from_secs(30);
/// How long a program may take to end in good order.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// A running program. Dropping it kills it.
pub struct Process {
    keeper: Child,
    /// What the keeper listens to. Not in `keeper`, where waiting for it would close it.
    pipe: Option<ChildStdin>,
    id: u32,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; both its outputs are appended to `log`.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let id_file = tempfile::NamedTempFile::new().context("no file for a process id")?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .arg(id_file.path())
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut process = Self {
            pipe: keeper.stdin.take(),
            keeper,
            id: 0,
            log: log.to_owned(),
        };
        let deadline = Instant::now() + STARTUP;
        loop {
            let text = std::fs::read_to_string(id_file.path())?;
            if let Some(line) = text.strip_suffix('\n') {
                process.id = line.parse()?;
                return Ok(process);
            }
            if Instant::now() > deadline {
                bail!("no shell started {} in time", program.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The id of the program itself.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Asks it to end, as a cluster would, and waits until it has.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let status = Command::new("kill").arg(self.id.to_string()).status()?;
        if !status.success() {
            bail!("process {} cannot be terminated: {status}", self.id);
        }
        let deadline = Instant::now() + SHUTDOWN;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("process {} did not end after SIGTERM", self.id);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.keeper.try_wait()?)
    }

    /// The lines of its log so far. One that is being written would give half an address.
    pub fn log(&self) -> String {
        let mut bytes = std::fs::read(&self.log).unwrap_or_default();
        let whole = bytes.iter().rposition(|&byte| byte == b'\n');
        bytes.truncate(whole.map_or(0, |last| last + 1));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of its log, for a message about what went wrong.
    pub fn last_words(&self) -> String {
        const LINES: usize = 12;
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Ends it now, as a crash would.
    pub fn stop(&mut self) {
        drop(self.pipe.take());
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
    fn drop_ends_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = sleeper(directory.path());
        assert!(process.ended().unwrap().is_none());
        assert!(is_running(directory.path()));
        drop(process);
        assert!(!is_running(directory.path()));
    }

    #[test]
    fn a_terminated_process_has_time_to_stop() {
        let directory = tempfile::tempdir().unwrap();
        let script = "trap 'sleep 1; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
        let arguments = ["-c".to_owned(), script.to_owned()];
        let log = directory.path().join("log");
        let mut process = Process::start(Path::new("/bin/sh"), &arguments, &log).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while process.log().is_empty() {
            assert!(Instant::now() < deadline, "it did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(process.terminate().unwrap().code(), Some(7));
    }

    #[test]
    fn a_closed_pipe_ends_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = sleeper(directory.path());
        // What the kernel does when we are killed.
        drop(process.pipe.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_running(directory.path()) {
            assert!(Instant::now() < deadline, "it outlived the pipe");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_ended_process_is_noticed() {
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
