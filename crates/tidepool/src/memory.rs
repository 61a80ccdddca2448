//! Gives freed memory back to the operating system.
//!
//! glibc keeps what a program frees: threads have heaps of their own, and a heap shrinks only at its end, which some long-lived
//! object nearly always holds. After thousands of pods came and went, most of the process would be such free memory.

use std::time::Duration;

/// How often the heap is checked: a minute after a peak the memory is back.
const CHECK_EVERY: Duration = Duration::from_secs(15);
/// Bytes that are worth a trim, which stops other threads for some milliseconds.
const WORTHWHILE: u64 = 4 << 20;

/// Starts a thread that gives memory back for as long as the process runs.
pub(crate) fn give_back() {
    let check = || {
        let mut trims = Trims::default();
        while let Some(heap) = heap() {
            if trims.is_due(heap) {
                trim();
                let after = self::heap().unwrap_or(heap);
                let (before_kib, after_kib) = (heap.resident >> 10, after.resident >> 10);
                let used_kib = after.used >> 10;
                tracing::debug!(before_kib, after_kib, used_kib, "gave freed memory back");
                trims.trimmed(after);
            }
            std::thread::sleep(CHECK_EVERY);
        }
    };
    let thread = std::thread::Builder::new().name("tidepool-memory".into());
    if let Err(error) = thread.spawn(check) {
        tracing::warn!(%error, "cannot start a thread: freed memory stays with this process");
    }
}

/// The memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct HeapSize {
    /// What the operating system counts, without the program and other files.
    resident: u64,
    /// What the program has allocated.
    used: u64,
}

/// When to trim.
#[derive(Default)]
struct Trims {
    /// After the last trim.
    resident: u64,
    /// The most since the last trim.
    used: u64,
}

impl Trims {
    /// Trims if the process is much larger than what it uses, unless that was so after the last trim.
    fn is_due(&mut self, now: HeapSize) -> bool {
        self.used = self.used.max(now.used);
        // A trim in the middle of a decline leaves what is freed after it.
        let has_fallen = now.used < self.used - self.used / 4;
        let has_changed = now.resident > self.resident + WORTHWHILE || has_fallen;
        let excess = now.resident.saturating_sub(now.used);
        has_changed && excess > now.used / 4 + WORTHWHILE
    }

    fn trimmed(&mut self, now: HeapSize) {
        self.resident = now.resident;
        self.used = now.used;
    }
}

/// `None` if there is nothing to trim here.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "mallinfo2 is a C function")]
fn heap() -> Option<HeapSize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = |field| statm.split_whitespace().nth(field)?.parse::<u64>().ok();
    let anonymous = pages(1)?.saturating_sub(pages(2)?);
    // SAFETY: it has no preconditions, and may run beside allocations of other threads.
    let info = unsafe { libc::mallinfo2() };
    Some(HeapSize {
        resident: anonymous * rustix::param::page_size() as u64,
        used: (info.uordblks + info.hblkhd) as u64,
    })
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "malloc_trim is a C function")]
fn trim() {
    // SAFETY: as above.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn heap() -> Option<HeapSize> {
    None
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// (case, resident, used, whether a trim is due); a trim leaves 40 MiB, of which 20 are used.
    #[test]
    fn memory_is_given_back_once_after_each_peak() {
        const MIB: u64 = 1 << 20;
        let mut trims = Trims::default();
        for (case, resident, used, due) in [
            ("a new process", 20, 15, false),
            ("pods come", 200, 180, false),
            ("they stay", 275, 250, false),
            ("half of them are gone", 275, 140, true),
            ("all are gone", 40, 10, true),
            ("given back", 40, 20, false),
            ("some free memory that cannot be given back", 41, 20, false),
            ("other pods come and go between two checks", 90, 20, true),
            ("given back again", 40, 20, false),
        ] {
            let now = HeapSize {
                resident: resident * MIB,
                used: used * MIB,
            };
            assert_eq!(trims.is_due(now), due, "{case}");
            if due {
                trims.trimmed(HeapSize {
                    resident: 40 * MIB,
                    used: 20 * MIB,
                });
            }
        }
    }

    #[test]
    fn this_process_has_a_heap() {
        // Without the black box the compiler leaves the allocation out.
        let kept = std::hint::black_box(vec![1_u8; 3 << 20]);
        let heap = heap().unwrap();
        assert!(heap.used >= kept.len() as u64, "{heap:?}");
        assert!(heap.resident >= kept.len() as u64, "{heap:?}");
        trim();
    }
}
