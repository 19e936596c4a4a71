//! Goes behind the walls. Runs between fork and exec in a copy of a process with many threads: only
//! system calls, no memory, no locks.

use super::limit::Limit;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const LANDLOCK_CREATE_RULESET_VERSION: libc::c_long = 1;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const CAPABILITIES_MAX: libc::c_ulong = 63;

/// How far it came; told to the runner when it is not far enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Session = 1,
    Limits,
    User,
    Capabilities,
    Privileges,
    Landlock,
    Seccomp,
    Descriptors,
    Program,
}

impl Stage {
    pub(crate) fn of(number: i32) -> Option<Stage> {
        use Stage::*;
        let all = [Session, Limits, User, Capabilities, Privileges, Landlock, Seccomp, Descriptors, Program];
        all.into_iter().find(|stage| *stage as i32 == number)
    }
}

pub(crate) struct Entry {
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) filters: Vec<Vec<libc::sock_filter>>,
    pub(super) limits: Vec<Limit>,
    pub(super) run_as: Option<(u32, u32)>,
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Entry {
    /// The calling process is what runs the command. `at` always has the stage it is in.
    pub(crate) fn enter(&self, at: &mut Stage) -> io::Result<()> {
        *at = Stage::Session;
        session()?;
        *at = Stage::Limits;
        self.limits.iter().try_for_each(|limit| set_limit(*limit))?;
        *at = Stage::User;
        self.run_as.map_or(Ok(()), |(user, group)| become_user(user, group))?;
        *at = Stage::Capabilities;
        drop_capabilities()?;
        *at = Stage::Privileges;
        no_new_privileges()?;
        die_with_parent()?;
        *at = Stage::Landlock;
        self.ruleset.as_ref().map_or(Ok(()), restrict)?;
        *at = Stage::Descriptors;
        close_on_exec()?;
        *at = Stage::Seccomp;
        self.filters.iter().try_for_each(|filter| load(filter))?;
        *at = Stage::Program;
        Ok(())
    }
}

#[allow(unsafe_code)]
fn session() -> io::Result<()> {
    // SAFETY: no memory is passed; setsid and umask are async-signal-safe.
    unsafe {
        libc::umask(0o077);
        done(libc::setsid().into())
    }
}

#[allow(unsafe_code)]
fn set_limit((resource, value): Limit) -> io::Result<()> {
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: process 0 is this one; the kernel writes to `old` only, which lives on.
    unsafe { done(libc::syscall(libc::SYS_prlimit64, 0, resource, none, &mut old))? };
    // Without privileges a hard limit cannot be raised, and nobody asks for that.
    let value = value.min(old.rlim_max);
    let new = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: the kernel reads `new`, which lives on.
    unsafe { done(libc::syscall(libc::SYS_prlimit64, 0, resource, &new, none)) }
}

/// By system call: the library's functions would speak to threads that this copy does not have.
#[allow(unsafe_code)]
fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: numbers only; an empty list of groups needs no memory.
    unsafe {
        done(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()))?;
        done(libc::syscall(libc::SYS_setresgid, group, group, group))?;
        done(libc::syscall(libc::SYS_setresuid, user, user, user))
    }
}

/// Root without capabilities is a user like others, who owns root's files.
#[allow(unsafe_code)]
fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: CAPABILITY_VERSION, pid: 0 };
    // Two words each of effective, permitted and inheritable.
    let nothing = [0u32; 6];
    // SAFETY: numbers for prctl; for capset two structures of the kernel's layout that live on.
    unsafe {
        // Fails past the last capability and for users that have none to drop: both are fine,
        // since below nothing is left of the present ones and new ones are ruled out.
        for capability in 0..=CAPABILITIES_MAX {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        done(libc::syscall(libc::SYS_capset, &header, nothing.as_ptr()))
    }
}

#[allow(unsafe_code)]
fn no_new_privileges() -> io::Result<()> {
    // SAFETY: numbers only.
    unsafe { done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into()) }
}

/// Should the supervisor itself be killed, the command goes with it. A change of user forgets this,
/// so it comes after.
#[allow(unsafe_code)]
fn die_with_parent() -> io::Result<()> {
    // SAFETY: numbers only.
    unsafe { done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into()) }
}

#[allow(unsafe_code)]
fn restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: a descriptor that this process holds, and no flags.
    unsafe { done(libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0)) }
}

/// All but the three standard ones; those that tell the runner of a failed start close by exec.
#[allow(unsafe_code)]
fn close_on_exec() -> io::Result<()> {
    // SAFETY: numbers only; descriptors stay open until exec.
    unsafe { done(libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)) }
}

#[allow(unsafe_code)]
fn load(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which it only reads and which lives on.
    unsafe { done(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program, 0, 0).into()) }
}

#[allow(unsafe_code)]
pub(super) fn own_user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

#[allow(unsafe_code)]
pub(super) fn landlock_abi() -> u32 {
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel only says its version and reads no memory.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, LANDLOCK_CREATE_RULESET_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Asks whether the action that the filters use is known, which changes nothing.
#[allow(unsafe_code)]
pub(super) fn seccomp_filters() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one number, which lives on.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 }
}

/// Makes one, in which a process ends at once.
#[allow(unsafe_code)]
pub(super) fn pid_namespaces() -> bool {
    // Without a signal at its end: those who wait for any child of the runner do not see this one.
    let flags = libc::CLONE_NEWPID as libc::c_ulong;
    // SAFETY: no memory is shared or passed, and the copy of this process does nothing but end.
    unsafe {
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            -1 => false,
            0 => libc::_exit(0),
            process => {
                libc::waitpid(process as libc::pid_t, std::ptr::null_mut(), libc::__WALL);
                true
            }
        }
    }
}
