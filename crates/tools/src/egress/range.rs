//! Ranges of addresses that are not the public internet.

use super::Rule;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    bits: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range such as 10.0.0.0/8 or fd00::/8")]
pub struct NotACidr(pub String);

impl Cidr {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                (base.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                (base.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let bad = || NotACidr(text.to_owned());
        let (base, bits) = text.split_once('/').ok_or_else(bad)?;
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let bits: u32 = bits.parse().map_err(|_| bad())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        if bits > most { Err(bad()) } else { Ok(Cidr { base, bits }) }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32) -> Cidr {
    Cidr { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
}

const fn v6(a: u16, b: u16, c: u16, d: u16, bits: u32) -> Cidr {
    Cidr { base: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), bits }
}

/// The first that fits names the rule.
const V4: [(Cidr, Rule); 19] = [
    (v4(0, 0, 0, 0, 32), Rule::Unspecified),
    (v4(127, 0, 0, 0, 8), Rule::Loopback),
    (v4(10, 0, 0, 0, 8), Rule::Private),
    (v4(172, 16, 0, 0, 12), Rule::Private),
    (v4(192, 168, 0, 0, 16), Rule::Private),
    (v4(169, 254, 0, 0, 16), Rule::LinkLocal),
    // Inside the shared range, so it goes first.
    (v4(100, 100, 100, 200, 32), Rule::Metadata),
    (v4(100, 64, 0, 0, 10), Rule::CarrierNat),
    // A cloud's own host behind a public address.
    (v4(168, 63, 129, 16, 32), Rule::Metadata),
    (v4(0, 0, 0, 0, 8), Rule::Reserved),
    (v4(192, 0, 0, 0, 24), Rule::Reserved),
    (v4(192, 0, 2, 0, 24), Rule::Reserved),
    (v4(192, 88, 99, 0, 24), Rule::Reserved),
    (v4(198, 18, 0, 0, 15), Rule::Reserved),
    (v4(198, 51, 100, 0, 24), Rule::Reserved),
    (v4(203, 0, 113, 0, 24), Rule::Reserved),
    (v4(224, 0, 0, 0, 4), Rule::Multicast),
    (v4(255, 255, 255, 255, 32), Rule::Reserved),
    (v4(240, 0, 0, 0, 4), Rule::Reserved),
];

const V6: [(Cidr, Rule); 16] = [
    (v6(0, 0, 0, 0, 128), Rule::Unspecified),
    (Cidr { base: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 }, Rule::Loopback),
    // Everything from ::/96 to ::ffff:0:0:0/96: compatible, mapped and translated forms.
    (v6(0, 0, 0, 0, 64), Rule::EmbeddedIpv4),
    (v6(0x64, 0xff9b, 0, 0, 96), Rule::EmbeddedIpv4),
    (v6(0x64, 0xff9b, 1, 0, 48), Rule::EmbeddedIpv4),
    (v6(0x2002, 0, 0, 0, 16), Rule::EmbeddedIpv4),
    (v6(0x2001, 0, 0, 0, 32), Rule::EmbeddedIpv4),
    (v6(0x2001, 0, 0, 0, 23), Rule::Reserved),
    (v6(0x2001, 0xdb8, 0, 0, 32), Rule::Reserved),
    (v6(0x3fff, 0, 0, 0, 20), Rule::Reserved),
    (v6(0xfc00, 0, 0, 0, 7), Rule::UniqueLocal),
    (v6(0xfe80, 0, 0, 0, 10), Rule::LinkLocal),
    (v6(0xfec0, 0, 0, 0, 10), Rule::Private),
    (v6(0xff00, 0, 0, 0, 8), Rule::Multicast),
    (v6(0x0100, 0, 0, 0, 64), Rule::Reserved),
    (v6(0x5f00, 0, 0, 0, 16), Rule::Reserved),
];

/// Global unicast; whatever lies outside it is not the internet, known to this list or not.
const GLOBAL: Cidr = v6(0x2000, 0, 0, 0, 3);

pub(super) fn blocked(address: IpAddr) -> Option<Rule> {
    let table: &[(Cidr, Rule)] = if address.is_ipv4() { &V4 } else { &V6 };
    let listed = table.iter().find(|(range, _)| range.contains(address)).map(|(_, rule)| *rule);
    let strange = address.is_ipv6() && !GLOBAL.contains(address);
    // IPv4 inside the interface part of an IPv6 address (ISATAP) is left alone: its prefix decides.
    listed.or(strange.then_some(Rule::Reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_first_and_last_address_and_not_their_neighbours() {
        let cases = [
            ("10.0.0.0/8", "10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"),
            ("172.16.0.0/12", "172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"),
            ("100.64.0.0/10", "100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"),
            ("fc00::/7", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fbff::", "fe00::"),
        ];
        for (range, first, last, below, above) in cases {
            let range: Cidr = range.parse().unwrap();
            for (text, inside) in [(first, true), (last, true), (below, false), (above, false)] {
                assert_eq!(range.contains(text.parse().unwrap()), inside, "{range:?} {text}");
            }
        }
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "x/8", "/8", "1.2.3.4/-1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("8.8.8.8".parse().unwrap()));
    }

    #[test]
    fn public_addresses_pass_and_others_do_not() {
        for text in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert_eq!(blocked(text.parse().unwrap()), None, "{text}");
        }
        let cases = [
            ("127.9.9.9", Rule::Loopback),
            ("100.100.100.200", Rule::Metadata),
            ("100.64.0.1", Rule::CarrierNat),
            ("::ffff:8.8.8.8", Rule::EmbeddedIpv4),
            ("64:ff9b::7f00:1", Rule::EmbeddedIpv4),
            ("fd00:ec2::254", Rule::UniqueLocal),
            ("4000::1", Rule::Reserved),
        ];
        for (text, rule) in cases {
            assert_eq!(blocked(text.parse().unwrap()), Some(rule), "{text}");
        }
    }
}
