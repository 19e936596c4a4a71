//! Which files a command can reach.

use super::{Room, Settings};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope, path_beneath_rules,
};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The newest rights this file has thought about. Later kernels have more, older ones fewer; what
/// the kernel does not know it does not restrict, which `seccomp` makes up for where it matters.
const KNOWN: ABI = ABI::V6;

const SYSTEM: [&str; 8] = ["/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives"];

/// Of the machine's settings only what programs cannot start or speak TLS without. Neither the
/// rest of the folder nor /proc, /sys, /run, /var and the homes.
const SETTINGS: [&str; 18] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/mime.types",
];
const SOURCES: [&str; 4] = ["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn ruleset(settings: &Settings, room: &Room<'_>) -> Result<OwnedFd, String> {
    let created = build(settings, room).map_err(|error| format!("Landlock refused the rules: {error}"))?;
    let ruleset = beneath(created, room.scratch, mine())?;
    let ruleset = match room.workspace {
        Some((folder, true)) => beneath(ruleset, folder, mine())?,
        Some((folder, false)) => beneath(ruleset, folder, AccessFs::from_read(KNOWN))?,
        None => ruleset,
    };
    let fd: Option<OwnedFd> = ruleset.into();
    fd.ok_or_else(|| "the kernel has no Landlock".to_owned())
}

fn build(settings: &Settings, room: &Room<'_>) -> Result<RulesetCreated, landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        // A command signals its own kind only: not the runner, not other calls.
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
    if !room.network {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let read = AccessFs::from_read(KNOWN);
    ruleset
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(SETTINGS, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(SOURCES, AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(&settings.read_paths, read))
}

/// Everything but making devices.
fn mine() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// Unlike the system's folders this one must be there.
fn beneath(ruleset: RulesetCreated, folder: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    let opened = PathFd::new(folder).map_err(|error| format!("the work folder cannot be opened: {error}"))?;
    ruleset.add_rule(PathBeneath::new(opened, access)).map_err(|error| format!("Landlock refused a folder: {error}"))
}
