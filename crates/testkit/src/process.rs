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
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
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

type Order = Box<dyn FnOnce() + Send>;

/// Does the forking on the one thread that lives as long as the process: the death that a bound child is told of is
/// that of the *thread* that forked it, and test threads and blocking-pool threads come and go.
fn on_spawner<T: Send + 'static>(fork: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            end_with_cargo();
            orders.into_iter().for_each(|order| order());
        });
        sender
    });
    let (answer, told) = mpsc::sync_channel(1);
    let gone = |_| io::Error::other("the spawner thread is gone");
    spawner.send(Box::new(move || drop(answer.send(fork())))).map_err(|_| gone(()))?;
    told.recv().map_err(|_| gone(()))?
}

/// Starts `command` so that the kernel sends it `signal` when our process dies.
pub(crate) fn spawn_bound(mut command: Command, signal: i32) -> io::Result<Child> {
    bind_to_parent(&mut command, signal);
    on_spawner(move || command.spawn())
}

/// Starts `command` so that the kernel kills it when our process dies.
pub fn spawn(command: Command) -> io::Result<Child> {
    spawn_bound(command, libc::SIGKILL)
}

/// As [`spawn`], within a runtime.
pub fn spawn_async(mut command: tokio::process::Command) -> io::Result<tokio::process::Child> {
    bind_to_parent(command.as_std_mut(), libc::SIGKILL);
    let runtime = tokio::runtime::Handle::current();
    on_spawner(move || {
        let _inside = runtime.enter();
        command.spawn()
    })
}

/// For a command that ends before the thread does that starts it: the kernel kills it when that thread dies.
pub fn bind(command: &mut Command) {
    bind_to_parent(command, libc::SIGKILL);
}

/// Kills a process group when its pipe ends before it was told that there is nothing left to kill.
const GROUP_WATCHER: &str = r#"
trap '' INT TERM HUP QUIT
pid=
while read -r told; do pid=$told; done
[ -n "$pid" ] && kill -s KILL -- "-$pid" 2>/dev/null
"#;

/// A child with a process group of its own, of which nothing is left when the child has ended, this value is dropped,
/// or our process ends, however that happens. For programs whose own children are not bound to them, such as cargo and
/// shells.
pub struct Group {
    child: Child,
    watcher: Child,
    pipe: Option<ChildStdin>,
}

impl Group {
    pub fn spawn(mut command: Command) -> Result<Self> {
        let mut watcher = Command::new("sh")
            .args(["-c", GROUP_WATCHER, "watcher"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("the watcher shell did not start: `sh` must be on PATH")?;
        let mut pipe = watcher.stdin.take().context("the watcher has no standard input")?;
        command.process_group(0);
        let child = match spawn(command) {
            Ok(child) => child,
            Err(error) => {
                drop(pipe);
                watcher.wait()?;
                return Err(error.into());
            }
        };
        let told = writeln!(pipe, "{}", child.id());
        let group = Self { child, watcher, pipe: Some(pipe) };
        told.context("the watcher shell is gone: who killed it?")?;
        Ok(group)
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end of the child, and ends what is left of its group.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        wait_unreaped(self.child.id())?;
        self.end()
    }

    /// The child must not be reaped yet: then its number is still that of its group.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = end_group(self.child.id());
            let _ = writeln!(pipe);
        }
        let status = self.child.wait();
        self.watcher.wait()?;
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Waits until a child has ended, and leaves it to be reaped.
#[allow(unsafe_code)]
fn wait_unreaped(pid: u32) -> io::Result<()> {
    loop {
        // SAFETY: waitid writes only into `info`, for which all zeroes are a value.
        let outcome = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        match outcome {
            0 => return Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

#[allow(unsafe_code)]
fn end_group(leader: u32) -> io::Result<()> {
    let leader = i32::try_from(leader).map_err(io::Error::other)?;
    // SAFETY: kill takes two integers and touches no memory of ours.
    match unsafe { libc::kill(-leader, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A test program ends with the cargo that runs it, and with it all that it has started: cargo itself, when it is
/// killed, leaves it running. The setting is the calling thread's, and counts as long as that lives.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn end_with_cargo() {
    let parent = std::os::unix::process::parent_id();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm"));
    if name.is_ok_and(|name| name.trim_end() == "cargo") {
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // It may have died since it was asked for its name.
        if std::os::unix::process::parent_id() != parent {
            std::process::abort();
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_cargo() {}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn bind_to_parent(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl, signal, getppid and raise run: all async-signal-safe, none
    // allocates. It runs after the change of user, which would clear the setting.
    unsafe {
        command.pre_exec(move || {
            // A shell that runs us in the background has us ignore it, and all that we start with us.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
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

/// A process as it was seen: its number may be another's later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub pid: u32,
    pub name: String,
    began: String,
}

impl Seen {
    fn of(pid: u32) -> Option<(Self, u32)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Ended, and only not yet asked how.
        if matches!(fields.first(), Some(&"Z" | &"X")) {
            return None;
        }
        let name = head.split_once('(')?.1.to_owned();
        Some((Self { pid, name, began: (*fields.get(19)?).to_owned() }, fields.get(1)?.parse().ok()?))
    }

    pub fn lives(&self) -> bool {
        Self::of(self.pid).is_some_and(|(now, _)| now == *self)
    }
}

/// The children of a process, theirs, and so on (needs /proc; elsewhere none are seen).
pub fn descendants(pid: u32) -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(Seen, u32)> =
        entries.filter_map(|entry| Seen::of(entry.file_name().to_str()?.parse().ok()?)).collect();
    let (mut found, mut next) = (vec![pid], 0);
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(seen, _)| seen.pid));
        next += 1;
    }
    all.into_iter().map(|(seen, _)| seen).filter(|seen| found[1..].contains(&seen.pid)).collect()
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
