//! Random numbers that are the same in every run.

/// A generator (xorshift) for tests with more cases than a strategy of proptest can hold.
pub struct Numbers(u64);

impl Numbers {
    /// The seed must not be 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
