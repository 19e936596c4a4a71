//! Hostile forms of URLs. None of them may pass the check that comes before any look-up, except
//! names, which the resolver decides (see `fetch`).

use instar_tools::egress::{Policy, Rule};

const CORPUS: &[(&str, Rule)] = &[
    // loopback in every spelling
    ("http://127.0.0.1/", Rule::Loopback),
    ("http://127.0.0.1:80/", Rule::Loopback),
    ("http://127.1/", Rule::Loopback),
    ("http://127.0.1/", Rule::Loopback),
    ("http://127.255.255.254/", Rule::Loopback),
    ("http://2130706433/", Rule::Loopback),
    ("http://0x7f000001/", Rule::Loopback),
    ("http://0x7f.0.0.1/", Rule::Loopback),
    ("http://0x7F.0x0.0x0.0x1/", Rule::Loopback),
    ("http://0177.0.0.1/", Rule::Loopback),
    ("http://017700000001/", Rule::Loopback),
    ("http://0177.0x0.0.1/", Rule::Loopback),
    ("http://127.0.0.1./", Rule::Loopback),
    ("http://127。0。0。1/", Rule::Loopback),
    ("http://１２７.０.０.１/", Rule::Loopback),
    ("http://①②⑦.⓪.⓪.①/", Rule::Loopback),
    ("http://%31%32%37.0.0.1/", Rule::Loopback),
    ("http://[::1]/", Rule::Loopback),
    ("http://[0:0:0:0:0:0:0:1]/", Rule::Loopback),
    ("http:/\\127.0.0.1/", Rule::Loopback),
    ("http:127.0.0.1/", Rule::Loopback),
    ("\u{9}http://127.0.0.1/", Rule::Loopback),
    ("ht\ntp://127.0.\t0.1/", Rule::Loopback),
    ("HTTP://127.0.0.1/", Rule::Loopback),
    ("https://127.0.0.1/", Rule::Loopback),
    // unspecified
    ("http://0.0.0.0/", Rule::Unspecified),
    ("http://0/", Rule::Unspecified),
    ("http://0x0/", Rule::Unspecified),
    ("http://[::]/", Rule::Unspecified),
    ("http://0.1.2.3/", Rule::Reserved),
    // IPv4 inside IPv6
    ("http://[::ffff:127.0.0.1]/", Rule::EmbeddedIpv4),
    ("http://[::ffff:7f00:1]/", Rule::EmbeddedIpv4),
    ("http://[::ffff:169.254.169.254]/", Rule::EmbeddedIpv4),
    ("http://[0:0:0:0:0:ffff:10.0.0.1]/", Rule::EmbeddedIpv4),
    ("http://[::127.0.0.1]/", Rule::EmbeddedIpv4),
    ("http://[::ffff:0:127.0.0.1]/", Rule::EmbeddedIpv4),
    ("http://[64:ff9b::127.0.0.1]/", Rule::EmbeddedIpv4),
    ("http://[64:ff9b::a9fe:a9fe]/", Rule::EmbeddedIpv4),
    ("http://[64:ff9b:1::a9fe:a9fe]/", Rule::EmbeddedIpv4),
    ("http://[2002:7f00:1::]/", Rule::EmbeddedIpv4),
    ("http://[2002:a9fe:a9fe::1]/", Rule::EmbeddedIpv4),
    ("http://[2001:0:7f00:1::]/", Rule::EmbeddedIpv4),
    // metadata and link-local
    ("http://169.254.169.254/latest/meta-data/", Rule::LinkLocal),
    ("http://2852039166/", Rule::LinkLocal),
    ("http://0xa9fea9fe/", Rule::LinkLocal),
    ("http://0251.0376.0251.0376/", Rule::LinkLocal),
    ("http://169.254.43518/", Rule::LinkLocal),
    ("http://169.254.170.2/v2/credentials", Rule::LinkLocal),
    ("http://[fe80::1]/", Rule::LinkLocal),
    ("http://100.100.100.200/", Rule::Metadata),
    ("http://168.63.129.16/", Rule::Metadata),
    ("http://[fd00:ec2::254]/", Rule::UniqueLocal),
    ("http://metadata.google.internal/", Rule::MetadataName),
    ("http://METADATA.google.internal./", Rule::MetadataName),
    ("http://metadata/", Rule::MetadataName),
    ("http://instance-data/", Rule::MetadataName),
    // private and shared
    ("http://10.0.0.1/", Rule::Private),
    ("http://10.1/", Rule::Private),
    ("http://167772161/", Rule::Private),
    ("http://172.16.0.1/", Rule::Private),
    ("http://172.31.255.255/", Rule::Private),
    ("http://192.168.0.1/", Rule::Private),
    ("http://0xc0a80001/", Rule::Private),
    ("http://100.64.0.1/", Rule::CarrierNat),
    ("http://[fc00::1]/", Rule::UniqueLocal),
    ("http://[fd12:3456::1]/", Rule::UniqueLocal),
    ("http://[fec0::1]/", Rule::Private),
    // groups and reserved
    ("http://224.0.0.1/", Rule::Multicast),
    ("http://239.255.255.250/", Rule::Multicast),
    ("http://[ff02::1]/", Rule::Multicast),
    ("http://255.255.255.255/", Rule::Reserved),
    ("http://240.0.0.1/", Rule::Reserved),
    ("http://198.18.0.1/", Rule::Reserved),
    ("http://192.0.2.1/", Rule::Reserved),
    ("http://192.0.0.192/", Rule::Reserved),
    ("http://[2001:db8::1]/", Rule::Reserved),
    ("http://[100::1]/", Rule::Reserved),
    ("http://[4000::1]/", Rule::Reserved),
    // local names
    ("http://localhost/", Rule::LocalName),
    ("http://LOCALHOST/", Rule::LocalName),
    ("http://localhost./", Rule::LocalName),
    ("http://ｌｏｃａｌｈｏｓｔ/", Rule::LocalName),
    ("http://%6cocalhost/", Rule::LocalName),
    ("http://a.localhost/", Rule::LocalName),
    ("http://kubernetes/", Rule::LocalName),
    ("http://kubernetes.default.svc/", Rule::LocalName),
    ("http://api.default.svc.cluster.local/", Rule::LocalName),
    ("http://printer.local/", Rule::LocalName),
    ("http://db.internal/", Rule::LocalName),
    // users and passwords, also to hide the host behind
    ("http://user@example.com/", Rule::UserInfo),
    ("http://user:pass@example.com/", Rule::UserInfo),
    ("http://:pass@example.com/", Rule::UserInfo),
    ("http://example.com@127.0.0.1/", Rule::UserInfo),
    ("http://example.com%2f@127.0.0.1/", Rule::UserInfo),
    ("http://127.0.0.1\\@example.com/", Rule::Loopback),
    ("http://127.0.0.1#@example.com/", Rule::Loopback),
    ("http://127.0.0.1?@example.com/", Rule::Loopback),
    // schemes
    ("ftp://example.com/", Rule::Scheme),
    ("file:///etc/passwd", Rule::Scheme),
    ("gopher://example.com:80/_x", Rule::Scheme),
    ("data:text/plain,x", Rule::Scheme),
    ("javascript:alert(1)", Rule::Scheme),
    ("ws://example.com/", Rule::Scheme),
    ("unix:/run/docker.sock", Rule::Scheme),
    ("jar:http://example.com/!/", Rule::Scheme),
    // ports
    ("http://example.com:22/", Rule::Port),
    ("http://example.com:6379/", Rule::Port),
    ("https://example.com:8443/", Rule::Port),
    ("http://example.com:0/", Rule::Port),
    ("http://127.0.0.1:4222/", Rule::Port),
    // no URL at all
    ("", Rule::NotAUrl),
    ("//127.0.0.1/", Rule::NotAUrl),
    ("/etc/passwd", Rule::NotAUrl),
    ("http://", Rule::NotAUrl),
    ("http://[::1/", Rule::NotAUrl),
    ("http://[fe80::1%25eth0]/", Rule::NotAUrl),
    ("http://256.256.256.256/", Rule::NotAUrl),
    ("http://1.2.3.4.5/", Rule::NotAUrl),
    ("http://0x100000000/", Rule::NotAUrl),
    ("http://exa mple.com/", Rule::NotAUrl),
    ("http://example.com:99999/", Rule::NotAUrl),
    ("http://.../", Rule::NotAUrl),
];

#[test]
fn no_hostile_form_passes_and_each_is_told_its_rule() {
    assert!(CORPUS.len() >= 60, "{}", CORPUS.len());
    let policy = Policy::public();
    let wrong: Vec<_> = CORPUS
        .iter()
        .map(|(url, rule)| (url, *rule, policy.check(url).err().map(|blocked| blocked.rule)))
        .filter(|(_, rule, found)| *found != Some(*rule))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_refusal_names_the_rule_and_not_the_address() {
    for (url, rule) in CORPUS {
        let words = Policy::public().check(url).unwrap_err().to_string();
        assert!(words.contains(rule.token()), "{words}");
        assert!(!words.contains("127.0.0.1") && !words.contains("169.254"), "{words}");
    }
}

#[test]
fn ordinary_urls_pass() {
    for url in [
        "http://example.com/",
        "https://example.com/a?b=c#d",
        "https://example.com:443/",
        "https://sub.example.co.uk./",
        "https://bücher.example/",
        "http://1.1.1.1/",
        "http://[2606:4700::1111]/",
        "https://internal.example.com/",
    ] {
        Policy::public().check(url).unwrap_or_else(|blocked| panic!("{url}: {blocked}"));
    }
}

#[test]
fn by_default_no_host_is_allowed_and_a_list_allows_what_it_names() {
    assert_eq!(Policy::default().check("https://example.com/").unwrap_err().rule, Rule::HostNotAllowed);
    assert_eq!(Policy::default().check("https://1.1.1.1/").unwrap_err().rule, Rule::HostNotAllowed);
    let policy = Policy::default().allow("example.com").unwrap().allow("*.example.org").unwrap();
    let cases = [
        ("https://example.com/", true),
        ("https://EXAMPLE.com./", true),
        ("https://a.example.com/", false),
        ("https://notexample.com/", false),
        ("https://example.com.evil.net/", false),
        ("https://a.b.example.org/", true),
        ("https://example.org/", false),
        ("https://xexample.org/", false),
        ("https://1.1.1.1/", false),
    ];
    for (url, expected) in cases {
        assert_eq!(policy.check(url).is_ok(), expected, "{url}");
    }
    for entry in ["", "*.", "**", "a.*", "http://x", "a b", "10.0.0.0/99", "x/8"] {
        assert!(Policy::default().allow(entry).is_err(), "{entry}");
    }
}

#[test]
fn a_range_opens_addresses_a_name_does_not_and_a_denied_range_wins() {
    let policy = Policy::default().allow("10.1.0.0/16").unwrap().allow("db.internal").unwrap();
    policy.check("http://10.1.2.3/").unwrap();
    policy.check("http://db.internal/").unwrap();
    assert_eq!(policy.check("http://10.2.0.1/").unwrap_err().rule, Rule::Private);
    assert_eq!(policy.check_address("10.2.0.1".parse().unwrap()).unwrap_err().rule, Rule::Private);
    policy.check_address("10.1.0.1".parse().unwrap()).unwrap();
    assert_eq!(policy.check("http://[::ffff:10.1.2.3]/").unwrap_err().rule, Rule::EmbeddedIpv4);
    let policy = policy.deny("10.1.5.0/24".parse().unwrap());
    assert_eq!(policy.check("http://10.1.5.9/").unwrap_err().rule, Rule::Denied);
    assert_eq!(Policy::public().ports([8080]).check("http://example.com/").unwrap_err().rule, Rule::Port);
}
