//! The MCP server of the test kit as a program: `mcp-server stdio|http:PORT [--modern] [--fault NAME] …`.

use anyhow::{Context, Result, bail};
use instar_testkit::mcp::{Options, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let transport = arguments.next().context("stdio or http:PORT")?;
    let server = Server::new(Options::parse(arguments)?);
    match transport.split_once(':') {
        None if transport == "stdio" => server.serve_stdio().await,
        Some(("http", port)) => server.serve_http(port.parse()?).await,
        _ => bail!("{transport} is no transport"),
    }
}
