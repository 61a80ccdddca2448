//! Rates from counters that may restart.

use std::time::Duration;

use engine::model::Timestamp;
use engine::node::{NanoCores, Throttling};

/// The average between two readings of a counter of CPU time in nanoseconds. A counter that went back, or no time that passed,
/// gives nothing.
pub(crate) fn cpu_rate(
    old: Option<(Timestamp, u64)>,
    new: Option<(Timestamp, u64)>,
    cpus: usize,
) -> Option<NanoCores> {
    let ((old_at, old), (new_at, new)) = (old?, new?);
    let passed = new_at.0.checked_sub(old_at.0)?;
    let passed = u64::try_from(passed).ok().filter(|&passed| passed > 0)?;
    rate(new.checked_sub(old)?, passed, cpus)
}

/// What happened between two readings; nothing if a counter went back.
pub(crate) fn throttled(old: Option<Throttling>, new: Option<Throttling>) -> Option<Throttling> {
    let (old, new) = (old?, new?);
    Some(Throttling {
        periods: new.periods.checked_sub(old.periods)?,
        throttled_periods: new.throttled_periods.checked_sub(old.throttled_periods)?,
        throttled_time: new.throttled_time.checked_sub(old.throttled_time)?,
    })
}

/// More than twice what the machine has is an error of the counter. The kernel adds CPU time in steps, so that a short period
/// may show a little too much.
pub(crate) fn rate(used: u64, passed: u64, cpus: usize) -> Option<NanoCores> {
    let rate = u128::from(used) * 1_000_000_000 / u128::from(passed);
    let most = 2_000_000_000 * cpus.max(1) as u128;
    (rate <= most).then(|| u64::try_from(rate).ok().map(NanoCores))?
}

/// Ticks of `/proc/stat` as nanoseconds. The kernel always shows a hundred per second there.
pub(crate) fn ticks(count: u64) -> u64 {
    count.saturating_mul(Duration::from_millis(10).as_nanos() as u64)
}

/// The busy time of one CPU in nanoseconds, of what its counters and the clock of the machine advanced.
///
/// The kernel counts busy time in ticks and idle time with a clock. The CPU of a virtual machine whose host is busy loses ticks:
/// time that is neither busy nor idle was busy. A small difference is the step of the counters.
pub(crate) fn busy_time(busy: u64, idle: u64, passed: u64) -> u64 {
    let counted = busy.saturating_add(idle);
    let lost = passed.saturating_sub(counted);
    // Counters that stand still show nothing.
    match counted > 0 && lost > (passed / 10).max(ticks(3)) {
        true => busy + lost,
        false => busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn throttling(count: u64) -> Option<Throttling> {
        Some(Throttling {
            periods: count,
            throttled_periods: count,
            throttled_time: Duration::from_secs(count),
        })
    }

    #[test]
    fn only_counters_that_advance_give_a_rate() {
        let half = SECOND / 2;
        for (case, old, new, want) in [
            ("half a core", (0, Some(0)), (2, Some(SECOND)), Some(half)),
            ("idle", (0, Some(5)), (1, Some(5)), Some(0)),
            ("restarted", (0, Some(SECOND)), (1, Some(0)), None),
            ("no time passed", (1, Some(0)), (1, Some(SECOND)), None),
            ("the clock went back", (2, Some(0)), (1, Some(SECOND)), None),
            ("the clock jumped", (i64::MIN, Some(0)), (1, Some(1)), None),
            ("missing before", (0, None), (1, Some(SECOND)), None),
            ("missing now", (0, Some(0)), (1, None), None),
            ("impossible", (0, Some(0)), (1, Some(u64::MAX)), None),
        ] {
            let reading = |(seconds, cpu): (i64, Option<u64>)| {
                cpu.map(|cpu| (Timestamp::from_secs(seconds), cpu))
            };
            let cpu = cpu_rate(reading(old), reading(new), 2);
            assert_eq!(cpu, want.map(NanoCores), "{case}");
        }
    }

    #[test]
    fn throttling_is_the_difference_of_two_readings() {
        assert_eq!(throttled(throttling(1), throttling(4)), throttling(3));
        assert_eq!(throttled(throttling(4), throttling(3)), None);
        assert_eq!(throttled(None, throttling(3)), None);
    }

    #[test]
    fn lost_ticks_are_busy_time() {
        let milli = |count: u64| count * SECOND / 1000;
        for (case, busy, idle, want) in [
            ("all counted", 300, 700, 300),
            ("a step of the counters", 300, 660, 300),
            ("most ticks are lost", 300, 0, 1000),
            ("half idle", 100, 500, 500),
            ("more than passed", 600, 500, 600),
            ("the counters stand still", 0, 0, 0),
        ] {
            let found = busy_time(milli(busy), milli(idle), SECOND);
            assert_eq!(found, milli(want), "{case}");
        }
        // Two ticks of a short period.
        assert_eq!(busy_time(milli(60), milli(20), milli(100)), milli(60));
    }
}
