//! Which system calls a command can make. What is refused says EPERM, so that programs see a
//! refusal and not a death.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever their arguments: they look into other processes, change the kernel or the
/// machine, make new name spaces, go round the filter (io_uring) or leave something behind that
/// outlives the call (keys, System V objects).
const REFUSED: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_vhangup,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    // A command cannot leave its process group: then one signal to the group reaches all of it at
    // once, however fast it forks.
    libc::SYS_setsid,
    libc::SYS_setpgid,
];
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
const SYS_FCHMODAT2: c_long = 452;
/// Calls that give a file its mode, and which argument the mode is.
const SET_MODE: &[(c_long, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (SYS_FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const SET_MODE_HERE: &[(c_long, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const SET_MODE_HERE: &[(c_long, u8)] = &[];
/// Typing into a terminal on somebody's behalf.
const TERMINAL_REQUESTS: [u64; 2] = [0x5412, 0x541c];
const SOCKET_TYPE_MASK: u64 = 0xf;

pub(super) fn filters(network: bool, landlock_abi: u32) -> Result<Vec<Vec<libc::sock_filter>>, String> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(|error| format!("no seccomp here: {error}"))?;
    let rules = rules(network, landlock_abi).map_err(|error| format!("the seccomp rules are wrong: {error}"))?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let main = compile(rules, refuse, arch)?;
    // Their flags are in memory, where a filter cannot look. Programs that hear ENOSYS use clone and
    // openat.
    let by_memory = Rules::from([(libc::SYS_clone3, vec![]), (libc::SYS_openat2, vec![])]);
    let by_memory = compile(by_memory, SeccompAction::Errno(libc::ENOSYS as u32), arch)?;
    Ok(vec![plain(&by_memory), plain(&main)])
}

fn rules(network: bool, landlock_abi: u32) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, vec![])).collect();
    // Before its third version Landlock does not see this one.
    if landlock_abi < 3 {
        rules.insert(libc::SYS_truncate, vec![]);
    }
    let clone = NAMESPACES.map(|flag| when(&[(0, SeccompCmpOp::MaskedEq(flag as u64), flag as u64)]));
    rules.insert(libc::SYS_clone, clone.into_iter().collect::<Result<_, _>>()?);
    let ioctl = TERMINAL_REQUESTS.map(|request| when(&[(1, SeccompCmpOp::Eq, request)]));
    rules.insert(libc::SYS_ioctl, ioctl.into_iter().collect::<Result<_, _>>()?);
    // A program that runs as its owner: root's, where commands run as root.
    for (call, place) in SET_MODE.iter().chain(SET_MODE_HERE) {
        let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
        let refused = bits.map(|bit| when(&[(*place, SeccompCmpOp::MaskedEq(bit), bit)]));
        rules.insert(*call, refused.into_iter().collect::<Result<_, _>>()?);
    }
    let created = |flags: u8, mode: u8| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let creat = libc::O_CREAT as u64;
        let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
        let refused = bits.map(|bit| {
            when(&[(flags, SeccompCmpOp::MaskedEq(creat), creat), (mode, SeccompCmpOp::MaskedEq(bit), bit)])
        });
        refused.into_iter().collect()
    };
    rules.insert(libc::SYS_openat, created(2, 3)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, created(1, 2)?);
    // Limits of other processes, the runner's for one.
    rules.insert(libc::SYS_prlimit64, vec![when(&[(0, SeccompCmpOp::Ne, 0)])?]);
    rules.insert(libc::SYS_socket, if network { sockets()? } else { vec![] });
    Ok(rules)
}

/// Internet sockets that are not raw. Unix sockets would reach the services of this machine.
fn sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let (inet, inet6) = (libc::AF_INET as u64, libc::AF_INET6 as u64);
    Ok(vec![
        when(&[(0, SeccompCmpOp::Ne, inet), (0, SeccompCmpOp::Ne, inet6)])?,
        when(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK), libc::SOCK_RAW as u64)])?,
    ])
}

/// The kernel takes 32 bits of all these arguments: so does the filter, or high bits would pass it.
fn when(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let one = |(place, operator, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*place, SeccompCmpArgLen::Dword, operator.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(one).collect::<Result<_, _>>()?)
}

fn compile(rules: Rules, action: SeccompAction, arch: TargetArch) -> Result<BpfProgram, String> {
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| format!("the seccomp filter is wrong: {error}"))
}

fn plain(program: &BpfProgram) -> Vec<libc::sock_filter> {
    let filter = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut all = Vec::new();
    if cfg!(target_arch = "x86_64") {
        // A second numbering of the same system calls, which the rules above do not know:
        // load the number; from bit 30 on, refuse.
        const X32: u32 = 0x4000_0000;
        all.push(filter((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0));
        all.push(filter((libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, 0, 1, X32));
        all.push(filter((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    all.extend(program.iter().map(|step| filter(step.code, step.jt, step.jf, step.k)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_fit_into_the_kernel_with_and_without_network() {
        for (network, abi) in [(false, 7), (true, 7), (false, 1), (true, 0)] {
            let filters = filters(network, abi).unwrap();
            assert_eq!(filters.len(), 2);
            assert!(filters.iter().all(|filter| (4..4096).contains(&filter.len())));
        }
    }
}
