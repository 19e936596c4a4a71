//! Finds what descends from this process: its children, theirs, and so on, by the kernel's lists.
//!
//! Runs in a fork without exec; see `supervisor`.

use super::proc::{self, Place};

/// Of one look. What does not fit is found by the next one, when these are gone.
const FOUND_MAX: usize = 4096;

#[derive(Clone, Copy)]
struct Found {
    process: i32,
    parent: i32,
}

pub(super) struct Descent {
    found: [Found; FOUND_MAX],
    count: usize,
}

impl Descent {
    pub(super) fn new() -> Self {
        Self { found: [Found { process: 0, parent: 0 }; FOUND_MAX], count: 0 }
    }

    /// Stops counting when it is enough: a list of thousands is no reason to be slow.
    pub(super) fn more_than(&mut self, most: u64) -> bool {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(FOUND_MAX - 1);
        self.begin();
        let mut next = 0;
        while self.count <= most {
            let Some(one) = self.at(next) else { return false };
            self.add_children(one.process);
            next += 1;
        }
        true
    }

    /// Kills each before its children are listed, so that the list cannot grow any more. If it dies
    /// before that, its children are this process's own when it looks again.
    #[allow(unsafe_code)]
    pub(super) fn kill(&mut self) {
        // SAFETY: always succeeds.
        let own = unsafe { libc::getpid() };
        // A /proc of another name space has other numbers: they would hit strangers.
        if proc::own_number() != Some(own) {
            return;
        }
        self.begin();
        let (children, mut next) = (self.count, 0);
        while let Some(one) = self.at(next) {
            if next < children {
                // SAFETY: the number of a child that is not reaped is nobody else's.
                unsafe { libc::kill(one.process, libc::SIGKILL) };
            } else {
                kill_grandchild(one, own);
            }
            self.add_children(one.process);
            next += 1;
        }
    }

    fn at(&self, place: usize) -> Option<Found> {
        self.found.get(..self.count)?.get(place).copied()
    }

    fn begin(&mut self) {
        self.count = 0;
        self.add_list(&Place::new().text(b"/proc/thread-self/children"), 0);
    }

    /// Each thread has the list of what it forked.
    fn add_children(&mut self, process: i32) {
        let tasks = Place::new().text(b"/proc/").number(process).text(b"/task");
        proc::each_entry(&tasks, |thread| self.add_list(&tasks.text(b"/").number(thread).text(b"/children"), process));
    }

    fn add_list(&mut self, list: &Place, parent: i32) {
        proc::each_number(list, |process| {
            if let Some(place) = self.found.get_mut(self.count) {
                *place = Found { process, parent };
                self.count += 1;
            }
        });
    }
}

/// Its parent may have reaped it since it was listed, and its number may be a stranger's: so it is
/// held first, then asked whose child it is.
#[allow(unsafe_code)]
fn kill_grandchild(one: Found, own: i32) {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: numbers only; the descriptor is this function's own.
    unsafe {
        let held = libc::syscall(libc::SYS_pidfd_open, one.process, 0);
        if held == -1 {
            return;
        }
        if proc::parent_of(one.process).is_some_and(|parent| parent == one.parent || parent == own) {
            libc::syscall(libc::SYS_pidfd_send_signal, held, libc::SIGKILL, none, 0);
        }
        libc::close(held as libc::c_int);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// Of this thread: the list is each thread's own, and other tests fork in theirs.
    fn sleepers(count: usize) -> Vec<Child> {
        (0..count).map(|_| Command::new("sleep").arg("1000").spawn().unwrap()).collect()
    }

    #[test]
    fn children_are_counted_up_to_what_is_asked_and_killed_with_theirs() {
        let mut descent = Box::new(Descent::new());
        let mut children = sleepers(3);
        assert!(descent.more_than(2) && !descent.more_than(3));
        let mut shell = Command::new("sh").args(["-c", "sleep 1000 & sleep 1000 & wait"]).spawn().unwrap();
        while !descent.more_than(5) {
            std::thread::yield_now();
        }
        assert!(!descent.more_than(6));
        let grandchildren: Vec<_> = (4..6).map(|place| descent.at(place).unwrap()).collect();
        assert!(grandchildren.iter().all(|one| one.parent == shell.id() as i32), "listed after their parent");
        descent.kill();
        children.iter_mut().chain([&mut shell]).for_each(|child| {
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(libc::SIGKILL));
        });
        for one in grandchildren {
            while proc::parent_of(one.process) == Some(one.parent) {
                std::thread::yield_now();
            }
        }
        assert!(!descent.more_than(0));
    }

    #[test]
    fn a_number_that_became_a_strangers_is_left_alone() {
        let mut stranger = sleepers(1).remove(0);
        let own = std::process::id() as i32;
        let listed = Found { process: stranger.id() as i32, parent: 1 };
        kill_grandchild(listed, 1);
        assert!(stranger.try_wait().unwrap().is_none());
        kill_grandchild(listed, own);
        assert!(!stranger.wait().unwrap().success());
    }
}
