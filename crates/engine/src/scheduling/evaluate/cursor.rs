//! The choice among nodes that score well.

use std::num::NonZero;

/// How the next node is chosen among the best ones. There is one per scheduler. It moves when a decision is committed, and
/// only then: until that, the same pod gets the same node.
///
/// The best of equal nodes is the first one from the cursor's slot on, so that equal nodes take turns. A scheduler that runs
/// beside others with the same scores chooses at random among several of the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The slot from which the search for the best node starts.
    slot: usize,
    /// The number of best nodes to choose among.
    among: NonZero<usize>,
    /// The state of the random numbers.
    state: u64,
}

impl Default for Cursor {
    /// Always the best node.
    fn default() -> Self {
        Self::random(NonZero::<usize>::MIN, 0)
    }
}

impl Cursor {
    /// Chooses uniformly among so many of the best nodes. The same seed makes the same choices.
    pub fn random(among: NonZero<usize>, seed: u64) -> Self {
        Self {
            slot: 0,
            among,
            state: seed,
        }
    }

    pub fn commit(&mut self, slot: usize) {
        self.slot = slot + 1;
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    /// Slots at or after the cursor come first, then those before it.
    pub(super) fn rotated(self, slot: usize) -> (bool, usize) {
        (slot < self.slot, slot)
    }

    pub(super) fn is_random(self) -> bool {
        self.among.get() > 1
    }

    /// One of the first elements of a list in the order `compare`.
    pub(super) fn pick<T: Copy>(
        self,
        mut list: Vec<T>,
        compare: impl Fn(&T, &T) -> std::cmp::Ordering,
    ) -> Option<T> {
        let count = self.among.get().min(list.len());
        let last = count.checked_sub(1)?;
        // Only the first ones are needed in order.
        list.select_nth_unstable_by(last, &compare);
        list.truncate(count);
        list.sort_unstable_by(&compare);
        let wide = u128::from(self.number()) * count as u128;
        list.get((wide >> 64) as usize).copied()
    }

    /// SplitMix64: the state is a counter, and this mixes it.
    fn number(self) -> u64 {
        let z = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(count: usize, seed: u64) -> Cursor {
        Cursor::random(NonZero::new(count).unwrap(), seed)
    }

    #[test]
    fn the_first_of_a_list_are_chosen_equally_often() {
        let mut counts = [0_u32; 8];
        let mut cursor = among(5, 42);
        for slot in 0..10_000 {
            let chosen = cursor.pick(vec![7_usize, 3, 0, 4, 1, 2, 6, 5], usize::cmp);
            counts[chosen.unwrap()] += 1;
            cursor.commit(slot);
        }
        assert_eq!(counts[5..], [0, 0, 0]);
        // 2,000 each; five standard deviations are 200.
        assert!(
            counts[..5]
                .iter()
                .all(|count| (1_800..2_200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn choices_repeat_until_they_are_committed_and_with_the_same_seed() {
        let choices = |seed: u64| {
            let mut cursor = among(100, seed);
            let next = |_| {
                let chosen = cursor.pick((0..100).collect(), usize::cmp);
                assert_eq!(cursor.pick((0..100).collect(), usize::cmp), chosen);
                cursor.commit(0);
                chosen
            };
            (0..20).map(next).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
        assert_eq!(among(3, 0).pick(Vec::<u8>::new(), u8::cmp), None);
        assert_eq!(among(3, 0).pick(vec![1], u8::cmp), Some(1));
    }
}
