//! Ways out of the sandbox. A probe says ESCAPED when it got out and `held` when it did not; saying
//! nothing counts as neither. Run as root they try more than a user could, and are held as well.

use crate::kit::{PYTHON, Yard, open_to_all, text};
use instar_core::rune::payload::ResultStatus;
use instar_tools::sandbox::Mode;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use tempfile::TempDir;

const LIMIT_MS: u64 = 15_000;

/// A folder outside with a secret, a program and a socket in it, open to every user: only the
/// sandbox stands before it.
struct Outside {
    folder: TempDir,
    port: u16,
    _listeners: (std::net::TcpListener, UnixListener),
}

impl Outside {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("secret"), "canary-51c2").unwrap();
        std::fs::write(at("program"), "#!/bin/sh\necho ESCAPED\n").unwrap();
        for name in ["secret", "program"] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let unix = UnixListener::bind(at("socket")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        open_to_all(folder.path());
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        Self { port: tcp.local_addr().unwrap().port(), folder, _listeners: (tcp, unix) }
    }

    fn fill(&self, script: &str) -> String {
        script
            .replace("OUT", &self.folder.path().display().to_string())
            .replace("PORT", &self.port.to_string())
            .replace("RUNNER", &std::process::id().to_string())
    }

    fn python(&self, body: &str) -> String {
        format!("{PRELUDE}try:\n {}\n print('ESCAPED')\nexcept Exception as e: print('held', repr(e))", self.fill(body))
    }

    fn untouched(&self) {
        let mut names: Vec<_> =
            self.folder.path().read_dir().unwrap().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["program", "secret", "socket"]);
        assert_eq!(std::fs::read_to_string(self.folder.path().join("secret")).unwrap(), "canary-51c2");
    }
}

const PRELUDE: &str = "import os, socket, ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def call(*a):
 r = libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
 if r == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def is_open(n):
 try: return bool(os.fstat(n))
 except OSError: return False
";

const SHELL: &[(&str, &str)] = &[
    ("write outside", "echo x > OUT/new && echo ESCAPED; echo held"),
    ("write to /tmp", "echo x > /tmp/instar-probe && echo ESCAPED; echo held"),
    ("append to a file outside", "echo x >> OUT/secret && echo ESCAPED; echo held"),
    ("remove a file outside", "rm -f OUT/secret && echo ESCAPED; echo held"),
    ("make a folder outside", "mkdir OUT/folder && echo ESCAPED; echo held"),
    ("read a secret", "cat OUT/secret && echo ESCAPED; echo held"),
    ("list a folder", "ls OUT && echo ESCAPED; echo held"),
    ("follow a link out", "ln -s OUT/secret link; cat link && echo ESCAPED; echo held"),
    ("follow a link to a folder", "ln -s OUT link; echo x > link/new && echo ESCAPED; echo held"),
    ("link a secret in", "ln OUT/secret here && cat here && echo ESCAPED; echo held"),
    ("move a secret in", "mv OUT/secret here && echo ESCAPED; echo held"),
    ("climb by dots", "cat ../../../../../../OUT/secret && echo ESCAPED; echo held"),
    ("run a program outside", "OUT/program; echo held"),
    ("read the runner's environment", "cat /proc/RUNNER/environ && echo ESCAPED; echo held"),
    ("read the supervisor's environment", "cat /proc/$PPID/environ && echo ESCAPED; echo held"),
    ("read the supervisor's memory map", "cat /proc/$PPID/maps && echo ESCAPED; echo held"),
    ("list processes", "ls /proc/ && echo ESCAPED; echo held"),
    ("write to /proc", "echo 1 > /proc/sys/kernel/core_pattern && echo ESCAPED; echo held"),
    ("look into /sys", "ls /sys/ && echo ESCAPED; echo held"),
    ("read shadow passwords", "cat /etc/shadow && echo ESCAPED; echo held"),
    ("look into homes", "ls /root /home && echo ESCAPED; echo held"),
    ("write to the system", "echo x > /usr/bin/instar-probe && echo ESCAPED; echo held"),
    ("make a device", "mknod disk b 8 0 && echo ESCAPED; mknod null c 1 3 && echo ESCAPED; echo held"),
    ("signal the runner", "kill -0 RUNNER && echo ESCAPED; echo held"),
    ("signal the supervisor", "kill -0 $PPID && echo ESCAPED; echo held"),
    ("a set-user-id program", "cp /bin/sh s && chmod 4755 s && echo ESCAPED; echo held"),
    ("give a file away", "touch f; chown 12345 f && echo ESCAPED; echo held"),
    ("mount", "mount -t tmpfs none . && echo ESCAPED; echo held"),
    ("new name spaces", "unshare -Ur true && echo ESCAPED; unshare -n true && echo ESCAPED; echo held"),
    ("change root", "chroot / true && echo ESCAPED; echo held"),
    ("leave the session", "setsid true && echo ESCAPED; echo held"),
];

const BASH: &[(&str, &str)] = &[
    ("connect by TCP", "(exec 3<>/dev/tcp/127.0.0.1/PORT) && echo ESCAPED; echo held"),
    ("send by UDP", "(exec 3<>/dev/udp/127.0.0.1/53) && echo ESCAPED; echo held"),
    ("raise a limit", "ulimit -Hn 100000 && echo ESCAPED; echo held"),
];

/// Bodies that raise when they are held.
const PYTHON_PROBES: &[(&str, &str)] = &[
    ("inherited descriptors", "assert any(is_open(n) for n in range(3, 256))"),
    ("a TCP socket", "socket.socket()"),
    ("an IPv6 socket", "socket.socket(socket.AF_INET6)"),
    ("a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    ("a packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("a netlink socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    ("a Unix socket of this machine", "socket.socket(socket.AF_UNIX).connect('OUT/socket')"),
    ("a vsock", "socket.socket(40, socket.SOCK_STREAM)"),
    ("truncate a file outside", "os.truncate('OUT/secret', 0)"),
    ("more limits for the runner", "import resource; resource.prlimit(RUNNER, resource.RLIMIT_NOFILE, (10, 10))"),
    ("a set-user-id file from the start", "os.close(os.open('s', os.O_CREAT|os.O_WRONLY, 0o4755))"),
    ("a descriptor by handle", "call(304, -100, 0, 0)"),
    ("ptrace the supervisor", "call(101, 16, os.getppid(), 0, 0)"),
    ("be traced", "call(101, 0, 0, 0, 0)"),
    ("read another process", "call(310, os.getppid(), 0, 0, 0, 0, 0)"),
    ("write another process", "call(311, os.getppid(), 0, 0, 0, 0, 0)"),
    ("io_uring", "call(425, 8, ctypes.create_string_buffer(120))"),
    ("bpf", "call(321, 0, ctypes.create_string_buffer(120), 120)"),
    ("perf events", "call(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)"),
    ("userfaultfd", "call(323, 1)"),
    ("keys", "call(250, 0, -3, 1)"),
    ("a new key", "call(248, b'user', b'instar', b'x', 1, -3)"),
    ("setns", "call(308, 0, 0)"),
    ("a user name space by clone", "call(56, 0x10000000 | 17, 0, 0, 0, 0)"),
    ("clone3", "call(435, ctypes.create_string_buffer(88), 88)"),
    ("openat2", "call(437, -100, b'f', ctypes.create_string_buffer(24), 24)"),
    ("kexec", "call(246, 0, 0, 0, 0)"),
    ("load a module", "call(175, 0, 0, b'')"),
    ("a new mount", "call(430, b'tmpfs', 0)"),
    ("the other numbering", "call(0x40000000 | 39)"),
    ("the other numbering's ptrace", "call(0x40000000 | 521, 0, 0, 0, 0)"),
    ("shared memory that stays", "call(29, 0, 4096, 0o1600)"),
    ("leave the group", "os.setpgid(0, 0)"),
    ("privileges", "assert libc.prctl(39, 0, 0, 0, 0) != 1"),
    ("capabilities", "os.setuid(12345)"),
    ("much memory", "bytearray(5 << 30)"),
    ("many files", "[open('/dev/null') for _ in range(1000)]"),
    ("a large file", "f = open('f', 'wb'); f.seek(1 << 30); f.write(b'x'); f.close()"),
    ("another user's process by pidfd", "os.pidfd_open(RUNNER) and signal.pidfd_send_signal(os.pidfd_open(RUNNER), 0)"),
];

/// The numbers of system calls are this architecture's.
fn python() -> bool {
    Path::new(PYTHON).exists() && cfg!(target_arch = "x86_64")
}

async fn held(yard: &Yard, outside: &Outside, name: &str, command: &[&str]) -> Option<String> {
    let outcome = yard.run(command, LIMIT_MS).await;
    let text = text(&outcome);
    let well = outcome.status == ResultStatus::Success && text.contains("held");
    outside.untouched();
    (text.contains("ESCAPED") || text.contains("canary") || !well).then(|| format!("{name}: {outcome:?}"))
}

async fn all_held(yard: Yard) {
    let outside = Outside::new();
    let mut out = Vec::new();
    for (name, script) in SHELL {
        out.extend(held(&yard, &outside, name, &["sh", "-c", &outside.fill(script)]).await);
    }
    for (name, script) in BASH {
        out.extend(held(&yard, &outside, name, &["bash", "-c", &outside.fill(script)]).await);
    }
    if python() {
        for (name, body) in PYTHON_PROBES {
            out.extend(held(&yard, &outside, name, &[PYTHON, "-c", &outside.python(body)]).await);
        }
    }
    assert!(out.is_empty(), "{} got out or did not say:\n{}", out.len(), out.join("\n"));
    assert!(!Path::new("/tmp/instar-probe").exists() && !Path::new("/usr/bin/instar-probe").exists());
}

#[tokio::test]
async fn no_probe_gets_out_as_the_user_of_the_runner() {
    all_held(Yard::plain()).await;
}

#[tokio::test]
async fn no_probe_gets_out_where_there_are_no_name_spaces() {
    all_held(Yard::without_namespaces(|_| ())).await;
}

#[tokio::test]
async fn no_probe_gets_out_as_a_user_of_its_own() {
    let root = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0;
    if root {
        all_held(Yard::new(|settings| settings.sandbox.run_as = Some((65534, 65534)))).await;
    }
}

/// Without walls these get out: so it is the walls that hold them, not a mistake in the probe.
#[tokio::test]
async fn the_probes_would_notice() {
    let outside = Outside::new();
    // A name space is a wall as well: the runner has no number in it.
    let yard = Yard::without_namespaces(|settings| settings.sandbox.sandbox = Mode::Off);
    let harmless = [
        "read a secret",
        "list a folder",
        "follow a link out",
        "climb by dots",
        "run a program outside",
        "list processes",
        "look into /sys",
        "signal the runner",
        "leave the session",
        "a set-user-id program",
        "connect by TCP",
        "a TCP socket",
        "a Unix socket of this machine",
        "io_uring",
        "be traced",
        "a set-user-id file from the start",
    ];
    for name in harmless {
        let of = |list: &[(&str, &'static str)]| list.iter().find(|probe| probe.0 == name).map(|probe| probe.1);
        let command = match (of(SHELL), of(BASH), of(PYTHON_PROBES)) {
            (Some(script), ..) | (_, Some(script), _) => vec!["bash".to_owned(), "-c".to_owned(), outside.fill(script)],
            (.., Some(body)) if python() => vec![PYTHON.to_owned(), "-c".to_owned(), outside.python(body)],
            (.., found) => {
                assert!(found.is_some(), "{name}");
                continue;
            }
        };
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        let outcome = yard.run(&words, LIMIT_MS).await;
        assert!(text(&outcome).contains("ESCAPED"), "{name}: {outcome:?}");
    }
}
