//! How many writes per second may repeat, with other numbers in the message, what was written before.
//!
//! A backlog of thousands of pods that fails again and again, each time with other figures in the message, must not become
//! as many requests.

use std::time::{Duration, Instant};

/// A number of writes per second. What is not used within a second is lost.
#[derive(Debug)]
pub(crate) struct WriteBudget {
    per_second: u32,
    left: u32,
    renewed: Option<Instant>,
}

impl WriteBudget {
    pub(crate) fn per_second(per_second: u32) -> Self {
        Self {
            per_second,
            left: 0,
            renewed: None,
        }
    }

    /// Takes one write, if there is one left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= Duration::from_secs(1);
        if self.renewed.is_none_or(is_over) {
            self.renewed = Some(now);
            self.left = self.per_second;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_writes() {
        let (mut budget, begun) = (WriteBudget::per_second(3), Instant::now());
        let mut taken_at = |milliseconds: u64| {
            let now = begun + Duration::from_millis(milliseconds);
            (0..9).filter(|_| budget.take(now)).count()
        };
        assert_eq!(
            [0, 500, 1_000, 1_999, 9_000].map(&mut taken_at),
            [3, 0, 3, 0, 3]
        );
    }
}
