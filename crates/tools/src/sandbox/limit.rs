//! How much a command can use.

use super::Limits;
use std::time::Duration;

/// A system call's number for the resource, and how much of it.
pub(crate) type Limit = (libc::c_int, u64);

/// The kernel counts the processes of a user, and other calls run as the same user: the hard limit
/// leaves room for them, and the watch over each call is the exact one.
const SHARED: u64 = 4;

pub(super) fn limits(limits: &Limits, user: Option<u32>, time: Duration) -> Vec<Limit> {
    let user = user.unwrap_or_else(super::enter::own_user);
    // A process that computes all the time ends soon after its call should have.
    let cpu_s = time.as_secs().saturating_add(2);
    let processes = threads_of(user).saturating_add(limits.processes.saturating_mul(SHARED));
    vec![
        (libc::RLIMIT_CPU as libc::c_int, cpu_s),
        (libc::RLIMIT_AS as libc::c_int, limits.memory_bytes),
        (libc::RLIMIT_FSIZE as libc::c_int, limits.file_bytes),
        (libc::RLIMIT_NOFILE as libc::c_int, limits.open_files),
        (libc::RLIMIT_NPROC as libc::c_int, processes),
        (libc::RLIMIT_CORE as libc::c_int, 0),
        (libc::RLIMIT_MSGQUEUE as libc::c_int, 0),
    ]
}

/// Of a program that runs for weeks and shares nothing but its machine with calls.
pub(super) fn lasting() -> Vec<Limit> {
    vec![(libc::RLIMIT_CORE as libc::c_int, 0)]
}

/// What the user runs already. The kernel does not limit root, so it is not worth counting.
fn threads_of(user: u32) -> u64 {
    if user == 0 {
        return 0;
    }
    let Ok(folder) = std::fs::read_dir("/proc") else { return 0 };
    let numbered = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = folder.flatten().filter(|entry| numbered(&entry.file_name()));
    let statuses = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    let field = |status: &str, name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    statuses
        .filter(|status| field(status, "Uid:") == Some(u64::from(user)))
        .filter_map(|status| field(&status, "Threads:"))
        .sum()
}
