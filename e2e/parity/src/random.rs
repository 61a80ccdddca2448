//! The generator's dice: small, seeded, and the same on every machine and release.
//!
//! Not for secrets and not for statistics: only for making test cases.

/// SplitMix64. Each case has its own stream, so that one case never shifts another.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn for_case(seed: u64, index: u64) -> Self {
        let mut random = Self(seed);
        let start = random.next() ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 up to, but not including, `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no number below 0");
        (self.next() % bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// Any one of the items, by value.
    pub(super) fn one<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Between `low` and `high` different items, in their own order.
    pub(super) fn several<T: Clone>(&mut self, items: &[T], low: usize, high: usize) -> Vec<T> {
        let mut left = self.between(low, high.min(items.len()));
        let mut chosen = Vec::with_capacity(left);
        for (position, item) in items.iter().enumerate() {
            if self.below(items.len() - position) < left {
                chosen.push(item.clone());
                left -= 1;
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_the_same_stream_wherever_it_is_drawn() {
        let draw = |index| {
            let mut random = Random::for_case(7, index);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn several_takes_different_items_in_order() {
        let mut random = Random::for_case(1, 1);
        for _ in 0..200 {
            let chosen = random.several(&[1, 2, 3, 4], 1, 3);
            assert!((1..=3).contains(&chosen.len()), "{chosen:?}");
            assert!(chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
        }
    }
}
