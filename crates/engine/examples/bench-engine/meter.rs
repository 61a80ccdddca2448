//! CPU time and allocations of pieces of work.

#![allow(unsafe_code, reason = "counting allocations needs an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static COUNTING: Counting = Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: passes every call to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_add(size, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that are allocated now.
pub(crate) fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

#[derive(Default)]
pub(crate) struct Meter {
    /// CPU time of each piece, in nanoseconds.
    pieces: Vec<u64>,
    allocations: usize,
}

pub(crate) struct Figures {
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// Per piece.
    pub(crate) allocations: f64,
}

/// The cost of one piece of work.
#[derive(Default, Clone, Copy)]
pub(crate) struct Piece {
    ns: u64,
    allocations: usize,
}

pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Piece) {
    let (allocations, started) = (ALLOCATIONS.load(Ordering::Relaxed), cpu_ns());
    let result = work();
    let (ended, after) = (cpu_ns(), ALLOCATIONS.load(Ordering::Relaxed));
    let piece = Piece {
        ns: ended - started,
        allocations: after - allocations,
    };
    (result, piece)
}

impl Meter {
    pub(crate) fn add(&mut self, piece: Piece) {
        self.pieces.push(piece.ns);
        self.allocations += piece.allocations;
    }

    pub(crate) fn figures(mut self) -> Figures {
        self.pieces.sort_unstable();
        let count = self.pieces.len().max(1);
        let at = |percent: usize| {
            let index = (self.pieces.len() * percent / 100).min(count - 1);
            self.pieces.get(index).copied().unwrap_or(0)
        };
        Figures {
            mean_ns: self.pieces.iter().sum::<u64>() as f64 / count as f64,
            p50_ns: at(50),
            p99_ns: at(99),
            allocations: self.allocations as f64 / count as f64,
        }
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
