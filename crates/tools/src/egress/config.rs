//! The policy as the operator writes it.

use super::{Cidr, Policy};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Hosts, `*.suffix`, ranges, or `*` for every public host; see [`Policy::allow`].
    pub allow: Vec<String>,
    /// Ranges that stay closed whatever is allowed: pods and services of a cluster, for example.
    pub deny: Vec<String>,
    pub ports: Vec<u16>,
    pub redirects_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        let Policy { ports, redirects_max, .. } = Policy::default();
        Self { allow: Vec::new(), deny: Vec::new(), ports, redirects_max }
    }
}

impl Config {
    /// The error has every entry that is wrong.
    pub fn policy(&self) -> Result<Policy, Vec<String>> {
        let (mut policy, mut problems) = (Policy::default().ports(self.ports.clone()), Vec::new());
        policy.redirects_max = self.redirects_max;
        for entry in &self.allow {
            match policy.clone().allow(entry) {
                Ok(wider) => policy = wider,
                Err(error) => problems.push(format!("allow: {error}")),
            }
        }
        for entry in &self.deny {
            match entry.parse::<Cidr>() {
                Ok(range) => policy = policy.deny(range),
                Err(error) => problems.push(format!("deny: {error}")),
            }
        }
        if problems.is_empty() { Ok(policy) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_counts_and_every_wrong_entry_is_told() {
        let text = r#"{"allow": ["*.example.com", "10.1.0.0/16"], "deny": ["10.1.9.0/24"], "ports": [8080]}"#;
        let policy = serde_json::from_str::<Config>(text).unwrap().policy().unwrap();
        assert!(policy.check("http://a.example.com:8080/").is_ok());
        assert!(policy.check("http://10.1.1.1:8080/").is_ok());
        assert!(policy.check("http://10.1.9.1:8080/").is_err());
        assert!(policy.check("http://a.example.com/").is_err());
        let wrong =
            Config { allow: vec!["a b".into(), "ok.example".into()], deny: vec!["x".into()], ..Config::default() };
        assert_eq!(wrong.policy().unwrap_err().len(), 2);
        assert!(Config::default().policy().unwrap().check("https://example.com/").is_err());
    }
}
