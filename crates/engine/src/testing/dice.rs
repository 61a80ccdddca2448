//! Random numbers of tests.

/// A small generator of numbers, so that a failure can be repeated.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, bound: i64) -> i64 {
        (self.next() % bound.unsigned_abs()) as i64
    }

    pub(crate) fn one_in(&mut self, chances: i64) -> bool {
        self.below(chances) == 0
    }
}
