//! Ends and reaps everything that descends from this process. There is no last round: it is over
//! when the kernel says that there are no children, and the runner watches the time.
//!
//! Runs in a fork without exec; see `supervisor`.

use super::descent::Descent;
use std::os::fd::RawFd;

/// Dying takes a moment, in which the bell mostly rings first.
const PAUSE_MS: libc::c_int = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// This is the first process of a name space: one signal reaches all others in it, and the kernel
    /// lets none of them fork meanwhile.
    Namespace,
    /// Each is looked for. Orphans become children of this process, so that none can hide, and what
    /// was killed forks no more: each round leaves only what was forked during it.
    Descent,
}

/// Reaps orphans, but leaves the command itself to be reaped last.
#[allow(unsafe_code)]
pub(super) unsafe fn ended(command: libc::pid_t, bell: RawFd) -> bool {
    // SAFETY: structures on this stack.
    unsafe {
        drain(bell);
        loop {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            if libc::waitid(libc::P_ALL, 0, &mut info, how) == -1 || info.si_pid() == 0 {
                return false;
            }
            if info.si_pid() == command {
                return true;
            }
            libc::waitpid(info.si_pid(), std::ptr::null_mut(), libc::__WALL);
        }
    }
}

/// Returns the wait status of the command when nothing is left.
#[allow(unsafe_code)]
pub(super) unsafe fn all(command: libc::pid_t, bell: RawFd, reach: Reach, descent: &mut Descent) -> i32 {
    let mut found = -1;
    loop {
        let mut status = 0;
        // SAFETY: structures on this stack; in its name space the first process is alone with those
        // it answers for.
        unsafe {
            match libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) {
                -1 => return found,
                0 => {
                    match reach {
                        Reach::Namespace => {
                            libc::kill(-1, libc::SIGKILL);
                        }
                        Reach::Descent => descent.kill(),
                    }
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
