//! The command `instar` with its crash points armed: what the kill matrix kills.

fn main() -> std::process::ExitCode {
    instar::main()
}
