//! Carries out a plan: each lane on a thread of its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use e2e::{Api, ControlPlane};

use crate::journal::Journal;
use crate::plan::{Dice, Fault, FaultKind, Lane, Victim};
use crate::proxy::{ChaosProxy, EventHold, Link, RequestRule, WatchEnd};
use crate::replicas::{Order, Replicas, signal};
use crate::takeover::{Phase, Takeover};
use crate::webhooks::Webhooks;

/// A new pod leaves its first backoff, and events reach the schedulers.
const PHASE: Duration = Duration::from_millis(1_500);
/// From the death of the leader to the first decisions of the next one, and some time for these.
const TAKEOVER: Duration = Duration::from_secs(12);
/// Seconds by which a clock of the webhook or the gate jumps: some minutes, some hours, and more than a certificate lives.
const REVIEW_JUMPS: [i64; 6] = [-35_000_000, -7_200, -400, 400, 7_200, 35_000_000];

pub(crate) struct Conductor<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) proxy: &'a ChaosProxy,
    pub(crate) replicas: &'a Replicas,
    pub(crate) control_plane: &'a Mutex<ControlPlane>,
    pub(crate) takeover: &'a Takeover,
    /// None for a run with a planted fault.
    pub(crate) webhooks: Option<&'a Webhooks>,
    /// Without a proxy.
    pub(crate) api: &'a Api,
}

impl Conductor<'_> {
    /// Returns when the last fault has ended.
    pub(crate) fn run(&self, plan: &[Fault]) -> Result<()> {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let lanes = Lane::ALL.map(|lane| {
                let of_lane = plan.iter().filter(|fault| fault.kind.lane() == lane);
                let faults: Vec<Fault> = of_lane.copied().collect();
                scope.spawn(move || match lane {
                    Lane::Network => {
                        self.network(&faults, begun);
                        Ok(())
                    }
                    Lane::Schedulers => self.schedulers(&faults, begun),
                    Lane::Servers => self.servers(&faults, begun),
                    Lane::Webhooks => self.webhooks(&faults, begun),
                })
            });
            for lane in lanes {
                lane.join().map_err(|_| anyhow!("a lane panicked"))??;
            }
            Ok(())
        })
    }

    fn network(&self, faults: &[Fault], begun: Instant) {
        let mut open: Vec<(Instant, Fault, Vec<&Link>)> = Vec::new();
        let mut coming = faults.iter().peekable();
        loop {
            let next = coming.peek().map(|fault| begun + fault.at);
            open.sort_by_key(|(end, ..)| std::cmp::Reverse(*end));
            let first_end = open.last().map(|(end, ..)| *end);
            let Some(time) = next.into_iter().chain(first_end).min() else {
                return;
            };
            sleep_until(time);
            if first_end == Some(time) {
                let Some((_, fault, links)) = open.pop() else {
                    continue;
                };
                links.iter().for_each(|link| end(link, &fault));
                continue;
            }
            let Some(fault) = coming.next() else { continue };
            let links = self.links(fault.victim);
            links.iter().for_each(|link| begin(link, fault));
            open.push((Instant::now() + fault.lasts, *fault, links));
        }
    }

    fn schedulers(&self, faults: &[Fault], begun: Instant) -> Result<()> {
        for fault in faults {
            sleep_until(begun + fault.at);
            let mut dice = Dice::new(fault.dice);
            let victims = self.victims(fault.victim);
            match fault.kind {
                FaultKind::LaggingTakeover => self.lagging_takeover(fault)?,
                kind => {
                    let seconds = dice.pick(&[-3_600, -300, -60, 60, 300, 3_600]);
                    for replica in victims {
                        let order = match kind {
                            FaultKind::KillScheduler => Order::Kill(fault.lasts),
                            FaultKind::StopScheduler => Order::Stop(fault.lasts),
                            _ => Order::Jump(seconds),
                        };
                        self.replicas.order(replica, order)?;
                        self.journal.hit(kind);
                    }
                }
            }
            sleep_until(begun + fault.end());
        }
        Ok(())
    }

    /// The leader goes while the standby has not heard of its last binds.
    fn lagging_takeover(&self, fault: &Fault) -> Result<()> {
        let end = Instant::now() + fault.lasts;
        let done = self.prepare_takeover(end);
        sleep_until(end);
        self.takeover.order(Phase::Random);
        done
    }

    fn prepare_takeover(&self, end: Instant) -> Result<()> {
        let deadline = end - TAKEOVER;
        if !self.takeover.reach(Phase::Backlog, deadline) {
            return Ok(());
        }
        std::thread::sleep(PHASE);
        let [leader] = self.victims(Victim::Leader)[..] else {
            return Ok(());
        };
        self.proxy.links[1 - leader].hold_events(EventHold {
            kind: FaultKind::LaggingTakeover,
            until: end,
            each: None,
        });
        for phase in [Phase::Newcomers, Phase::Lending] {
            if !self.takeover.reach(phase, deadline) {
                return Ok(());
            }
            std::thread::sleep(PHASE);
        }
        let down = end.saturating_duration_since(Instant::now());
        self.replicas.order(leader, Order::Kill(down))
    }

    fn servers(&self, faults: &[Fault], begun: Instant) -> Result<()> {
        for fault in faults {
            sleep_until(begun + fault.at);
            let control_plane = self.control_plane.lock();
            let mut control_plane = control_plane.unwrap_or_else(PoisonError::into_inner);
            self.journal.hit(fault.kind);
            match fault.kind {
                FaultKind::KillApiServer => control_plane.restart_apiserver()?,
                FaultKind::KillEtcd => {
                    control_plane.kill_etcd();
                    std::thread::sleep(fault.lasts);
                    control_plane.restart_etcd()?;
                }
                kind => {
                    let id = match kind {
                        FaultKind::StopEtcd => control_plane.etcd_id(),
                        _ => control_plane.apiserver_id(),
                    };
                    let id = id.context("the server does not run")?;
                    signal(id, "STOP")?;
                    std::thread::sleep(fault.lasts);
                    signal(id, "CONT")?;
                }
            }
        }
        Ok(())
    }

    fn webhooks(&self, faults: &[Fault], begun: Instant) -> Result<()> {
        let Some(webhooks) = self.webhooks else {
            return Ok(());
        };
        for fault in faults {
            sleep_until(begun + fault.at);
            let numbers = match fault.victim {
                Victim::Leader => &[0][..],
                Victim::Standby => &[1],
                Victim::Both => &[0, 1],
            };
            let (before, since) = (webhooks.made(self.api), jiff::Timestamp::now());
            webhooks.jump(numbers, Dice::new(fault.dice).pick(&REVIEW_JUMPS))?;
            self.journal.hit(fault.kind);
            sleep_until(begun + fault.end());
            webhooks.look(self.api, &before, since);
            webhooks.jump(numbers, 0)?;
        }
        Ok(())
    }

    fn victims(&self, victim: Victim) -> Vec<usize> {
        let leader = self.journal.leader().unwrap_or(0);
        match victim {
            Victim::Leader => vec![leader],
            Victim::Standby => vec![1 - leader],
            Victim::Both => vec![0, 1],
        }
    }

    fn links(&self, victim: Victim) -> Vec<&Link> {
        let victims = self.victims(victim).into_iter();
        victims.map(|replica| &*self.proxy.links[replica]).collect()
    }
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

fn begin(link: &Link, fault: &Fault) {
    let mut dice = Dice::new(fault.dice);
    let now = Instant::now();
    let until = now + fault.lasts;
    match fault.kind {
        FaultKind::Stall => link.stall(),
        FaultKind::HalfOpen => link.go_silent(),
        FaultKind::Reset => link.reset(),
        FaultKind::Truncate => {
            let bytes = dice.between(0, 2_000);
            link.truncate(usize::try_from(bytes).unwrap_or(0));
        }
        FaultKind::DelayEvents => link.hold_events(EventHold {
            kind: fault.kind,
            until,
            each: Some(Duration::from_millis(dice.between(200, 5_000))),
        }),
        FaultKind::DropEvents => link.drop_events(),
        kind => {
            link.add_rule(RequestRule { kind, until, dice });
            // Lists come after watches that cannot be resumed.
            if matches!(kind, FaultKind::CutLists | FaultKind::Answer410) {
                link.end_watches(WatchEnd::Gone);
            }
        }
    }
}

fn end(link: &Link, fault: &Fault) {
    match fault.kind {
        FaultKind::Stall | FaultKind::HalfOpen => link.open(),
        FaultKind::DropEvents => {
            let ends = [WatchEnd::Break, WatchEnd::Close];
            link.end_watches(Dice::new(fault.dice).pick(&ends));
        }
        _ => {}
    }
}
