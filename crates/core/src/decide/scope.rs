//! Which paths and hosts an agent's calls may name. Only what a call says is judged, so that a person is never asked
//! about one that would be stopped anyway; what a tool then does is the business of its sandbox.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Entries of one list.
const ENTRIES_MAX: usize = 100;
const ENTRY_BYTES_MAX: usize = 1_000;
/// Words that an argument's name ends in where it is a path.
const PATHS: [&str; 16] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "filepath",
    "filepaths",
    "dir",
    "dirs",
    "directory",
    "directories",
    "folder",
    "folders",
    "cwd",
    "workdir",
];
/// The same where it may be one: it is if it looks like one.
const ENDS: [&str; 6] = ["source", "src", "destination", "dst", "dest", "target"];
const HOSTS: [&str; 5] = ["host", "hosts", "hostname", "hostnames", "domain"];
/// Where a host may stand without a scheme before it.
const URLS: [&str; 5] = ["url", "urls", "uri", "endpoint", "href"];
/// Schemes whose slashes may be missing.
const SPECIAL: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// An agent's policy. Lists that are empty say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    allowed_paths: Vec<String>,
    denied_paths: Vec<String>,
    network_allowlist: Vec<String>,
    network_denylist: Vec<String>,
}

/// What is wrong with a policy: the field's pointer, and what to write instead.
type Fault = (String, String);

impl Scope {
    /// From an agent's configuration; every fault is told at once.
    pub fn read(policy: &Value) -> Result<Scope, Vec<Fault>> {
        if policy.is_null() {
            return Ok(Scope::default());
        }
        let Some(fields) = policy.as_object() else {
            return Err(vec![(String::new(), "must be an object".to_owned())]);
        };
        let mut faults = Vec::new();
        for (name, list) in fields {
            let fault: fn(&str) -> Option<&'static str> = match name.as_str() {
                "allowed_paths" | "denied_paths" => path_fault,
                "network_allowlist" | "network_denylist" => host_fault,
                _ => {
                    let known = "known are: allowed_paths, denied_paths, network_allowlist, network_denylist";
                    faults.push((format!("/{}", escaped(name)), format!("there is no such field; {known}")));
                    continue;
                }
            };
            let Some(entries) = list.as_array() else {
                faults.push((format!("/{name}"), "must be a list of texts".to_owned()));
                continue;
            };
            if entries.len() > ENTRIES_MAX {
                faults.push((format!("/{name}"), format!("has {} entries; the limit is {ENTRIES_MAX}", entries.len())));
            }
            for (at, entry) in entries.iter().enumerate().take(ENTRIES_MAX) {
                let why = match entry.as_str() {
                    None => Some("must be a text"),
                    Some(entry) if entry.len() > ENTRY_BYTES_MAX => Some("is longer than 1000 bytes"),
                    Some(entry) => fault(entry),
                };
                faults.extend(why.map(|why| (format!("/{name}/{at}"), why.to_owned())));
            }
        }
        match faults.is_empty() {
            true => serde_json::from_value(policy.clone()).map_err(|no| vec![(String::new(), no.to_string())]),
            false => Err(faults),
        }
    }

    /// Why a call with these arguments is not made, in words that a model can act on.
    pub fn outside(&self, arguments: &Value) -> Option<String> {
        match *self == Scope::default() {
            true => None,
            false => self.look("", "", arguments),
        }
    }

    fn look(&self, pointer: &str, name: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => {
                self.judge(name, text).map(|why| format!("{}: {why}", &pointer[1.min(pointer.len())..]))
            }
            Value::Array(items) => {
                items.iter().enumerate().find_map(|(at, item)| self.look(&format!("{pointer}.{at}"), name, item))
            }
            Value::Object(fields) => {
                fields.iter().find_map(|(name, item)| self.look(&format!("{pointer}.{name}"), name, item))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn judge(&self, name: &str, text: &str) -> Option<String> {
        let last = last_word(name);
        let is = |words: &[&str]| words.contains(&&*last);
        match url(text) {
            Some(Url::File(path)) => return self.judge_path(&path),
            Some(Url::Host(authority)) => return self.judge_host(authority),
            None => {}
        }
        let like_a_path = || text.starts_with(['/', '~', '.']) || text.contains("..");
        if is(&PATHS) || is(&ENDS) && like_a_path() {
            return self.judge_path(text);
        }
        if (is(&HOSTS) || is(&URLS)) && !text.trim().is_empty() && !text.trim_start().starts_with('/') {
            return self.judge_host(text.trim().split(['/', '\\', '?', '#']).next().unwrap_or_default().to_owned());
        }
        None
    }

    fn judge_path(&self, text: &str) -> Option<String> {
        let path = Path::of(text);
        if self.denied_paths.iter().any(|denied| Path::of(denied).may_hold(&path)) {
            return Some(format!("the path {text:?} lies under one of denied_paths: {}", told(&self.denied_paths)));
        }
        let allowed = self.allowed_paths.is_empty() || self.allowed_paths.iter().any(|one| Path::of(one).holds(&path));
        (!allowed)
            .then(|| format!("the path {text:?} lies outside the policy; use one under: {}", told(&self.allowed_paths)))
    }

    fn judge_host(&self, authority: String) -> Option<String> {
        if self.network_allowlist.is_empty() && self.network_denylist.is_empty() {
            return None;
        }
        let Some(host) = host(&authority) else {
            return Some(format!("the host of {authority:?} cannot be read; write it in plain ASCII, without a login"));
        };
        let listed = |list: &[String]| list.iter().any(|entry| fits(entry, &host));
        // Where something is allowed, nothing else is.
        if !self.network_allowlist.is_empty() {
            let why =
                || format!("the host {host} lies outside the policy; use one of: {}", told(&self.network_allowlist));
            return (!listed(&self.network_allowlist)).then(why);
        }
        let why = || format!("the host {host} is one of network_denylist: {}", told(&self.network_denylist));
        listed(&self.network_denylist).then(why)
    }
}

/// Enough of a list for whoever has to choose from it.
fn told(list: &[String]) -> String {
    const TOLD: usize = 10;
    let more = if list.len() > TOLD { ", …" } else { "" };
    format!("{}{more}", list.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Of `filePath`, `file-path` and `FILE_PATH`: path.
fn last_word(name: &str) -> String {
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || !last.is_alphanumeric());
    let begins = |(at, now): (usize, char)| {
        let before = name[..at].chars().next_back();
        let humps = now.is_uppercase() && before.is_some_and(char::is_lowercase);
        if !now.is_alphanumeric() { Some(at + now.len_utf8()) } else { humps.then_some(at) }
    };
    let from = name.char_indices().filter_map(begins).next_back().unwrap_or_default();
    name[from..].to_lowercase()
}

/// A path, taken apart without looking at any disk.
#[derive(Debug, PartialEq, Eq)]
struct Path<'a> {
    /// From the root, or from somebody's home.
    absolute: bool,
    /// How far it leads out of where it begins.
    up: usize,
    parts: Vec<&'a str>,
}

impl<'a> Path<'a> {
    fn of(text: &'a str) -> Path<'a> {
        let absolute = text.starts_with(['/', '~']);
        let mut path = Path { absolute, up: 0, parts: Vec::new() };
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." if path.parts.pop().is_none() => path.up += usize::from(!absolute),
                ".." => {}
                part => path.parts.push(part),
            }
        }
        path
    }

    /// Whether the other one certainly lies in it.
    fn holds(&self, other: &Path<'_>) -> bool {
        self.absolute == other.absolute && other.up == 0 && other.parts.starts_with(&self.parts)
    }

    /// Whether the other one may lie in it, where they do not begin at the same place.
    fn may_hold(&self, other: &Path<'_>) -> bool {
        match (self.absolute, other.absolute) {
            (false, true) => {
                self.parts.is_empty() || other.parts.windows(self.parts.len()).any(|within| within == self.parts)
            }
            _ => other.up > 0 || self.holds(other),
        }
    }
}

fn path_fault(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("must not be empty"),
        _ if text.split('/').any(|part| part == "..") => Some("must be written without \"..\""),
        _ if text.contains(['*', '\0']) => Some("must be a path, not a pattern: all that is under it is meant"),
        _ => None,
    }
}

fn host_fault(text: &str) -> Option<&'static str> {
    const WRONG: &str = "must be a host such as api.example.com, or *.example.com for all below it; no scheme, no port";
    let name = text.strip_prefix("*.").unwrap_or(text);
    let read = host(name).is_some_and(|read| read.eq_ignore_ascii_case(name.trim_end_matches('.')));
    let whole = read || name.parse::<Ipv6Addr>().is_ok();
    (!whole || name.is_empty()).then_some(WRONG)
}

enum Url {
    File(String),
    /// What stands where the host does, with a port and a login.
    Host(String),
}

/// Whether the whole text is an address, read the way browsers do, which forgive much.
fn url(text: &str) -> Option<Url> {
    let text: String =
        text.trim_matches(|c: char| c <= ' ').chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let (scheme, rest) = text.split_once(':')?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let scheme = scheme.to_ascii_lowercase();
    if !named {
        return None;
    }
    if scheme == "file" {
        let path = rest.replace('\\', "/");
        return Some(Url::File(unescaped(&format!("/{}", path.trim_start_matches('/')))));
    }
    let after = match SPECIAL.contains(&&*scheme) {
        true => rest.trim_start_matches(['/', '\\']),
        false => rest.strip_prefix("//")?,
    };
    let authority = after.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // Words after a colon are no address.
    (!authority.is_empty() && !authority.contains(' ')).then(|| Url::Host(authority.to_owned()))
}

/// `%2e` as it is meant.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|two| *first == b'%' && two.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The host, in small letters; `None` where it could be read in more than one way.
fn host(authority: &str) -> Option<String> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    if let Some(address) = host.strip_prefix('[') {
        let (address, _port) = address.split_once(']')?;
        return address.parse::<Ipv6Addr>().ok().map(|address| address.to_string());
    }
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        return Some(address.to_string());
    }
    let host = match host.split_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        Some(_) => return None,
        None => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if host.is_empty() || !host.bytes().all(plain) || host.split('.').any(str::is_empty) {
        return None;
    }
    // Numbers are addresses in many writings: only the usual one is taken.
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    (!number || host.parse::<Ipv4Addr>().is_ok()).then_some(host)
}

fn fits(entry: &str, host: &str) -> bool {
    let entry = entry.trim_end_matches('.').to_ascii_lowercase();
    match entry.strip_prefix("*.") {
        Some(suffix) => host.strip_suffix(suffix).is_some_and(|below| below.len() > 1 && below.ends_with('.')),
        None => match entry.parse::<Ipv6Addr>() {
            Ok(address) => host == address.to_string(),
            Err(_) => host == entry,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn scope(policy: Value) -> Scope {
        Scope::read(&policy).unwrap()
    }

    fn is_outside(policy: &Value, arguments: Value) -> bool {
        scope(policy.clone()).outside(&arguments).is_some()
    }

    #[test]
    fn a_path_is_judged_by_its_parts_and_not_by_its_letters() {
        let policy = json!({"allowed_paths": ["/srv/data", "notes"], "denied_paths": ["/srv/data/keys", ".ssh"]});
        for inside in
            ["/srv/data", "/srv/data/", "/srv/data/a", "/srv/./data//a/../b", "notes/a", "./notes/a", "x/../notes"]
        {
            assert!(!is_outside(&policy, json!({"path": inside})), "{inside}");
        }
        for outside in [
            "/srv/database",
            "/srv/data/../other",
            "/srv",
            "/",
            "/srv/data/keys",
            "/srv/data/x/../keys/a",
            "notesx",
            "other",
            "notes/../..",
            "../notes",
            "notes/../../etc",
            "~/notes",
            "notes/.ssh/../../x",
            "/srv/data/.ssh/id",
            "",
            "file:///etc",
        ] {
            assert!(is_outside(&policy, json!({"path": outside})), "{outside}");
        }
        let denies = json!({"denied_paths": ["/etc", "secrets"]});
        for outside in
            ["/etc/passwd", "../x", "secrets/a", "/srv/secrets/a", "FILE:/etc/passwd", "file:///%65tc/passwd"]
        {
            assert!(is_outside(&denies, json!({"file": outside})), "{outside}");
        }
        assert!(!is_outside(&denies, json!({"file": "/etcetera", "files": ["a", "secretsx"]})));
        let why = scope(policy).outside(&json!({"moves": [{"from": 1, "output_file": "/tmp/x"}]})).unwrap();
        assert_eq!(
            why,
            "moves.0.output_file: the path \"/tmp/x\" lies outside the policy; use one under: /srv/data, notes"
        );
    }

    #[test]
    fn names_tell_which_arguments_are_paths_and_hosts() {
        let policy = json!({"allowed_paths": ["/srv"], "network_allowlist": ["example.com"]});
        for name in [
            "path",
            "file_path",
            "filePath",
            "FILE-PATH",
            "working_directory",
            "cwd",
            "path2",
            "inputFiles",
            "target",
            "src",
        ] {
            assert!(is_outside(&policy, json!({name: "/etc"})), "{name}");
        }
        for name in ["text", "profile", "pathology", "content", "target_group"] {
            assert!(!is_outside(&policy, json!({name: "/etc"})), "{name}");
        }
        assert!(!is_outside(&policy, json!({"target": "everybody", "source": "web"})));
        for name in ["host", "hostname", "remote_host", "url", "endpoint"] {
            assert!(is_outside(&policy, json!({name: "evil.test:443/x"})), "{name}");
            assert!(!is_outside(&policy, json!({name: "example.com:443/x"})), "{name}");
        }
        assert!(is_outside(&policy, json!({"anything": "https://evil.test/"})));
        assert!(!is_outside(&policy, json!({"text": "see https://evil.test/", "note": "http: a protocol"})));
        assert_eq!(scope(json!({})).outside(&json!({"path": "../..", "url": "http://x"})), None);
    }

    #[test]
    fn a_host_is_read_as_whoever_connects_reads_it() {
        let only = json!({"network_allowlist": ["example.com", "*.example.org", "::1", "192.0.2.1"], "network_denylist": ["example.com"]});
        for inside in [
            "https://example.com",
            "HTTPS://Example.COM:8443/a?b#c",
            "http://example.com./",
            "https://a.b.example.org",
            "http://[::1]:8080/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://192.0.2.1/",
            "wss://user@example.com",
        ] {
            assert!(!is_outside(&only, json!({"url": inside})), "{inside}");
        }
        for outside in [
            "https://example.com.evil.test",
            "https://notexample.com",
            "https://example.org",
            "https://evilexample.org",
            "https://example.com@evil.test/",
            "https://evil.test\\@example.com",
            "https://evil.test#@example.com",
            "https:evil.test",
            "http:/evil.test",
            "https:\\\\evil.test",
            " ht\ntps://evil.test",
            "https://ex%61mple.com",
            "https://éxample.com",
            "http://3221225985/",
            "http://0xc0.0.2.1/",
            "http://192.0.513/",
            "gopher://evil.test",
            "https://example.com:x@evil.test",
        ] {
            assert!(is_outside(&only, json!({"url": outside})), "{outside}");
        }
        let not = json!({"network_denylist": ["evil.test", "*.evil.test", "127.0.0.1"]});
        for (address, outside) in [
            ("https://evil.test", true),
            ("https://a.evil.test", true),
            ("http://127.0.0.1", true),
            ("http://2130706433", true),
            ("http://127.1", true),
            ("https://devil.test", false),
        ] {
            assert_eq!(is_outside(&not, json!({"url": address})), outside, "{address}");
        }
    }

    #[test]
    fn a_bad_policy_says_every_fault() {
        let bad = json!({
            "allowed_paths": ["", "a/../b", "/srv/*", 5],
            "denied_paths": "x",
            "network_allowlist": ["https://example.com", "example.com:443", "*.*.com", "*", "ok.example.com", "*.ok.com"],
            "network": [],
        });
        let faults = Scope::read(&bad).unwrap_err();
        let at: Vec<&str> = faults.iter().map(|(pointer, _)| pointer.as_str()).collect();
        let expected = [
            "/allowed_paths/0",
            "/allowed_paths/1",
            "/allowed_paths/2",
            "/allowed_paths/3",
            "/denied_paths",
            "/network",
            "/network_allowlist/0",
            "/network_allowlist/1",
            "/network_allowlist/2",
            "/network_allowlist/3",
        ];
        assert_eq!(at, expected, "{faults:?}");
        assert!(Scope::read(&json!([])).is_err() && Scope::read(&Value::Null).is_ok());
        let many = vec!["x"; ENTRIES_MAX + 1];
        assert_eq!(Scope::read(&json!({"denied_paths": many})).unwrap_err().len(), 1);
    }

    /// Where a path leads, followed part by part from a folder that is deep enough.
    fn followed(path: &str) -> Vec<String> {
        let mut at: Vec<String> =
            if path.starts_with('/') { vec![] } else { vec!["w".into(), "o".into(), "r".into(), "k".into()] };
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                at.pop();
            } else {
                at.push(part.to_owned());
            }
        }
        at
    }

    proptest! {
        #[test]
        fn what_is_let_through_lies_under_what_is_allowed(
            allowed in "/?(a|b|ab|a\\.)(/(a|b|ab)){0,2}",
            path in "/?(a|b|ab|\\.|\\.\\.|a\\.|)(/(a|b|ab|\\.|\\.\\.|)){0,6}",
        ) {
            if !is_outside(&json!({"allowed_paths": [&allowed]}), json!({"path": &path})) {
                prop_assert!(followed(&path).starts_with(&followed(&allowed)), "{path} under {allowed}");
            }
            if !is_outside(&json!({"denied_paths": [&allowed]}), json!({"path": &path})) {
                prop_assert!(!followed(&path).starts_with(&followed(&allowed)), "{path} under {allowed}");
            }
        }
    }
}
