//! The command `instar`; everything is in the library beside this.

fn main() -> std::process::ExitCode {
    instar::main()
}
