//! Smoothing of figures that are reported: an aggregate over the last samples, and limits on a step.

use std::collections::VecDeque;

use super::settings::{Aggregation, Smoothing};
use crate::model::Timestamp;

/// The last samples of one figure.
#[derive(Debug, Clone, Default)]
pub struct SmoothWindow {
    samples: VecDeque<(Timestamp, i64)>,
}

impl SmoothWindow {
    pub fn clear(&mut self) {
        self.samples.clear();
    }

    /// Adds a sample. The result is the aggregate, once there are enough samples.
    pub fn push(&mut self, value: i64, now: Timestamp, settings: &Smoothing) -> Option<i64> {
        self.samples.push_back((now, value));
        let needed = settings.samples.max(1);
        while self.samples.len() > needed {
            self.samples.pop_front();
        }
        let valid = self
            .samples
            .iter()
            .filter(|(at, _)| at.plus(settings.ttl) >= now)
            .map(|(_, value)| *value);
        let mut values: Vec<i64> = valid.collect();
        if values.len() < needed {
            return None;
        }
        Some(match settings.aggregation {
            Aggregation::Average => {
                let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
                i64::try_from(sum / values.len() as i128).unwrap_or(i64::MAX)
            }
            Aggregation::Percentile(percent) => {
                values.sort_unstable();
                let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
                values[rank.clamp(1, values.len()) - 1]
            }
        })
    }
}

/// A new value, as far as the limits of a step from the last one allow it. A smaller change is left out, a larger one is cut.
pub fn limited_step(last: Option<i64>, value: i64, min_step: i64, max_step: i64) -> i64 {
    let Some(last) = last else {
        return value;
    };
    let change = value.saturating_sub(last);
    if change.abs() < min_step {
        last
    } else {
        last.saturating_add(change.clamp(-max_step, max_step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::settings::ReclaimSettings;

    fn settings(aggregation: Aggregation) -> Smoothing {
        Smoothing {
            aggregation,
            ..ReclaimSettings::default().smoothing
        }
    }

    /// The vector of the notes: upstream limits decreases as well, which is why the lender does not use it for them.
    #[test]
    fn average_and_steps() {
        let settings = settings(Aggregation::Average);
        let mut window = SmoothWindow::default();
        let mut last = None;
        let values = [20, 20, 20, 20, 2, 2, 2, 2].into_iter().enumerate();
        let reported: Vec<Option<i64>> = values
            .map(|(i, value)| {
                let now = Timestamp::from_secs(30 * i as i64);
                let smooth = window.push(value * 1000, now, &settings)?;
                last = Some(limited_step(last, smooth, 300, 4000));
                last
            })
            .collect();
        let want = [20, 16, 12, 8, 4].map(|value| Some(value * 1000));
        assert_eq!(reported[..3], [None; 3]);
        assert_eq!(reported[3..], want);
    }

    #[test]
    fn percentiles_by_nearest_rank_and_old_samples() {
        let mut window = SmoothWindow::default();
        let p50 = settings(Aggregation::Percentile(50.0));
        for (i, value) in [5, 1, 4].into_iter().enumerate() {
            let now = Timestamp::from_secs(30 * i as i64);
            assert_eq!(window.push(value, now, &p50), None);
        }
        assert_eq!(window.push(3, Timestamp::from_secs(90), &p50), Some(3));
        // The samples before are too old.
        assert_eq!(window.push(3, Timestamp::from_secs(900), &p50), None);
    }

    #[test]
    fn small_changes_are_left_out() {
        for (last, value, want) in [
            (None, 7, 7),
            (Some(1000), 1299, 1000),
            (Some(1000), 1300, 1300),
            (Some(1000), 9000, 5000),
            (Some(1000), 701, 1000),
        ] {
            assert_eq!(limited_step(last, value, 300, 4000), want);
        }
    }
}
