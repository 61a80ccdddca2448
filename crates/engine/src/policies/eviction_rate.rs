//! How many pods a controller evicts in a span of time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::Timestamp;

/// At most so many evictions in any span of this length.
#[derive(Debug, Clone)]
pub struct EvictionRate {
    most: usize,
    span: Duration,
    /// The evictions of the last span.
    times: VecDeque<Timestamp>,
}

impl EvictionRate {
    pub fn new(most: usize, span: Duration) -> Self {
        Self {
            most,
            span,
            times: VecDeque::new(),
        }
    }

    /// Takes one eviction, or says from when on there is one.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        self.room(now)?;
        self.times.push_back(now);
        Ok(())
    }

    /// Whether there is one, without taking it.
    pub fn room(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        while self
            .times
            .front()
            .is_some_and(|at| at.plus(self.span) <= now)
        {
            self.times.pop_front();
        }
        if self.times.len() < self.most {
            return Ok(());
        }
        // Without any evictions allowed, the time to look again is as good as any.
        let oldest = self.times.front().copied().unwrap_or(now);
        Err(oldest.plus(self.span))
    }

    /// The last one that was taken did not happen.
    pub fn give_back(&mut self) {
        self.times.pop_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_no_more_than_the_most() {
        let mut rate = EvictionRate::new(2, Duration::from_secs(60));
        let at = Timestamp::from_secs;
        assert_eq!(rate.take(at(0)), Ok(()));
        assert_eq!(rate.take(at(30)), Ok(()));
        assert_eq!(rate.take(at(59)), Err(at(60)));
        assert_eq!(rate.take(at(60)), Ok(()));
        assert_eq!(rate.take(at(61)), Err(at(90)));
        rate.give_back();
        assert_eq!(
            rate.take(at(61)),
            Ok(()),
            "the second of 60 s did not happen"
        );
        let mut none = EvictionRate::new(0, Duration::from_secs(60));
        assert_eq!(none.take(at(5)), Err(at(65)));
    }
}
