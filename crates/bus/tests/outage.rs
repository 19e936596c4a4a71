//! What the bus over NATS promises when the server crashes, forgets, stalls or was changed.

mod bench;

use std::time::{Duration, Instant};

use async_nats::jetstream;
use bench::*;
use instar_bus::message::{Delta, WorkTurn};
use instar_bus::{Bus, BusError, Connection, Deliveries, Delivery, Heard, Namespace, Pull, Stamp};
use instar_testkit::proxy::{Direction, Proxy};
use instar_testkit::{Nats, wait};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

const BOUND: Duration = Duration::from_secs(20);

/// Publishes turn `n` until it is stored, under one id, as the scheduler would.
async fn publish_until_stored(bus: &Bus, n: usize) {
    let subject = bus.space().work_turn("default").unwrap();
    let id = format!("turn:{n}");
    wait::until_ok(BOUND, async || match bus.publish(&subject, &turn(n), Stamp::new(&id)).await {
        Ok(_) => Ok(()),
        Err(error) => {
            assert!(error.retryable(), "{error}");
            Err(error.into())
        }
    })
    .await
    .unwrap();
}

/// Starts to wait before the outage, and is never touched again.
fn waiting(mut turns: Deliveries<WorkTurn>) -> tokio::task::JoinHandle<Delivery<WorkTurn>> {
    tokio::spawn(async move { turns.next().await })
}

async fn admin(url: &str) -> jetstream::Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

#[tokio::test]
async fn a_consumer_goes_on_after_the_server_was_killed_and_came_back() {
    let server = Nats::start().await.unwrap();
    let bus = connect(server.url(), &prefix(), options()).await;
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    publish(&bus, 1).await;
    publish(&bus, 2).await;
    let undecided = soon(turns.next()).await;
    assert_eq!(undecided.value(), &turn(1));

    server.kill9().await.unwrap();
    soon(wait::until(BOUND, || async { !bus.connected() })).await;
    server.restart().await.unwrap();
    publish_until_stored(&bus, 3).await;

    // What the server had in memory is gone with it; a decision about it does no harm.
    undecided.ack().await.unwrap();
    // The second may have been fetched ahead.
    let mut last = soon(turns.next()).await;
    if last.value() == &turn(2) {
        last.ack().await.unwrap();
        last = soon(turns.next()).await;
    }
    assert_eq!(last.value(), &turn(3));
    last.ack().await.unwrap();
    assert!(bus.stats().topology_repairs >= 1);
}

#[tokio::test]
async fn waiting_consumers_receive_after_the_server_lost_everything() {
    let server = Nats::start().await.unwrap();
    let bus = connect(server.url(), &prefix(), options()).await;
    let other = connect(server.url(), bus.space().root().split('.').next().unwrap(), options()).await;
    let turns = waiting(bus.work_turn("default", pull()).await.unwrap());
    let owner = waiting(bus.owner_turn("w-1", pull()).await.unwrap());
    let mut runes = other.transitions("reader", &KINDS, pull()).await.unwrap();

    server.wipe_and_restart().await.unwrap();
    let from = Instant::now();
    publish_until_stored(&bus, 1).await;
    let mine = bus.space().owner_turn("w-1").unwrap();
    soon(bus.publish(&mine, &turn(2), Stamp::new("owner"))).await.unwrap();
    soon(bus.publish_rune(&rune("turn.queued", 1))).await.unwrap();

    let delivery = soon(turns).await.unwrap();
    assert_eq!(delivery.value(), &turn(1));
    delivery.ack().await.unwrap();
    soon(owner).await.unwrap().ack().await.unwrap();
    let delivery = soon(runes.next()).await;
    assert_eq!(delivery.seq, 1);
    delivery.ack().await.unwrap();
    assert!(from.elapsed() < Duration::from_secs(5), "{:?}", from.elapsed());
    assert!(bus.stats().topology_repairs + other.stats().topology_repairs >= 3);
}

#[tokio::test]
async fn a_decision_from_before_the_loss_does_not_hit_a_new_message() {
    let server = Nats::start().await.unwrap();
    let bus = connect(server.url(), &prefix(), options()).await;
    let mut turns = bus.work_turn("default", impatient(500)).await.unwrap();
    publish(&bus, 1).await;
    let old = soon(turns.next()).await;
    server.wipe_and_restart().await.unwrap();
    publish_until_stored(&bus, 2).await;
    // The new message has the number of the old one, and is held when the old one is acked.
    let new = soon(turns.next()).await;
    assert_eq!(new.value(), &turn(2));
    old.ack().await.unwrap();
    drop(new);
    let again = soon(turns.next()).await;
    assert_eq!(again.value(), &turn(2));
    again.ack().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_somebody_else_made_again_is_noticed() {
    let server = Nats::start().await.unwrap();
    let prefix = prefix();
    let bus = connect(server.url(), &prefix, options()).await;
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    publish(&bus, 1).await;
    let old = soon(turns.next()).await;
    let admin = admin(server.url()).await;
    let name = format!("{prefix}-v1-work");
    let config = admin.get_stream(&name).await.unwrap().cached_info().config.clone();
    admin.delete_stream(&name).await.unwrap();
    admin.create_stream(config).await.unwrap();
    publish_until_stored(&bus, 2).await;
    let new = soon(turns.next()).await;
    assert_eq!(new.value(), &turn(2));
    old.ack().await.unwrap();
    drop(new);
    let again = soon(turns.next()).await;
    assert_eq!(again.value(), &turn(2));
    again.ack().await.unwrap();
}

#[tokio::test]
async fn a_stream_or_consumer_deleted_while_in_use_comes_back() {
    let server = Nats::start().await.unwrap();
    let prefix = prefix();
    let bus = connect(server.url(), &prefix, options()).await;
    let admin = admin(server.url()).await;
    let stream = format!("{prefix}-v1-work");

    let turns = waiting(bus.work_turn("default", pull()).await.unwrap());
    admin.delete_stream(&stream).await.unwrap();
    publish_until_stored(&bus, 1).await;
    soon(turns).await.unwrap().ack().await.unwrap();

    let turns = waiting(bus.work_turn("default", pull()).await.unwrap());
    admin.delete_consumer_from_stream("turn-default", &stream).await.unwrap();
    publish_until_stored(&bus, 2).await;
    let delivery = soon(turns).await.unwrap();
    assert_eq!(delivery.value(), &turn(2));
    delivery.ack().await.unwrap();
    assert!(bus.stats().topology_repairs >= 2);
}

#[tokio::test]
async fn a_consumer_that_went_silent_is_rebuilt_and_counted() {
    let server = Nats::start().await.unwrap();
    let bus = connect(server.url(), &prefix(), options()).await;
    let turns = waiting(bus.work_turn("default", pull()).await.unwrap());
    // A stopped process keeps its connections open and says nothing.
    signal(&server, "-STOP");
    soon(wait::until(BOUND, || async { bus.stats().watchdog_restarts > 0 })).await;
    signal(&server, "-CONT");
    publish_until_stored(&bus, 1).await;
    soon(turns).await.unwrap().ack().await.unwrap();
}

fn signal(server: &Nats, signal: &str) {
    let pid = server.pid().unwrap().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[tokio::test]
async fn nobody_waits_for_a_server_that_is_away() {
    let server = Nats::start().await.unwrap();
    let mut options = options();
    options.publish_within = Duration::from_millis(500);
    options.queue_max = 8;
    let bus = connect(server.url(), &prefix(), options).await;
    server.kill9().await.unwrap();
    soon(wait::until(BOUND, || async { !bus.connected() })).await;

    let subject = bus.space().work_turn("default").unwrap();
    let topic = bus.space().delta("ses_1").unwrap();
    let from = Instant::now();
    let mut sent = Vec::new();
    let busy = loop {
        match bus.publish_soon(&subject, &turn(1), Stamp::new("turn:1")) {
            Ok(it) => sent.push(it),
            Err(error) => break error,
        }
        bus.cast(&topic, &Delta { turn_id: "t".into(), ..Delta::default() }.into()).unwrap();
    };
    assert!(from.elapsed() < Duration::from_millis(450), "{:?}", from.elapsed());
    assert!(matches!(busy, BusError::Busy { queue_max: 8 }) && busy.retryable());
    for sent in sent {
        let error = soon(sent).await.unwrap_err();
        assert!(matches!(error, BusError::Timeout { .. }) && error.retryable(), "{error}");
    }
    assert!(bus.stats().publish_failed >= 8 && bus.stats().dropped >= 8);

    server.restart().await.unwrap();
    publish_until_stored(&bus, 1).await;
}

#[tokio::test]
async fn a_listener_is_told_that_the_connection_was_down() {
    let server = Nats::start().await.unwrap();
    let bus = connect(server.url(), &prefix(), options()).await;
    let topic = bus.space().delta("ses_1").unwrap();
    let mut listener = bus.listen(&topic).await.unwrap();
    let delta = Delta { turn_id: "t".into(), ..Delta::default() };
    bus.cast(&topic, &delta.clone().into()).unwrap();
    assert_eq!(soon(listener.next()).await, Heard::Message(delta.clone().into()));
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(soon(listener.next()).await, Heard::Gap(None));
    soon(wait::until(BOUND, || async { bus.connected() })).await;
    bus.cast(&topic, &delta.clone().into()).unwrap();
    assert_eq!(soon(listener.next()).await, Heard::Message(delta.into()));
}

#[tokio::test]
async fn a_stream_that_was_changed_is_refused_with_an_explanation_and_left_alone() {
    let url = instar_testkit::nats::shared().await.unwrap();
    let prefix = prefix();
    let admin = admin(&url).await;
    let name = format!("{prefix}-v1-work");
    let config = jetstream::stream::Config {
        name: name.clone(),
        subjects: vec![format!("{prefix}.v1.work.>"), format!("{prefix}.v1.more.>")],
        storage: jetstream::stream::StorageType::File,
        ..Default::default()
    };
    admin.create_stream(config).await.unwrap();
    admin.publish(format!("{prefix}.v1.work.turn.x"), "kept".into()).await.unwrap().await.unwrap();

    let opened = Bus::connect(space(&prefix), &Connection::new(&url), options()).await;
    let error = opened.err().expect("a changed stream was accepted");
    let text = error.to_string();
    for part in [
        name.as_str(),
        "retention is Limits but should be WorkQueue",
        "storage is File but should be Memory",
        "more.>",
        "Nothing was changed",
        "nats stream edit",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!error.retryable());
    let state = admin.get_stream(&name).await.unwrap().cached_info().clone();
    assert_eq!(state.state.messages, 1);
    assert_eq!(state.config.retention, jetstream::stream::RetentionPolicy::Limits);
}

#[tokio::test]
async fn a_further_kind_is_added_and_an_older_version_lives_with_it() {
    let url = instar_testkit::nats::shared().await.unwrap();
    let prefix = prefix();
    let old = connect(&url, &prefix, options()).await;
    soon(old.publish_rune(&rune("turn.queued", 1))).await.unwrap();
    let mut old_reader = old.transitions("shared", &["turn.queued"], pull()).await.unwrap();
    soon(old_reader.next()).await.ack().await.unwrap();

    let kinds = KINDS.into_iter().chain(["turn.invented"]);
    let space = Namespace::new(&prefix, kinds).unwrap();
    let mut larger = options();
    larger.streams.transition_bytes_max *= 2;
    let new = Bus::connect(space, &Connection::new(&url), larger.clone()).await.unwrap();
    drop(old_reader);
    let both = ["turn.queued", "turn.invented"];
    let mut reader = new.transitions("shared", &both, pull()).await.unwrap();
    soon(new.publish_rune(&rune("turn.invented", 2))).await.unwrap();
    let delivery = soon(reader.next()).await;
    assert_eq!(delivery.seq, 2);
    delivery.ack().await.unwrap();

    // The older version starts again, and takes neither subject nor kind away.
    let old = connect(&url, &prefix, larger).await;
    let _old_reader = old.transitions("shared", &["turn.queued"], pull()).await.unwrap();
    let admin = admin(&url).await;
    let stream = admin.get_stream(format!("{prefix}-v1-transition")).await.unwrap();
    assert!(stream.cached_info().config.subjects.contains(&format!("{prefix}.v1.turn.invented.*")));
    let consumer = stream.consumer_info("reader-shared").await.unwrap();
    assert_eq!(consumer.config.filter_subjects.len(), 2);
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(greet(socket));
        }
    });
    let error = soon(Bus::connect(space("old"), &Connection::new(url), options())).await.err();
    let error = error.expect("an old server was accepted");
    assert!(matches!(&error, BusError::ServerTooOld { found } if found == "2.9.10"), "{error}");
    assert!(error.to_string().contains("install 2.12.7"));
}

/// As much of a server as it takes to be asked for its version.
async fn greet(mut socket: tokio::net::TcpStream) {
    let (read, mut write) = socket.split();
    let info = concat!(
        r#"INFO {"server_id":"X","version":"2.9.10","proto":1,"host":"127.0.0.1","port":4222,"#,
        r#""headers":true,"jetstream":true,"max_payload":1048576}"#,
        "\r\n"
    );
    let _ = write.write_all(info.as_bytes()).await;
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.starts_with("PING") {
            let _ = write.write_all(b"PONG\r\n").await;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_gone_on_without_and_joined_when_it_comes() {
    let server = Nats::start().await.unwrap();
    server.kill9().await.unwrap();
    let mut connection = Connection::new(server.url());
    connection.within = Duration::from_millis(200);
    let bus = soon(Bus::connect(space(&prefix()), &connection, options())).await.unwrap();
    let mut watch = bus.watch();
    assert!(!watch.is_up() && !bus.connected());
    soon(watch.down()).await;
    // Nothing that is asked for meanwhile waits for the server, and none of it has to be asked for again.
    let mut turns = soon(bus.work_turn("default", pull())).await.unwrap();
    let topic = bus.space().delta("ses_1").unwrap();
    let mut listener = soon(bus.listen(&topic)).await.unwrap();
    assert_eq!(soon(listener.next()).await, Heard::Gap(None));

    server.restart().await.unwrap();
    soon(watch.up()).await;
    publish(&bus, 1).await;
    let delivery = soon(turns.next()).await;
    assert_eq!(delivery.value(), &turn(1));
    delivery.ack().await.unwrap();
    let delta = Delta { turn_id: "t".into(), ..Delta::default() };
    bus.cast(&topic, &delta.clone().into()).unwrap();
    let heard = async {
        loop {
            if let Heard::Message(message) = listener.next().await {
                return message;
            }
        }
    };
    assert_eq!(soon(heard).await, delta.into());
    assert_eq!(bus.stats().topology_repairs, 0, "what was never there was not lost");
}

/// Three times what is promised.
const NOTICED_WITHIN: Duration = Duration::from_secs(6);
const RECEIVES_WITHIN: Duration = Duration::from_secs(6);

#[tokio::test]
async fn who_stops_waiting_again_and_again_still_receives_after_an_outage() {
    let server = Nats::start().await.unwrap();
    let proxy = Proxy::start(server.url().trim_start_matches("nats://")).await.unwrap();
    let name = prefix();
    let bus = connect(&proxy.instead_of(server.url()), &name, options()).await;
    let other = connect(server.url(), &name, options()).await;
    // No watchdog helps.
    let patient = Pull { silence_max: Duration::from_secs(60), ..pull() };
    let mut turns = bus.work_turn("default", patient).await.unwrap();
    assert!(silent(Duration::from_millis(100), turns.next()).await);
    proxy.refuse();
    proxy.cut();
    // The server has nobody left to give it to, and forgets who has asked.
    let stream = admin(server.url()).await.get_stream(format!("{name}-v1-work")).await.unwrap();
    let nobody_asks = || async { stream.consumer_info("turn-default").await.unwrap().num_waiting == 0 };
    soon(wait::until(BOUND, nobody_asks)).await;
    publish(&other, 1).await;
    proxy.heal();
    // Whatever the server is asked for takes longer than anybody waits.
    proxy.delay(Duration::from_millis(10), Duration::ZERO);
    let healed = Instant::now();
    let receives = async {
        loop {
            if let Ok(delivery) = tokio::time::timeout(Duration::from_millis(1), turns.next()).await {
                break delivery;
            }
        }
    };
    let delivery = soon(receives).await;
    assert!(healed.elapsed() < RECEIVES_WITHIN, "{:?}", healed.elapsed());
    assert_eq!(delivery.value(), &turn(1));
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn it_is_known_whether_the_server_can_be_reached() {
    let server = Nats::start().await.unwrap();
    let proxy = Proxy::start(server.url().trim_start_matches("nats://")).await.unwrap();
    let bus = connect(&proxy.instead_of(server.url()), &prefix(), options()).await;
    let mut watch = bus.watch();
    assert!(watch.is_up());
    // Not a word any more, and nobody says goodbye.
    for silence in [true, false] {
        match silence {
            true => [Direction::Up, Direction::Down].map(|way| proxy.black_hole(way)),
            false => [signal(&server, "-STOP"), ()],
        };
        let from = Instant::now();
        soon(watch.down()).await;
        assert!(from.elapsed() < NOTICED_WITHIN, "{silence}: {:?}", from.elapsed());
        match silence {
            true => proxy.heal(),
            false => signal(&server, "-CONT"),
        }
        let from = Instant::now();
        soon(watch.up()).await;
        assert!(from.elapsed() < NOTICED_WITHIN, "{silence}: {:?}", from.elapsed());
    }
    // Up means that it can be used: also when everything is gone.
    server.kill9().await.unwrap();
    soon(watch.down()).await;
    server.wipe_and_restart().await.unwrap();
    soon(watch.up()).await;
    publish(&bus, 1).await;
    assert!(local(options()).watch().is_up());
}

#[test]
fn a_delivery_dropped_in_a_dying_runtime_or_outside_of_one_does_not_panic() {
    let outside = tokio::runtime::Runtime::new().unwrap();
    let url = outside.block_on(instar_testkit::nats::shared()).unwrap();
    let name = prefix();
    for nats in [false, true] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (held, turns) = runtime.block_on(async {
            let bus = if nats { connect(&url, &name, options()).await } else { local(options()) };
            let mut turns = bus.work_turn("default", impatient(500)).await.unwrap();
            publish(&bus, 1).await;
            publish(&bus, 2).await;
            let inside = soon(turns.next()).await;
            // Dropped by the runtime when it ends.
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(inside);
            });
            (soon(turns.next()).await, turns)
        });
        runtime.shutdown_background();
        drop(held);
        drop(turns);
    }
    // And both come again.
    outside.block_on(async {
        let bus = connect(&url, &name, options()).await;
        let mut turns = bus.work_turn("default", impatient(500)).await.unwrap();
        for _ in 0..2 {
            soon(turns.next()).await.ack().await.unwrap();
        }
    });
}
