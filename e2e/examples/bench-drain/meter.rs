//! What processes have used, as the kernel counts it, and what the API server was asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of `/proc/ID/stat`: 100 a second on every Linux there is.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process, user and system, threads that have ended included.
pub(crate) fn cpu(id: u32) -> Result<Duration> {
    let text = read(&process(id).join("stat"))?;
    // The name is in parentheses and may contain anything; user and system time are fields 14 and 15.
    let (_, rest) = text.rsplit_once(')').context("no name in stat")?;
    let fields = rest.split_whitespace().skip(11).take(2);
    let ticks: Vec<u32> = fields.map(str::parse).collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum::<u32>())
}

/// CPU time of a process' thread, by its name; `None` if there is no such thread.
pub(crate) fn thread_cpu(id: u32, name: &str) -> Result<Option<Duration>> {
    for task in fs::read_dir(process(id).join("task"))? {
        let path = task?.path();
        if read(&path.join("comm"))?.trim() != name {
            continue;
        }
        let schedstat = read(&path.join("schedstat"))?;
        let nanos = schedstat.split(' ').next().unwrap_or_default();
        return Ok(Some(Duration::from_nanos(nanos.parse()?)));
    }
    Ok(None)
}

/// The most memory a process has had, in MiB.
pub(crate) fn peak_rss_mib(id: u32) -> Result<f64> {
    let text = read(&process(id).join("status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: f64 = kib.context("no VmHWM in status")?.parse()?;
    Ok(kib / 1024.0)
}

/// A kube-apiserver that a control plane of ours has started.
pub(crate) fn running_apiserver() -> Result<Option<u32>> {
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // It may end while we look.
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        let mut words = arguments.split('\0');
        let program = Path::new(words.next().unwrap_or_default()).file_name();
        if program.is_some_and(|name| name == "kube-apiserver")
            && words.any(|word| word.contains("tidepool-e2e-"))
        {
            let id = path.file_name().and_then(|name| name.to_str());
            return Ok(id.and_then(|id| id.parse().ok()));
        }
    }
    Ok(None)
}

/// Requests by verb, from the API server's own metrics.
pub(crate) fn requests(metrics: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in metrics.lines() {
        let Some(line) = line.strip_prefix("apiserver_request_total{") else {
            continue;
        };
        let verb = line
            .split_once("verb=\"")
            .and_then(|(_, rest)| rest.split('"').next());
        let count = line
            .rsplit(' ')
            .next()
            .and_then(|count| count.parse::<f64>().ok());
        if let (Some(verb), Some(count)) = (verb, count) {
            *all.entry(verb.to_owned()).or_default() += count as u64;
        }
    }
    all
}

fn process(id: u32) -> PathBuf {
    Path::new("/proc").join(id.to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
