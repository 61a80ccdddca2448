//! The two replicas of the scheduler: each is a process that is killed, stopped and started again, with a clock that jumps.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::{Kubeconfig, Process};

use crate::proxy::{ChaosProxy, Link};

/// The duration of the Lease: short, so that many take over within a minute.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(6);
pub(crate) const LEASE_NAMESPACE: &str = "tidepool-system";
pub(crate) const LEASE_NAME: &str = "tidepool-scheduler";
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  resourceNamespace: tidepool-system
  resourceName: tidepool-scheduler
  leaseDuration: 6s
  renewDeadline: 4s
  retryPeriod: 1s
profiles:
- schedulerName: tidepool
  plugins:
    multiPoint:
      enabled: [{ name: QoSAwareNodeResourcesFit, weight: 4 }, { name: QoSAwareNodeResourcesBalancedAllocation, weight: 1 }]
    score: { disabled: [{ name: NodeResourcesFit }, { name: NodeResourcesBalancedAllocation }] }
";
const CLOCK: &str = include_str!("clock.c");
/// Read by schedulers that were built with planted faults.
const PLANTED: &str = "TIDEPOOL_PLANTED_FAULT";
/// How often a replica is looked at, and how long it stays down after it ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const RESTART: Duration = Duration::from_millis(500);

pub(crate) enum Order {
    /// Kills it, and starts it again after this time.
    Kill(Duration),
    /// Stops it for this time by SIGSTOP.
    Stop(Duration),
    /// Sets its wall clock off by so many seconds.
    Jump(i64),
}

/// Both replicas, each watched over by a thread. They end when this is dropped.
pub(crate) struct Replicas {
    orders: Vec<Sender<Order>>,
    keepers: Vec<JoinHandle<Result<()>>>,
}

/// What to start.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) directory: &'a Path,
    pub(crate) token: &'a str,
    pub(crate) planted: Option<&'a str>,
    /// The library that lets clocks jump.
    pub(crate) shim: &'a Path,
}

impl Replicas {
    pub(crate) fn start(launch: &Launch<'_>, proxy: &ChaosProxy) -> Result<Self> {
        let directory = launch.directory;
        let config = directory.join("chaos.yaml");
        fs::write(&config, CONFIGURATION)?;
        let shim = launch.shim;
        let (mut orders, mut keepers) = (Vec::new(), Vec::new());
        for (replica, link) in proxy.links.iter().enumerate() {
            let name = ["a", "b"][replica];
            let kubeconfig = directory.join(format!("{name}.kubeconfig"));
            let user = Kubeconfig {
                server: format!("https://{}", proxy.addresses[replica]),
                certificate_authority_pem: proxy.authority_pem.clone(),
                user: LEASE_NAME.to_owned(),
                token: launch.token.to_owned(),
            };
            fs::write(&kubeconfig, user.to_yaml())?;
            let clock = directory.join(format!("{name}.clock"));
            fs::write(&clock, 0_i64.to_ne_bytes())?;
            let mut arguments = vec![
                format!("LD_PRELOAD={}", shim.display()),
                format!("CHAOS_CLOCK={}", clock.display()),
            ];
            arguments.extend(launch.planted.map(|fault| format!("{PLANTED}={fault}")));
            arguments.extend([
                launch.program.display().to_string(),
                "scheduler".to_owned(),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--config={}", config.display()),
            ]);
            let keeper = Keeper {
                name,
                link: link.clone(),
                arguments,
                directory: directory.to_owned(),
                clock,
                run: 0,
            };
            let (send, receive) = channel();
            orders.push(send);
            keepers.push(std::thread::spawn(move || keeper.watch_over(&receive)));
        }
        Ok(Self { orders, keepers })
    }

    pub(crate) fn order(&self, replica: usize, order: Order) -> Result<()> {
        let sent = self.orders[replica].send(order);
        sent.map_err(|_| anyhow::anyhow!("the keeper of replica {replica} has ended"))
    }

    /// Ends both, and reports what went wrong with starting them.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.orders.clear();
        for keeper in self.keepers.drain(..) {
            match keeper.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a keeper panicked"),
            }
        }
        Ok(())
    }
}

/// Watches over one replica, as a kubelet does.
struct Keeper {
    name: &'static str,
    link: Arc<Link>,
    arguments: Vec<String>,
    directory: PathBuf,
    clock: PathBuf,
    run: u32,
}

impl Keeper {
    fn watch_over(mut self, orders: &Receiver<Order>) -> Result<()> {
        let mut process = self.launch()?;
        loop {
            match orders.recv_timeout(LOOK_EVERY) {
                Ok(Order::Kill(down)) => {
                    process.stop();
                    std::thread::sleep(down);
                    process = self.launch()?;
                }
                Ok(Order::Stop(time)) => {
                    signal(process.id(), "STOP")?;
                    std::thread::sleep(time);
                    signal(process.id(), "CONT")?;
                }
                Ok(Order::Jump(seconds)) => {
                    let file = fs::File::options().write(true).open(&self.clock)?;
                    file.write_all_at(&seconds.to_ne_bytes(), 0)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            // It ends by itself when it loses the Lease.
            if process.ended()?.is_some() {
                std::thread::sleep(RESTART);
                process = self.launch()?;
            }
        }
    }

    fn launch(&mut self) -> Result<Process> {
        self.run += 1;
        self.link.begin_run(self.run);
        let log = self
            .directory
            .join(format!("{}-{}.log", self.name, self.run));
        Process::start(Path::new("env"), &self.arguments, &log)
    }
}

/// Compiles the library that lets a clock jump. Rust's linker on this system is a C compiler, so there is one.
pub(crate) fn build_shim(directory: &Path) -> Result<PathBuf> {
    let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
    fs::write(&source, CLOCK)?;
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]);
    let status = compile.arg(&library).arg(&source).status();
    let status = status.context("cannot start `cc`, which builds the clock that jumps")?;
    if !status.success() {
        bail!("`cc` cannot compile clock.c: {status}");
    }
    Ok(library)
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(id: u32, name: &str) -> Result<()> {
    // A process that has ended in the meantime is no failure.
    Command::new("kill")
        .args([format!("-{name}"), id.to_string()])
        .stderr(std::process::Stdio::null())
        .status()
        .context("cannot start `kill`")?;
    Ok(())
}
