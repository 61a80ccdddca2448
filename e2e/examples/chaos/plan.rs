//! The plan of a round: which fault begins when, how long it lasts and whom it hits. A pure function of the seed.

use std::time::Duration;

/// A seeded sequence of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).unwrap_or(1);
        from[usize::try_from(self.next() % count).unwrap_or(0)]
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for index in (1..all.len()).rev() {
            let limit = u64::try_from(index).unwrap_or(0);
            all.swap(index, usize::try_from(self.between(0, limit)).unwrap_or(0));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    // Bytes of connections.
    Stall,
    HalfOpen,
    Reset,
    Truncate,
    // Requests.
    LoseAnswers,
    Delay,
    Answer429,
    Answer500,
    Answer504,
    ExpiredToken,
    // Lists and watches.
    CutLists,
    DelayEvents,
    DropEvents,
    Answer410,
    // Processes.
    KillScheduler,
    StopScheduler,
    JumpClock,
    LaggingTakeover,
    KillApiServer,
    StopApiServer,
    KillEtcd,
    StopEtcd,
    JumpReviewClock,
    // The end of a round.
    RefuseBinds,
}

impl FaultKind {
    /// With their names in the table, and the shortest and longest time in milliseconds.
    ///
    /// What is delayed arrives within 2.5 s or never: with a Lease of 6 s and a renew deadline of 4 s (of which the last
    /// fifth is a margin) a leader sends its last write 2.8 s before another replica can take the Lease. No client can
    /// protect itself against a network that delivers a write later than that.
    pub(crate) const ALL: [(Self, &str, u64, u64); 24] = [
        (Self::Stall, "connection stalls", 300, 2_500),
        (Self::HalfOpen, "connection half open", 2_000, 15_000),
        (Self::Reset, "connection reset", 1, 1),
        (Self::Truncate, "connection truncated", 1, 1),
        (Self::LoseAnswers, "answer lost after apply", 3_000, 8_000),
        (Self::Delay, "request or answer late", 3_000, 8_000),
        (Self::Answer429, "answered 429", 1_000, 6_000),
        (Self::Answer500, "answered 500", 1_000, 6_000),
        (Self::Answer504, "answered 504", 1_000, 6_000),
        (Self::ExpiredToken, "token expired", 1_000, 6_000),
        (Self::CutLists, "list ends early", 3_000, 10_000),
        (Self::DelayEvents, "watch events late", 3_000, 12_000),
        (Self::DropEvents, "watch events dropped", 1_000, 8_000),
        (Self::Answer410, "answered 410", 500, 2_000),
        (Self::KillScheduler, "scheduler killed", 200, 4_000),
        (Self::StopScheduler, "scheduler stopped", 1_000, 12_000),
        (Self::JumpClock, "clock jumps", 1, 1),
        (
            Self::LaggingTakeover,
            "takeover with late watches",
            28_000,
            30_000,
        ),
        (Self::KillApiServer, "API server killed", 1, 1),
        (Self::StopApiServer, "API server stopped", 1_000, 7_000),
        (Self::KillEtcd, "etcd killed", 100, 2_000),
        (Self::StopEtcd, "etcd stopped", 1_000, 7_000),
        (
            Self::JumpReviewClock,
            "clock of webhook, gate jumps",
            2_000,
            6_000,
        ),
        (Self::RefuseBinds, "binds refused", 10_000, 10_000),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        found.map_or("", |(_, name, ..)| name)
    }

    /// Faults of the same lane follow each other.
    pub(crate) fn lane(self) -> Lane {
        match self {
            Self::KillScheduler | Self::StopScheduler | Self::JumpClock | Self::LaggingTakeover => {
                Lane::Schedulers
            }
            Self::KillApiServer | Self::StopApiServer | Self::KillEtcd | Self::StopEtcd => {
                Lane::Servers
            }
            Self::JumpReviewClock => Lane::Webhooks,
            _ => Lane::Network,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Network,
    Schedulers,
    Servers,
    Webhooks,
}

impl Lane {
    pub(crate) const ALL: [Self; 4] = [
        Self::Network,
        Self::Schedulers,
        Self::Servers,
        Self::Webhooks,
    ];
}

/// The replica that a fault hits. Who leads shows when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Leader,
    Standby,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) victim: Victim,
    /// For choices within the kind.
    pub(crate) dice: u64,
}

impl Fault {
    pub(crate) fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

/// How long binds are refused after the other faults of a round: longer than it takes a standby to become the leader.
const LAST: Duration = Duration::from_secs(10);
/// How long lists end early at that time: long enough for the first list of every watch that ends.
const LAST_LISTS: Duration = Duration::from_secs(3);

/// The faults of a round of this length, by time, and the end of it. Every kind comes up in a round of a minute or more.
pub(crate) fn plan(seed: u64, round: u64, length: Duration) -> Vec<Fault> {
    let mut dice = Dice::new(seed ^ round.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut faults = Vec::new();
    for (lane, pause) in [
        (Lane::Network, 3_000),
        (Lane::Schedulers, 3_000),
        (Lane::Servers, 9_000),
        (Lane::Webhooks, 2_000),
    ] {
        add_lane(&mut faults, lane, pause, length, &mut dice);
    }
    // Pods of the last binds are tried again when the faults are over, by the scheduler that the binds were refused to. And
    // nothing lists again after the last list that ended early: what it lacked stays lacking.
    for (kind, lasts) in [
        (FaultKind::CutLists, LAST_LISTS),
        (FaultKind::RefuseBinds, LAST),
    ] {
        faults.push(Fault {
            kind,
            at: length,
            lasts,
            victim: Victim::Both,
            dice: dice.next(),
        });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Fills a lane: all of its kinds in random order, then again. Faults of the network may overlap, others do not.
fn add_lane(faults: &mut Vec<Fault>, lane: Lane, pause: u64, length: Duration, dice: &mut Dice) {
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let of_lane = FaultKind::ALL.into_iter();
    let of_lane = of_lane.filter(|(kind, ..)| kind.lane() == lane);
    let mut kinds: Vec<_> = of_lane
        .filter(|(kind, ..)| *kind != FaultKind::RefuseBinds)
        .collect();
    let mut at = dice.between(500, pause);
    loop {
        dice.shuffle(&mut kinds);
        for (kind, _, shortest, longest) in &kinds {
            let lasts = dice.between(*shortest, *longest);
            let fault = Fault {
                kind: *kind,
                at: Duration::from_millis(at),
                lasts: Duration::from_millis(lasts),
                victim: match dice.between(0, 9) {
                    0..=4 => Victim::Leader,
                    5..=7 => Victim::Standby,
                    _ => Victim::Both,
                },
                dice: dice.next(),
            };
            if at + lasts > length {
                return;
            }
            faults.push(fault);
            at += match lane {
                Lane::Network => dice.between(pause / 2, pause + pause / 2),
                Lane::Schedulers | Lane::Servers | Lane::Webhooks => {
                    lasts + dice.between(pause / 2, pause + pause / 2)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_and_a_round_give_the_same_faults_again() {
        assert_eq!(plan(7, 0, MINUTE), plan(7, 0, MINUTE));
        assert_ne!(plan(7, 0, MINUTE), plan(8, 0, MINUTE));
        assert_ne!(plan(7, 0, MINUTE), plan(7, 1, MINUTE));
    }

    #[test]
    fn faults_end_with_the_round_and_do_not_overlap_in_a_lane_of_processes() {
        for seed in 0..50 {
            let faults = plan(seed, 3, 2 * MINUTE);
            assert!(faults.iter().all(|fault| fault.end() <= 2 * MINUTE + LAST));
            for lane in [Lane::Schedulers, Lane::Servers, Lane::Webhooks] {
                let of_lane = faults.iter().filter(|fault| fault.kind.lane() == lane);
                let of_lane: Vec<_> = of_lane.collect();
                let apart = |pair: &[&Fault]| pair[0].end() <= pair[1].at;
                assert!(of_lane.windows(2).all(apart), "{of_lane:?}");
            }
        }
    }

    #[test]
    fn two_minutes_have_nearly_every_kind() {
        for seed in 0..20 {
            let kinds: BTreeSet<_> = plan(seed, 0, 2 * MINUTE)
                .iter()
                .map(|fault| fault.kind)
                .collect();
            assert!(kinds.len() >= 20, "seed {seed} has only {kinds:?}");
        }
    }
}
