//! Two small processes per call that stand between the runner and the command.
//!
//! The supervisor adopts whatever the command leaves behind, counts it, ends all of it and outlives
//! none of it. It hears the runner through a pipe, whose closing is an order too, so that a runner
//! that is killed leaves nothing running. Where the kernel allows, it is the first process of a
//! process name space, which cannot outlive it: then even its own violent end is everybody's.
//!
//! The guard is the supervisor's parent and the process that the runner waits for. It ends when
//! nothing is left, and does the rest of the work should the supervisor be killed.
//!
//! Both are forks without exec of a process with many threads: only system calls, no memory, no
//! locks, no panic.

use super::descent::Descent;
use super::reap::{self, Reach};
use std::io;
use std::os::fd::RawFd;

pub(super) const ORDER_TERM: u8 = b'T';
pub(super) const ORDER_KILL: u8 = b'K';
/// First word of a report: the command ended, or was ended for its many processes, or did not start.
pub(super) const ENDED: i32 = 1;
pub(super) const TOO_MANY: i32 = 2;
pub(super) const NOT_STARTED: i32 = 3;

/// Between two counts of a call's processes. A machine forks some ten thousand times a second: what a
/// bomb can grow to before it is seen follows from this, and so does how long its end takes.
pub(super) const LOOK_MS: libc::c_int = 20;
/// Above whatever has no right to more: a bomb must not keep its own end waiting. Neither of the two
/// computes for longer than it takes to read some lists. Children do not inherit it.
const REAL_TIME: libc::sched_param = libc::sched_param { sched_priority: 1 };
const ORDINARY: libc::sched_param = libc::sched_param { sched_priority: 0 };
/// Where real time is refused. Less, since the kernel may weigh sessions instead of processes, and
/// each process of a bomb can have a session of its own.
const URGENT: libc::c_int = -20;

#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub ends: Ends,
    /// Have a process name space if the kernel gives one. All is ended without as well, but not in
    /// one stroke.
    pub namespace: bool,
    /// Show the command a /proc that has the numbers of its own name space; not worth it where the
    /// walls keep it out of /proc.
    pub proc: bool,
    pub processes_max: u64,
    /// Between two counts.
    pub look_ms: libc::c_int,
}

/// Its ends of the two pipes.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub orders: RawFd,
    pub reports: RawFd,
}

/// Forks twice. Returns in the process that is to become the command; the others never return.
#[allow(unsafe_code)]
pub(super) fn split(plan: Plan) -> io::Result<()> {
    // SAFETY: this process has one thread, being fresh from a fork. Only system calls are made, on
    // memory of this stack. Signals are blocked across the forks because the handlers that the two
    // inherit belong to the runner and must never run in them.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        // Before there is a child: setting it would throw away the news of an early death.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        adopt()?;
        hurry();
        let spaces = libc::CLONE_NEWPID | if plan.proc { libc::CLONE_NEWNS } else { 0 };
        // Whatever is the matter with name spaces now, there is the other way.
        let own = plan.namespace.then(|| fork(spaces).ok()).flatten();
        match own.map_or_else(|| fork(0), Ok)? {
            0 => {}
            supervisor => guard(supervisor),
        }
        if own.is_some() {
            // Without a name space this would be wrong: what the command forked would live on.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            if plan.proc {
                mount_proc();
            }
        }
        adopt()?;
        // Before there is a command, which would have a head start on a busy machine.
        hurry();
        match fork(0)? {
            0 => {
                // The runner's own was lost on the way; a runner's privilege would be lost as well.
                libc::setpriority(libc::PRIO_PROCESS, 0, nice.max(0));
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                Ok(())
            }
            command => supervise(command, plan, if own.is_some() { Reach::Namespace } else { Reach::Descent }),
        }
    }
}

/// Orphans of this process's descendants become its children.
#[allow(unsafe_code)]
fn adopt() -> io::Result<()> {
    // SAFETY: numbers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Not the library's fork, which would run the handlers of other libraries.
#[allow(unsafe_code)]
unsafe fn fork(spaces: libc::c_int) -> io::Result<libc::pid_t> {
    let flags = (spaces | libc::SIGCHLD) as libc::c_ulong;
    // SAFETY: no memory is shared or passed; for the caller's one thread see `split`.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        process => Ok(process as libc::pid_t),
    }
}

/// Refused to all but root, whose processes are also the only ones without a limit.
#[allow(unsafe_code)]
fn hurry() {
    let policy = |policy: libc::c_int| policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: by system call, with a constant that the kernel reads; process 0 is this one.
    unsafe {
        let set = |policy: libc::c_int, with: &libc::sched_param| {
            libc::syscall(libc::SYS_sched_setscheduler, 0, policy, with)
        };
        if set(policy(libc::SCHED_RR), &REAL_TIME) == -1 && set(policy(libc::SCHED_OTHER), &ORDINARY) == 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, URGENT);
        }
    }
}

/// Where it fails, the command sees the numbers of the runner's name space, as in many containers.
#[allow(unsafe_code)]
unsafe fn mount_proc() {
    let (none, proc) = (std::ptr::null(), c"proc".as_ptr());
    let closed = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: constant texts. First nothing may go back to the machine's own mounts.
    unsafe {
        if libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()) == 0 {
            libc::mount(proc, c"/proc".as_ptr(), proc, closed, none.cast());
        }
    }
}

pub(super) fn report(fd: RawFd, tag: i32, value: i32) {
    let words = [tag.to_ne_bytes(), value.to_ne_bytes()];
    write_all(fd, words.as_flattened());
}

#[allow(unsafe_code)]
fn write_all(fd: RawFd, bytes: &[u8]) {
    // SAFETY: the bytes live on; a write this small to a pipe is whole or not at all.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

#[allow(unsafe_code)]
unsafe fn guard(supervisor: libc::pid_t) -> ! {
    // SAFETY: as for `split`; nothing in this process uses a descriptor any more.
    unsafe {
        settle();
        libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0);
        while libc::waitpid(supervisor, std::ptr::null_mut(), libc::__WALL) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
        // Nothing, unless the supervisor was killed and there is no name space that ended with it.
        reap::all(0, -1, Reach::Descent, &mut Descent::new());
        libc::_exit(0)
    }
}

#[allow(unsafe_code)]
unsafe fn supervise(command: libc::pid_t, plan: Plan, reach: Reach) -> ! {
    // SAFETY: as for `split`; the descriptors are this process's own, and it only signals its own
    // children, none of which is reaped before it was signalled for the last time.
    unsafe {
        settle();
        keep_only(plan.ends);
        let mut deaths: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut deaths);
        libc::sigaddset(&mut deaths, libc::SIGCHLD);
        let bell = libc::signalfd(-1, &deaths, libc::SFD_NONBLOCK);
        let mut descent = Descent::new();
        let tag = watch(command, plan, bell, &mut descent);
        // The command is not reaped yet, so its number is still its group's and nobody else's.
        libc::kill(-command, libc::SIGKILL);
        let status = reap::all(command, bell, reach, &mut descent);
        report(plan.ends.reports, tag, status);
        libc::_exit(0)
    }
}

/// What both do once they have forked: a child would inherit it.
#[allow(unsafe_code)]
unsafe fn settle() {
    // SAFETY: numbers and a constant text.
    unsafe {
        // Its memory is a copy of the runner's: nobody may look into it.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
    }
}

/// Returns when the command has ended or is to be ended, and why.
#[allow(unsafe_code)]
unsafe fn watch(command: libc::pid_t, plan: Plan, bell: RawFd, descent: &mut Descent) -> i32 {
    let orders = plan.ends.orders;
    let ready = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
    let mut looked_ms = 0;
    loop {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut waits = [poll(orders), poll(bell)];
        // SAFETY: two structures on this stack.
        unsafe { libc::poll(waits.as_mut_ptr(), 2, plan.look_ms) };
        if waits[0].revents & ready != 0 {
            let mut order = 0u8;
            // SAFETY: one byte on this stack.
            match unsafe { libc::read(orders, (&raw mut order).cast(), 1) } {
                1 if order == ORDER_TERM => {
                    // SAFETY: the command's group; see `supervise`.
                    unsafe { libc::kill(-command, libc::SIGTERM) };
                }
                // Another order, or the runner is gone.
                _ => return ENDED,
            }
        }
        // SAFETY: as for this function.
        if unsafe { reap::ended(command, bell) } {
            return ENDED;
        }
        // By the clock, since a bomb rings the bell all the time.
        let now_ms = clock_ms();
        if now_ms.wrapping_sub(looked_ms) >= i64::from(plan.look_ms) {
            looked_ms = now_ms;
            if descent.more_than(plan.processes_max) {
                return TOO_MANY;
            }
        }
    }
}

#[allow(unsafe_code)]
fn clock_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000)
}

/// Also the standard ones and the runner's: a pipe that the supervisor held would never end.
#[allow(unsafe_code)]
unsafe fn keep_only(ends: Ends) {
    let (low, high) = (ends.orders.min(ends.reports) as u32, ends.orders.max(ends.reports) as u32);
    // SAFETY: numbers only; nothing in this process uses the others any more.
    let close = |from: u32, to: u32| unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    if low > 0 {
        close(0, low - 1);
    }
    if high > low + 1 {
        close(low + 1, high - 1);
    }
    close(high + 1, u32::MAX);
}
