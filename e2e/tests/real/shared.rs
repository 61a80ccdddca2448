//! What several tests use one after the other, because it takes longer to start than they run.

use std::sync::{Mutex, PoisonError};

/// One test at a time has it. The first one starts it. A test that fails ends it, so that its logs are kept and no other test meets
/// what is left.
pub(crate) struct Shared<T>(Mutex<State<T>>);

struct State<T> {
    fixture: Option<T>,
    /// Tests that have not had it yet.
    left: usize,
}

impl<T> Shared<T> {
    /// It ends with the last of so many tests.
    pub(crate) const fn by(tests: usize) -> Self {
        Self(Mutex::new(State {
            fixture: None,
            left: tests,
        }))
    }

    /// It ends with the process: its tests are not neighbours.
    pub(crate) const fn until_the_end() -> Self {
        Self::by(usize::MAX)
    }

    pub(crate) fn with(&self, start: impl FnOnce() -> T, test: impl FnOnce(&mut T)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fixture = state.fixture.take().unwrap_or_else(start);
        test(&mut fixture);
        state.left = state.left.saturating_sub(1);
        if state.left > 0 {
            state.fixture = Some(fixture);
        }
    }
}

#[test]
fn what_tests_share_starts_once_and_again_after_a_failure() {
    static SHARED: Shared<Vec<u32>> = Shared::by(3);
    let find = |want: &[u32], ok: bool| {
        SHARED.with(Vec::new, |found| {
            assert_eq!(found, want);
            found.push(want.len() as u32);
            assert!(ok, "a test that fails");
        });
    };
    find(&[], true);
    find(&[0], true);
    let failed = std::panic::catch_unwind(|| find(&[0, 1], false));
    assert!(failed.is_err());
    // It was the third, but it did not end well: the next one counts.
    find(&[], true);
    find(&[], true);
}
