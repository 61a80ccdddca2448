//! Decaying histograms: the weight of a sample halves with every half-life.
//!
//! Buckets grow by a factor, so that a percentile has the same relative error everywhere. Weights grow with time instead of
//! shrinking, so that adding a sample touches one bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// Each bucket is so many times as wide as the one before.
const RATIO: f64 = 1.05;
/// A bucket with less weight counts as empty.
const EPSILON: f64 = 0.0001;
/// The reference time moves when weights would grow beyond 2 to the power of this.
const MOST_HALF_LIVES: i64 = 100;
/// The largest weight of a bucket in a checkpoint.
const CHECKPOINT_WEIGHT: f64 = 10_000.0;

/// The buckets of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    /// The width of the first one.
    first: f64,
    count: usize,
    half_life: Duration,
}

impl Buckets {
    /// Cores, up to 1024.
    pub fn cpu() -> Self {
        Self::new(0.025, 1024.0, Duration::from_secs(12 * 3600))
    }

    /// Bytes, up to 2 TiB.
    pub fn memory() -> Self {
        let most = (1_u64 << 41) as f64;
        Self::new((5_u64 << 20) as f64, most, Duration::from_secs(24 * 3600))
    }

    fn new(first: f64, most: f64, half_life: Duration) -> Self {
        let last = ((most * (RATIO - 1.0) / first + 1.0).ln() / RATIO.ln()).ceil();
        Self {
            first,
            count: last as usize + 1,
            half_life,
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Where a bucket begins.
    pub fn start(&self, bucket: usize) -> f64 {
        if bucket == 0 {
            return 0.0;
        }
        self.first * (RATIO.powi(bucket as i32) - 1.0) / (RATIO - 1.0)
    }

    /// The bucket of a value; the last one takes all that is larger.
    pub fn find(&self, value: f64) -> usize {
        if value < self.first || value.is_nan() {
            return 0;
        }
        let bucket = (value * (RATIO - 1.0) / self.first + 1.0).ln() / RATIO.ln();
        (bucket as usize).min(self.count - 1)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    buckets: Buckets,
    weights: Vec<f64>,
    total: f64,
    /// A sample of this time has weight 1; a multiple of the half-life.
    reference: Option<Timestamp>,
}

/// A histogram as a file holds it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistogramCheckpoint {
    /// Nanoseconds since 1970.
    pub reference: i64,
    /// By bucket, relative to the largest, which is 10000.
    pub weights: BTreeMap<usize, u32>,
    pub total: f64,
}

impl Histogram {
    pub fn new(buckets: Buckets) -> Self {
        Self {
            buckets,
            weights: vec![0.0; buckets.count],
            total: 0.0,
            reference: None,
        }
    }

    /// Adds a sample of a time of day. Samples need not come in the order of time.
    pub fn add(&mut self, value: f64, at: Timestamp) {
        let half_life = self.half_life();
        let reference = match self.reference {
            Some(reference)
                if at.0.saturating_sub(reference.0)
                    <= half_life.saturating_mul(MOST_HALF_LIVES) =>
            {
                reference
            }
            _ => self.move_reference(at),
        };
        let age = at.0.saturating_sub(reference.0) as f64;
        let weight = (age / half_life as f64).exp2();
        self.weights[self.buckets.find(value)] += weight;
        self.total += weight;
    }

    fn half_life(&self) -> i64 {
        i64::try_from(self.buckets.half_life.as_nanos()).unwrap_or(i64::MAX)
    }

    fn move_reference(&mut self, at: Timestamp) -> Timestamp {
        let half_life = self.half_life();
        let down = at.0.rem_euclid(half_life);
        let rounded = match down < half_life - down {
            true => at.0.saturating_sub(down),
            false => at.0.saturating_add(half_life - down),
        };
        if let Some(old) = self.reference {
            let half_lives = old.0.saturating_sub(rounded) as f64 / half_life as f64;
            let factor = half_lives.round().exp2();
            self.weights.iter_mut().for_each(|weight| *weight *= factor);
            self.total *= factor;
        }
        self.reference = Some(Timestamp(rounded));
        Timestamp(rounded)
    }

    fn is_filled(&self, bucket: usize) -> bool {
        self.weights[bucket] >= EPSILON
    }

    /// The first and the last bucket with a weight that counts.
    fn filled(&self) -> Option<(usize, usize)> {
        let filled = |bucket: &usize| self.is_filled(*bucket);
        let first = (0..self.buckets.count).find(filled)?;
        let last = (0..self.buckets.count).rfind(filled)?;
        Some((first, last))
    }

    /// Whether no bucket has a weight that counts.
    pub fn is_empty(&self) -> bool {
        self.filled().is_none()
    }

    /// The upper edge of the bucket in which this share of the weight is reached; 0 without samples.
    pub fn percentile(&self, share: f64) -> f64 {
        let Some((first, last)) = self.filled() else {
            return 0.0;
        };
        let threshold = share * self.total;
        let mut sum = 0.0;
        let mut found = last;
        for bucket in first..last {
            sum += self.weights[bucket];
            if sum >= threshold {
                found = bucket;
                break;
            }
        }
        self.buckets.start((found + 1).min(self.buckets.count - 1))
    }

    pub fn checkpoint(&self) -> HistogramCheckpoint {
        let most = self.weights.iter().copied().fold(0.0, f64::max);
        let mut weights = BTreeMap::new();
        if let Some((first, last)) = self.filled() {
            for bucket in first..=last {
                let scaled = (self.weights[bucket] / most * CHECKPOINT_WEIGHT).round() as u32;
                if scaled > 0 {
                    weights.insert(bucket, scaled);
                }
            }
        }
        HistogramCheckpoint {
            reference: self.reference.map_or(0, |reference| reference.0),
            weights,
            total: self.total,
        }
    }

    /// The histogram of a checkpoint; the reason if it is not valid.
    pub fn restore(buckets: Buckets, saved: &HistogramCheckpoint) -> Result<Self, String> {
        let mut histogram = Self::new(buckets);
        if !saved.total.is_finite() || saved.total < 0.0 {
            return Err(format!(
                "the total weight is {}, which is not a positive number",
                saved.total
            ));
        }
        if let Some((bucket, _)) = saved.weights.range(buckets.count..).next() {
            return Err(format!(
                "there is a bucket {bucket}; the last one is {}",
                buckets.count - 1
            ));
        }
        if let Some((bucket, weight)) = saved
            .weights
            .iter()
            .find(|(_, weight)| f64::from(**weight) > CHECKPOINT_WEIGHT)
        {
            return Err(format!(
                "bucket {bucket} has a weight of {weight}; at most {CHECKPOINT_WEIGHT} are allowed"
            ));
        }
        let sum: f64 = saved
            .weights
            .values()
            .map(|weight| f64::from(*weight))
            .sum();
        if sum > 0.0 {
            for (bucket, weight) in &saved.weights {
                histogram.weights[*bucket] = f64::from(*weight) / sum * saved.total;
            }
            histogram.total = saved.total;
            histogram.reference = Some(Timestamp(saved.reference));
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * Timestamp::SECOND;

    #[test]
    fn buckets_as_in_koordinator() {
        assert_eq!(Buckets::cpu().count(), 158);
        assert_eq!(Buckets::memory().count(), 205);
        let cpu = Buckets::cpu();
        for (value, bucket) in [
            (0.0, 0),
            (-1.0, 0),
            (f64::NAN, 0),
            (0.0249, 0),
            (0.0251, 1),
            (1.0, 22),
            (5000.0, 157),
            (f64::INFINITY, 157),
        ] {
            assert_eq!(cpu.find(value), bucket, "{value}");
        }
    }

    #[test]
    fn percentiles() {
        let at = Timestamp(1000 * HOUR);
        let mut one = Histogram::new(Buckets::cpu());
        assert_eq!(one.percentile(0.95), 0.0);
        one.add(1.0, at);
        // The upper edge of the bucket, as upstream answers.
        assert_eq!(one.percentile(0.95), 1.0357618779589044);
        let mut idle = Histogram::new(Buckets::cpu());
        idle.add(0.0, at);
        assert!((idle.percentile(0.95) - 0.025).abs() < 1e-9);
        let mut memory = Histogram::new(Buckets::memory());
        memory.add(0.0, at);
        assert!((memory.percentile(0.98) - f64::from(5 << 20)).abs() < 1e-3);
        let mut many = Histogram::new(Buckets::cpu());
        (0..100).for_each(|i| many.add(f64::from(i) / 10.0, at));
        let p95 = many.percentile(0.95);
        assert!((9.4..10.0).contains(&p95), "{p95}");
    }

    #[test]
    fn old_samples_count_less() {
        let mut histogram = Histogram::new(Buckets::cpu());
        let start = 500_000 * HOUR;
        // A busy day, then three quiet ones: each day is two half-lives.
        for minute in 0..4 * 24 * 60 {
            let value = if minute < 24 * 60 { 8.0 } else { 1.0 };
            histogram.add(value, Timestamp(start + minute * HOUR / 60));
        }
        let p95 = histogram.percentile(0.95);
        assert!(p95 < 1.1, "{p95}");
        assert!(histogram.percentile(0.999) > 8.0);
        // Far in the future, the weights are scaled and stay finite.
        histogram.add(2.0, Timestamp(start + 12 * 150 * HOUR));
        let p50 = histogram.percentile(0.5);
        assert!((2.0..2.2).contains(&p50), "{p50}");
        histogram.add(2.0, Timestamp(i64::MAX));
        histogram.add(2.0, Timestamp(i64::MIN));
        assert!(histogram.percentile(0.95).is_finite());
    }

    #[test]
    fn a_restored_histogram_has_the_same_percentiles() {
        let mut histogram = Histogram::new(Buckets::memory());
        for i in 0..1000_i64 {
            histogram.add((i * i * 1000) as f64, Timestamp(500_000 * HOUR + i * HOUR));
        }
        let saved = histogram.checkpoint();
        assert_eq!(saved.weights.values().max(), Some(&10_000));
        let restored = Histogram::restore(Buckets::memory(), &saved).unwrap();
        for share in [0.5, 0.9, 0.98] {
            let (one, other) = (histogram.percentile(share), restored.percentile(share));
            assert!((one - other).abs() <= one * 0.06, "{share}: {one} {other}");
        }
        let empty = Histogram::new(Buckets::cpu());
        let restored = Histogram::restore(Buckets::cpu(), &empty.checkpoint()).unwrap();
        assert!(restored.is_empty());
    }

    #[test]
    fn invalid_checkpoints() {
        let good = HistogramCheckpoint {
            reference: 0,
            weights: [(3, 10_000)].into(),
            total: 1.0,
        };
        for (case, saved, want) in [
            (
                "bucket",
                HistogramCheckpoint {
                    weights: [(158, 1)].into(),
                    ..good.clone()
                },
                "there is a bucket 158; the last one is 157",
            ),
            (
                "weight",
                HistogramCheckpoint {
                    weights: [(1, 10_001)].into(),
                    ..good.clone()
                },
                "bucket 1 has a weight of 10001; at most 10000 are allowed",
            ),
            (
                "total",
                HistogramCheckpoint {
                    total: f64::NAN,
                    ..good.clone()
                },
                "the total weight is NaN, which is not a positive number",
            ),
        ] {
            let found = Histogram::restore(Buckets::cpu(), &saved);
            assert_eq!(found.unwrap_err(), want, "{case}");
        }
        assert!(Histogram::restore(Buckets::cpu(), &good).is_ok());
    }
}
