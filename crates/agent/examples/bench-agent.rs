//! What sampling costs: CPU time and memory with many pods, as one JSON object.
//!
//! It creates the cgroups of 200 pods below a group of its own, samples them every second, and removes them. It needs root.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its result"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use agent::collect::{Collector, Paths};
use engine::model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const PODS: usize = 200;
/// A container and a sandbox.
const CONTAINERS_PER_POD: usize = 2;
const SECONDS: u32 = 30;
const PERIOD: Duration = Duration::from_secs(1);
/// Samples in which the details of every pod are read once, as in the agent's defaults.
const ROUNDS_OF_DETAILS: u64 = 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let groups = Groups::create()?;
    let paths = Paths {
        cgroup_root: groups.name.clone(),
        ..Paths::default()
    };
    let mut collector = Collector::new(&paths, ROUNDS_OF_DETAILS)?;
    let started = Instant::now();
    let mut durations = Vec::new();
    // The first sample reads all details: it is not part of the measurement.
    collector.sample(Timestamp(0));
    let cpu_before = cpu_time();
    for second in 1..=SECONDS {
        std::thread::sleep((PERIOD * second).saturating_sub(started.elapsed()));
        let began = Instant::now();
        let sample = collector.sample(Timestamp(i64::try_from(started.elapsed().as_nanos())?));
        durations.push(began.elapsed());
        let containers: usize = sample.pods.values().map(|pod| pod.containers.len()).sum();
        let found = (sample.pods.len(), containers);
        if found != (PODS, PODS * CONTAINERS_PER_POD) {
            return Err(format!("a sample has {found:?} pods and containers").into());
        }
    }
    let cpu = cpu_time() - cpu_before;
    durations.sort();
    println!(
        r#"{{"pods":{PODS},"containers":{},"cgroups":"{:?}","cpu_percent":{:.3},"sample_p50_ms":{:.2},"sample_max_ms":{:.2},"resident_mib":{:.1}}}"#,
        PODS * CONTAINERS_PER_POD,
        collector.hierarchies().version(),
        100.0 * cpu.as_secs_f64() / f64::from(SECONDS),
        durations[durations.len() / 2].as_secs_f64() * 1e3,
        durations[durations.len() - 1].as_secs_f64() * 1e3,
        resident_mib()?,
    );
    Ok(())
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn resident_mib() -> Result<f64, Box<dyn Error>> {
    let status = fs::read("/proc/self/status")?;
    let resident = agent::parse::meminfo(&status, "VmRSS").ok_or("no VmRSS")?;
    Ok(resident.0 as f64 / f64::from(1 << 20))
}

/// The groups of the pods in every hierarchy. Dropping it removes them.
struct Groups {
    name: PathBuf,
    hierarchies: Vec<PathBuf>,
}

impl Groups {
    fn create() -> io::Result<Self> {
        let mount = Path::new("/sys/fs/cgroup");
        let is_v2 = mount.join("cgroup.controllers").exists();
        let names = ["cpu", "cpuacct", "cpuset", "memory", "unified"];
        let hierarchies = match is_v2 {
            true => vec![mount.to_owned()],
            false => names.map(|name| mount.join(name)).to_vec(),
        };
        let groups = Self {
            name: format!("tidepool-bench-{}", std::process::id()).into(),
            hierarchies: hierarchies.into_iter().filter(|it| it.is_dir()).collect(),
        };
        for hierarchy in &groups.hierarchies {
            let kubepods = hierarchy.join(&groups.name).join("kubepods");
            for pod in 0..PODS {
                let class = ["", "burstable", "besteffort"][pod % 3];
                let name = format!("pod{pod:08x}-0000-4000-8000-000000000000");
                for container in 0..CONTAINERS_PER_POD {
                    let id = format!("{:064x}", pod * CONTAINERS_PER_POD + container);
                    fs::create_dir_all(kubepods.join(class).join(&name).join(id))?;
                }
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            if let Err(error) = remove(&hierarchy.join(&self.name)) {
                eprintln!("cannot remove the groups: {error}");
            }
        }
    }
}

fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
