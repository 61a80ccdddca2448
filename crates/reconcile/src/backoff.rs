//! Exponential backoff with jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
/// With the timeout of a connection, work goes on within 15 s after a server is back.
const LONGEST: Duration = Duration::from_secs(8);

/// Doubles from 0.2 s to 8 s.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    pub async fn wait(&mut self) {
        let time = self.next();
        tokio::time::sleep(jittered(time)).await;
    }

    fn next(&mut self) -> Duration {
        let time = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        time.min(LONGEST)
    }
}

/// From half of the time to all of it.
pub fn jittered(time: Duration) -> Duration {
    // A hasher with new keys is the randomness of the standard library.
    let random = RandomState::new().hash_one(()) as u32;
    time.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_starts_again() {
        let mut backoff = Backoff::default();
        let times: Vec<u128> = (0..10).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(
            times,
            [200, 400, 800, 1600, 3200, 6400, 8000, 8000, 8000, 8000]
        );
        backoff.reset();
        assert_eq!(backoff.next(), FIRST);
    }

    #[test]
    fn jitter_stays_within_half() {
        for _ in 0..100 {
            let time = jittered(Duration::from_secs(2));
            assert!((1.0..=2.0).contains(&time.as_secs_f64()), "{time:?}");
        }
    }
}
