//! One small process per call that stands between the runner and the command.
//!
//! It adopts whatever the command leaves behind, ends all of it, and outlives none of it: when it is
//! gone, so is everything the call started. It hears the runner through a pipe, whose closing is an
//! order too, so that a runner that is killed leaves nothing running.
//!
//! It is a fork without exec of a process with many threads: only system calls, no memory, no locks.

use std::io;
use std::os::fd::RawFd;

pub(super) const ORDER_TERM: u8 = b'T';
pub(super) const ORDER_KILL: u8 = b'K';
/// First word of a report: the command ended, or it did not start.
pub(super) const ENDED: i32 = 1;
pub(super) const NOT_STARTED: i32 = 2;

/// While children are being ended.
const PAUSE_MS: libc::c_int = 5;
/// While they run: the bell rings when something happens, and this is for a bell that does not.
const LOOK_MS: libc::c_int = 1000;

/// Its ends of the two pipes.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub orders: RawFd,
    pub reports: RawFd,
}

/// Forks. Returns in the process that is to become the command; the other one never returns.
#[allow(unsafe_code)]
pub(super) fn split(ends: Ends) -> io::Result<()> {
    // SAFETY: this process has one thread, being fresh from a fork. Only system calls are made, on
    // memory of this stack. Signals are blocked across the fork because the handlers that the
    // supervisor inherits belong to the runner and must never run in it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        // Before there is a child: setting it would throw away the news of an early death.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
        // Not the library's fork, which would run the handlers of other libraries.
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD as libc::c_ulong, 0, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                Ok(())
            }
            command => supervise(command as libc::pid_t, ends),
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
fn supervise(command: libc::pid_t, ends: Ends) -> ! {
    // SAFETY: as for `split`; the descriptors are this process's own, and it only signals its own
    // children, none of which is reaped before it was signalled for the last time.
    unsafe {
        // Its memory is a copy of the runner's: nobody may look into it.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        keep_only(ends);
        let mut deaths: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut deaths);
        libc::sigaddset(&mut deaths, libc::SIGCHLD);
        let bell = libc::signalfd(-1, &deaths, libc::SFD_NONBLOCK);
        watch(command, ends.orders, bell);
        // The command is not reaped yet, so its number is still its group's and nobody else's.
        libc::kill(-command, libc::SIGKILL);
        let status = end_all(command, bell);
        report(ends.reports, ENDED, status);
        libc::_exit(0)
    }
}

/// Returns when the command has ended or is to be ended.
#[allow(unsafe_code)]
unsafe fn watch(command: libc::pid_t, orders: RawFd, bell: RawFd) {
    let ready = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
    loop {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut waits = [poll(orders), poll(bell)];
        let timeout = if bell < 0 { PAUSE_MS } else { LOOK_MS };
        // SAFETY: two structures on this stack.
        unsafe { libc::poll(waits.as_mut_ptr(), 2, timeout) };
        if waits[0].revents & ready != 0 {
            let mut order = 0u8;
            // SAFETY: one byte on this stack.
            match unsafe { libc::read(orders, (&raw mut order).cast(), 1) } {
                1 if order == ORDER_TERM => {
                    // SAFETY: the command's group; see `supervise`.
                    unsafe { libc::kill(-command, libc::SIGTERM) };
                }
                // Another order, or the runner is gone.
                _ => return,
            }
        }
        // SAFETY: as for this function.
        if unsafe { ended(command, bell) } {
            return;
        }
    }
}

/// Reaps orphans, but leaves the command itself to be reaped last.
#[allow(unsafe_code)]
unsafe fn ended(command: libc::pid_t, bell: RawFd) -> bool {
    // SAFETY: structures on this stack.
    unsafe {
        drain(bell);
        loop {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_ALL, 0, &mut info, how) == -1 || info.si_pid() == 0 {
                return false;
            }
            if info.si_pid() == command {
                return true;
            }
            libc::waitpid(info.si_pid(), std::ptr::null_mut(), 0);
        }
    }
}

/// Kills children until there are none. Children of the killed become children of this process, so
/// those that left the group are found as well.
#[allow(unsafe_code)]
unsafe fn end_all(command: libc::pid_t, bell: RawFd) -> i32 {
    let mut found = -1;
    loop {
        let mut status = 0;
        // SAFETY: structures on this stack; only own children are signalled.
        unsafe {
            match libc::waitpid(-1, &mut status, libc::WNOHANG) {
                -1 => return found,
                0 => {
                    kill_children();
                    let mut wait = libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 };
                    libc::poll(&mut wait, 1, PAUSE_MS);
                    drain(bell);
                }
                pid if pid == command => found = status,
                _ => {}
            }
        }
    }
}

#[allow(unsafe_code)]
unsafe fn drain(bell: RawFd) {
    let mut room = [0u8; 128];
    // SAFETY: the room is on this stack and as large as said; the descriptor does not block.
    unsafe { while libc::read(bell, room.as_mut_ptr().cast(), room.len()) > 0 {} }
}

/// The kernel's list of this process's children, in decimal with spaces between.
#[allow(unsafe_code)]
unsafe fn kill_children() {
    let mut room = [0u8; 4096];
    let mut pid: libc::pid_t = 0;
    // SAFETY: the room is on this stack and as large as said. The numbers are of children that this
    // process has not reaped, so they are nobody else's.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        loop {
            let length = libc::read(list, room.as_mut_ptr().cast(), room.len());
            let Ok(length @ 1..) = usize::try_from(length) else { break };
            for byte in room.iter().take(length) {
                if byte.is_ascii_digit() {
                    pid = pid.wrapping_mul(10).wrapping_add(i32::from(*byte - b'0'));
                } else {
                    if pid > 1 {
                        libc::kill(pid, libc::SIGKILL);
                    }
                    pid = 0;
                }
            }
        }
        libc::close(list);
    }
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
