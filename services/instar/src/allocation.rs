//! Allocations of this process, counted and told on `/metrics`. Only in builds with the feature `count-allocations`.
//!
//! It must not know who asks.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How old a number on `/metrics` may be.
const TOLD_EVERY: Duration = Duration::from_millis(10);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static MADE: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The usual allocator, counted. Memory that grows counts as one allocation more, of what it grows by.
struct Counting;

fn count(bytes: usize) {
    MADE.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: each call is handed on as it came; counting allocates nothing and cannot unwind.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        unsafe { MiMalloc.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { MiMalloc.dealloc(ptr, layout) }
    }
}

/// Keeps the two numbers of `/metrics` fresh until the process ends.
pub(crate) fn tell() {
    let (made, bytes) = (metrics::counter!("instar.allocations"), metrics::counter!("instar.allocated_bytes"));
    tokio::spawn(async move {
        loop {
            made.absolute(MADE.load(Ordering::Relaxed));
            bytes.absolute(BYTES.load(Ordering::Relaxed));
            tokio::time::sleep(TOLD_EVERY).await;
        }
    });
}
