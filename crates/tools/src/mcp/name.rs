//! What a server's tool is called here: `server.tool`, with the letters and the length that names have.
//!
//! The way back is the spec, which keeps what the server calls it. The name depends on nothing but the
//! two, so that history and policy name the same tool for ever.

use crate::canonical;

const NAME_BYTES_MAX: usize = 64;
const DIGEST_CHARS: usize = 8;

/// Allowed names stay as they are behind the server's; of others every letter that is not allowed becomes
/// an underscore, what is too long is cut, and a digest of the whole tells them apart.
pub fn of_tool(server: &str, tool: &str) -> String {
    let room = NAME_BYTES_MAX.saturating_sub(server.len() + 1);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let parts = tool.split('.').all(|part| !part.is_empty() && part.chars().all(allowed));
    if parts && tool.len() <= room {
        return format!("{server}.{tool}");
    }
    let plain: String = tool.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let plain = &plain[..plain.len().min(room.saturating_sub(DIGEST_CHARS + 1))];
    let digest = canonical::sha256("instar.mcp.name.v1", &[server.as_bytes(), tool.as_bytes()]);
    format!("{server}.{plain}-{}", &digest[..DIGEST_CHARS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_where_they_can_be_and_always_told_apart() {
        assert_eq!(of_tool("clock", "get_current_time"), "clock.get_current_time");
        assert_eq!(of_tool("fs", "files.read-all"), "fs.files.read-all");
        let odd = ["a b", "a/b", "a.", ".a", "a..b", "é", "", &"x".repeat(128), &format!("{}y", "x".repeat(127))];
        let names: Vec<String> = odd.iter().map(|tool| of_tool("server", tool)).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= NAME_BYTES_MAX, "{name}");
            assert!(name.split('.').all(|part| !part.is_empty()), "{name}");
            assert_eq!(names.iter().position(|other| other == name), Some(at), "{names:?}");
        }
        assert!(names[0].starts_with("server.a_b-"), "{names:?}");
        let long = "s".repeat(32);
        assert_eq!(of_tool(&long, &"t".repeat(40)).len(), NAME_BYTES_MAX);
    }
}
