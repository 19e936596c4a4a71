//! Child processes that cannot outlive us, and the few signals that fault tests send.
//!
//! Two nets are stretched under each child. The kernel signals it when we die (where there is
//! `PR_SET_PDEATHSIG`); and a watcher, a small shell that holds the other end of a pipe of ours,
//! sees the end of that pipe even after `kill -9`, ends whatever still lives in the child's folder
//! and removes the folder.
//!
//! It must not know which server it starts.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Ends everything whose working folder is inside `$1` (or, without /proc, the last pid told),
/// politely with signal `$2` and after two seconds with KILL, then removes the folder. A Postgres
/// that was killed leaves a shared memory segment behind, whose number stands in its
/// postmaster.pid.
const WATCHER: &str = r#"
trap '' INT TERM HUP QUIT
dir=$1 pid=
while read -r told; do pid=$told; done
living() {
  if [ -d /proc/self ]; then
    ls -l /proc/[0-9]*/cwd 2>/dev/null | sed -n "s|.* /proc/\([0-9]*\)/cwd -> $dir\(/.*\)\{0,1\}\$|\1|p"
  elif [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
    echo "$pid"
  fi
}
[ -n "$pid" ] && kill -s "$2" "$pid" 2>/dev/null
round=0
while left=$(living); [ -n "$left" ] && [ "$round" -lt 200 ]; do
  [ "$round" -ge 40 ] && kill -s KILL $left 2>/dev/null
  round=$((round + 1))
  sleep 0.05
done
segment=$(sed -n '7s/.* //p' "$dir/data/postmaster.pid" 2>/dev/null)
[ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
rm -rf "$dir"
"#;

/// A folder that disappears, with all that runs in it, when this value is dropped or our process
/// ends.
pub(crate) struct Guard {
    dir: PathBuf,
    watcher: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// `politely` is the name of the signal tried first, as `kill -s` spells it.
    pub(crate) fn over(dir: &Path, politely: &str) -> Result<Self> {
        let mut watcher = Command::new("sh")
            .args(["-c", WATCHER, "watcher"])
            .arg(dir)
            .arg(politely)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Its own group: the interrupt key of a terminal must reach us, not it.
            .process_group(0)
            .spawn()
            .context("the watcher shell did not start: `sh` must be on PATH")?;
        let pipe = watcher.stdin.take();
        Ok(Self { dir: dir.to_owned(), watcher, pipe })
    }

    /// Tells the watcher whom to end; `None` when the child was reaped and its number may be given
    /// again.
    pub(crate) fn tell(&mut self, pid: Option<u32>) -> Result<()> {
        let pipe = self.pipe.as_mut().context("the watcher was already dismissed")?;
        let line = pid.map(|pid| pid.to_string()).unwrap_or_default();
        writeln!(pipe, "{line}").context("the watcher shell is gone: who killed it?")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.watcher.wait();
        // Only when the watcher itself was killed is there anything left to remove.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

type Order = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts `command` so that the kernel sends it `signal` when our process dies.
///
/// The kernel means the death of the *thread* that forked, and test threads and blocking-pool
/// threads come and go; hence the one thread that lives as long as the process and does all the
/// forking.
pub(crate) fn spawn_bound(mut command: Command, signal: i32) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    bind_to_parent(&mut command, signal);
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, child) = mpsc::sync_channel(1);
    let gone = |_| io::Error::other("the spawner thread is gone");
    spawner.send((command, answer)).map_err(|_| gone(()))?;
    child.recv().map_err(|_| gone(()))?
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn bind_to_parent(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl, getppid and raise run: all async-signal-safe, none
    // allocates. It runs after the change of user, which would clear the setting.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(io::Error::last_os_error());
            }
            // We may have died between the fork and the line above.
            if libc::getppid() as u32 != parent {
                libc::raise(libc::SIGKILL);
            }
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn bind_to_parent(_: &mut Command, _: i32) {}

/// Sends a signal; an error when there is no such process or it is not ours.
#[allow(unsafe_code)]
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: kill takes two integers and touches no memory of ours.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The crash no handler sees.
pub fn kill9(pid: u32) -> io::Result<()> {
    signal(pid, libc::SIGKILL)
}

/// Freezes a process, as a long pause of its machine would.
pub fn pause(pid: u32) -> io::Result<()> {
    signal(pid, libc::SIGSTOP)
}

/// Thaws a process frozen by [`pause`].
pub fn resume(pid: u32) -> io::Result<()> {
    signal(pid, libc::SIGCONT)
}

/// The processes whose working folder is `dir` or below it (needs /proc; elsewhere none are seen).
pub fn inside(dir: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            std::fs::read_link(entry.path().join("cwd")).ok()?.starts_with(dir).then_some(pid)
        })
        .collect()
}

/// Waits for the end of `child`; false when `bound` passes first.
pub(crate) fn ended_within(child: &mut Child, bound: Duration) -> io::Result<bool> {
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > bound {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

#[allow(unsafe_code)]
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid cannot fail and has no arguments.
    unsafe { libc::geteuid() == 0 }
}
