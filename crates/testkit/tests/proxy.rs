//! The fault proxy, in front of a server that echoes what it hears.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use instar_testkit::proxy::Direction::{Down, Up};
use instar_testkit::{Proxy, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BOUND: Duration = Duration::from_secs(10);
/// Long enough to say that nothing comes.
const SILENCE: Duration = Duration::from_millis(150);

struct Echo {
    address: String,
    heard: Arc<AtomicU64>,
}

impl Echo {
    async fn start(mark: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::<AtomicU64>::default();
        let count = heard.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut part = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut part).await {
                        count.fetch_add(n as u64, Ordering::Relaxed);
                        part[0] = if mark == 0 { part[0] } else { mark };
                        if stream.write_all(&part[..n]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    let mut back = vec![0; bytes.len()];
    tokio::time::timeout(BOUND, stream.read_exact(&mut back)).await??;
    Ok(back)
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(SILENCE, stream.read(&mut [0; 1])).await.is_err()
}

async fn ending(stream: &mut TcpStream) -> ErrorKind {
    tokio::time::timeout(BOUND, async {
        loop {
            match stream.read(&mut [0; 64]).await {
                Ok(0) => return ErrorKind::UnexpectedEof,
                Ok(_) => {}
                Err(error) => return error.kind(),
            }
        }
    })
    .await
    .expect("the connection should have ended")
}

#[tokio::test]
async fn bytes_pass_both_ways_and_an_orderly_end_stays_orderly() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    let large: Vec<u8> = (0..200_000).map(|i| i as u8).collect();
    let (mut from, mut to) = stream.split();
    let mut back = vec![0; large.len()];
    let (sent, read) = tokio::join!(to.write_all(&large), from.read_exact(&mut back));
    assert!(sent.is_ok() && read.is_ok() && back == large);
    to.shutdown().await.unwrap();
    assert_eq!(ending(&mut stream).await, ErrorKind::UnexpectedEof);
    assert_eq!((proxy.bytes(Up), proxy.bytes(Down), proxy.cuts()), (200_000, 200_000, 0));
}

#[tokio::test]
async fn delay_adds_to_each_way_without_thinning_the_pipe() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, b"warm").await.unwrap();
    proxy.delay(Duration::from_millis(60), Duration::from_millis(10));
    let started = Instant::now();
    for _ in 0..20 {
        stream.write_all(b"x").await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut back = [0; 20];
    stream.read_exact(&mut back).await.unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took < Duration::from_millis(20 * 100), "{took:?}");
    proxy.heal();
    // Some exchange is quick again, however busy the machine.
    let quick = async {
        loop {
            let started = Instant::now();
            exchange(&mut stream, b"quick").await.unwrap();
            if started.elapsed() < Duration::from_millis(100) {
                break;
            }
        }
    };
    tokio::time::timeout(BOUND, quick).await.unwrap();
}

#[tokio::test]
async fn a_cut_resets_what_is_there_and_welcomes_what_comes() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut old = connect(&proxy).await;
    exchange(&mut old, b"a").await.unwrap();
    proxy.cut();
    assert_eq!(ending(&mut old).await, ErrorKind::ConnectionReset);
    exchange(&mut connect(&proxy).await, b"b").await.unwrap();
    assert_eq!((proxy.connections(), proxy.cuts()), (2, 1));
}

#[tokio::test]
async fn refused_connections_come_back_on_the_same_port_when_healed() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut old = connect(&proxy).await;
    exchange(&mut old, b"a").await.unwrap();
    proxy.refuse();
    let address = proxy.address();
    let refused = move || async move {
        TcpStream::connect(address).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    wait::until(BOUND, refused).await;
    exchange(&mut old, b"still").await.unwrap();
    proxy.heal();
    wait::until(BOUND, || async { TcpStream::connect(address).await.is_ok() }).await;
}

#[tokio::test]
async fn a_black_hole_swallows_one_direction_only() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, b"a").await.unwrap();

    proxy.black_hole(Up);
    stream.write_all(b"lost").await.unwrap();
    assert!(is_silent(&mut stream).await);
    assert_eq!(echo.heard(), 1);
    proxy.heal();
    assert_eq!(ending(&mut stream).await, ErrorKind::ConnectionReset);

    let mut stream = connect(&proxy).await;
    proxy.black_hole(Down);
    stream.write_all(b"heard").await.unwrap();
    wait::until(BOUND, || async { echo.heard() == 6 }).await;
    assert!(is_silent(&mut stream).await);
}

#[tokio::test]
async fn a_frozen_direction_delivers_late_but_whole() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.freeze(Up);
    stream.write_all(b"later").await.unwrap();
    assert!(is_silent(&mut stream).await);
    assert_eq!(echo.heard(), 0);
    proxy.heal();
    let mut back = [0; 5];
    tokio::time::timeout(BOUND, stream.read_exact(&mut back)).await.unwrap().unwrap();
    assert_eq!(&back, b"later");
}

#[tokio::test]
async fn a_cut_after_n_bytes_delivers_exactly_n() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, b"abc").await.unwrap();
    proxy.cut_after(Up, 5);
    stream.write_all(b"0123456789").await.unwrap();
    assert_eq!(ending(&mut stream).await, ErrorKind::ConnectionReset);
    wait::until(BOUND, || async { echo.heard() == 8 }).await;
    assert_eq!(proxy.bytes(Up), 8);
}

#[tokio::test]
async fn a_cut_on_a_word_lets_the_word_arrive_and_its_answer_vanish() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    proxy.cut_on(Up, b"COMMIT");
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, b"BEGIN").await.unwrap();
    assert!(exchange(&mut stream, b"COMMIT;").await.is_err());
    wait::until(BOUND, || async { echo.heard() == 12 }).await;
}

#[tokio::test]
async fn a_thin_pipe_keeps_to_its_rate() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    proxy.bandwidth(20_000);
    let mut stream = connect(&proxy).await;
    let started = Instant::now();
    exchange(&mut stream, &[7; 4_000]).await.unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_new_target_takes_new_connections() {
    let (first, second) = (Echo::start(b'1').await, Echo::start(b'2').await);
    let proxy = Proxy::start(&first.address).await.unwrap();
    assert_eq!(exchange(&mut connect(&proxy).await, b"?").await.unwrap(), b"1");
    proxy.retarget(&second.address).await.unwrap();
    assert_eq!(exchange(&mut connect(&proxy).await, b"?").await.unwrap(), b"2");
}

#[tokio::test]
async fn addresses_are_rewritten_around_user_and_path() {
    let proxy = Proxy::start("127.0.0.1:9").await.unwrap();
    let here = proxy.address();
    assert_eq!(proxy.instead_of("postgres://u:p@h:5432/db?x=1"), format!("postgres://u:p@{here}/db?x=1"));
    assert_eq!(proxy.instead_of("nats://h:4222"), format!("nats://{here}"));
}

#[tokio::test]
async fn a_stranded_connection_stays_mute_and_a_new_one_speaks() {
    let echo = Echo::start(0).await;
    let proxy = Proxy::start(&echo.address).await.unwrap();
    let (mut lost, mut idle) = (connect(&proxy).await, connect(&proxy).await);
    assert_eq!(exchange(&mut lost, b"one").await.unwrap(), b"one");
    assert_eq!(exchange(&mut idle, b"one").await.unwrap(), b"one");
    proxy.strand();
    lost.write_all(b"two").await.unwrap();
    wait::until(BOUND, || async { proxy.stranded() == 1 }).await;
    proxy.heal();
    lost.write_all(b"three").await.unwrap();
    let mut back = [0; 1];
    let answer = tokio::time::timeout(SILENCE, lost.read(&mut back)).await;
    assert!(answer.is_err(), "neither bytes nor an end: {answer:?}");
    assert_eq!(exchange(&mut idle, b"four").await.unwrap(), b"four", "it lost nothing");
    assert_eq!(exchange(&mut connect(&proxy).await, b"five").await.unwrap(), b"five");
}
