//! What every implementation of the bus promises, written once and run against each.

mod bench;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bench::*;
use bytes::Bytes;
use instar_bus::message::{Control, Delta, Live, control};
use instar_bus::{Bus, BusError, Heard, Options, Pull, Stamp};

macro_rules! conformance {
    ($($name:ident $(with $options:expr)?;)*) => {
        mod local {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::local(super::or_default!($($options)?))).await;
            })*
        }
        mod nats {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::nats(super::or_default!($($options)?)).await).await;
            })*
        }
    };
}

macro_rules! or_default {
    () => {
        super::options()
    };
    ($options:expr) => {
        $options
    };
}
use or_default;

conformance! {
    a_message_is_delivered_until_it_is_acked;
    a_dropped_delivery_comes_again;
    an_undecided_delivery_comes_again_after_ack_wait;
    another_consumer_takes_over_what_one_forgot;
    progress_puts_the_redelivery_off;
    a_nak_comes_again_after_its_delay;
    a_repeated_id_is_stored_once;
    each_message_goes_to_exactly_one_of_several_consumers;
    lanes_classes_and_owners_do_not_mix;
    messages_wait_for_a_consumer_that_comes_later;
    what_was_fetched_ahead_goes_back_when_its_consumer_goes;
    what_cannot_be_decoded_becomes_a_dead_letter_and_the_consumer_goes_on;
    a_message_of_the_wrong_type_becomes_a_dead_letter;
    a_handler_can_give_a_message_up;
    a_message_delivered_too_often_becomes_a_dead_letter;
    a_forged_subject_token_is_refused;
    the_trace_arrives;
    a_reader_gets_its_kinds_and_keeps_its_place;
    messages_handed_over_arrive_in_order_without_waiting;
    a_hint_needs_no_name_and_repeats_itself;
    runes_that_follow_each_other_have_one_receipt;
    what_a_session_does_reaches_whoever_follows_it;
    a_message_over_the_limit_is_refused with super::small(1024, 4 << 20);
    a_full_work_queue_refuses_loudly with super::small(64 << 10, 64 << 10);
    live_messages_reach_every_listener;
    a_slow_listener_is_told_what_it_lost with super::narrow(4);
    a_live_transition_reaches_a_listener_of_its_kind;
    the_dead_letter_of_a_message_at_the_limit_fits with super::small(64 << 10, 4 << 20);
}

fn small(payload_bytes_max: usize, work_bytes_max: u64) -> Options {
    let mut options = options();
    options.payload_bytes_max = payload_bytes_max;
    options.streams.work_bytes_max = work_bytes_max;
    options
}

fn narrow(mailbox_max: usize) -> Options {
    Options { mailbox_max, ..options() }
}

async fn a_message_is_delivered_until_it_is_acked(bus: Bus) {
    let mut turns = bus.work_turn("default", impatient(300)).await.unwrap();
    publish(&bus, 1).await;
    let delivery = soon(turns.next()).await;
    assert_eq!((delivery.value(), delivery.deliveries()), (&turn(1), 1));
    assert!(delivery.subject().ends_with(".v1.work.turn.default"));
    delivery.ack().await.unwrap();
    assert!(silent(Duration::from_millis(900), turns.next()).await);
    assert_eq!(bus.stats().redelivered, 0);
}

async fn a_dropped_delivery_comes_again(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    publish(&bus, 1).await;
    drop(soon(turns.next()).await);
    let again = soon(turns.next()).await;
    assert_eq!((again.value(), again.deliveries()), (&turn(1), 2));
    again.ack().await.unwrap();
    assert_eq!((bus.stats().returned, bus.stats().redelivered), (1, 1));
}

async fn an_undecided_delivery_comes_again_after_ack_wait(bus: Bus) {
    let mut turns = bus.work_turn("default", impatient(500)).await.unwrap();
    publish(&bus, 1).await;
    let forgotten = soon(turns.next()).await;
    let from = Instant::now();
    let again = soon(turns.next()).await;
    assert!(from.elapsed() >= Duration::from_millis(400), "{:?}", from.elapsed());
    assert_eq!((again.value(), again.deliveries()), (&turn(1), 2));
    again.ack().await.unwrap();
    forgotten.ack().await.unwrap();
}

async fn another_consumer_takes_over_what_one_forgot(bus: Bus) {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..2 {
        let mut turns = bus.work_turn("default", impatient(500)).await.unwrap();
        let sender = sender.clone();
        tokio::spawn(async move { sender.send(turns.next().await) });
    }
    // Both wait before anything is pending: the one that gets nothing must wake up for the redelivery.
    tokio::task::yield_now().await;
    publish(&bus, 1).await;
    let forgotten = soon(received.recv()).await.unwrap();
    let again = soon(received.recv()).await.unwrap();
    assert_eq!((again.value(), again.deliveries()), (forgotten.value(), 2));
    again.ack().await.unwrap();
}

async fn progress_puts_the_redelivery_off(bus: Bus) {
    let mut turns = bus.work_turn("default", impatient(600)).await.unwrap();
    publish(&bus, 1).await;
    let mut long = soon(turns.next()).await;
    for _ in 0..4 {
        assert!(silent(Duration::from_millis(300), turns.next()).await);
        long.progress().await.unwrap();
    }
    long.ack().await.unwrap();
    assert_eq!(bus.stats().redelivered, 0);
}

async fn a_nak_comes_again_after_its_delay(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    publish(&bus, 1).await;
    let from = Instant::now();
    soon(turns.next()).await.nak(Duration::from_millis(500)).await.unwrap();
    // It does not hold the others up.
    publish(&bus, 2).await;
    let other = soon(turns.next()).await;
    assert_eq!(other.value(), &turn(2));
    other.ack().await.unwrap();
    let again = soon(turns.next()).await;
    assert_eq!((again.value(), again.deliveries()), (&turn(1), 2));
    assert!(from.elapsed() >= Duration::from_millis(450), "{:?}", from.elapsed());
    again.ack().await.unwrap();
}

async fn a_repeated_id_is_stored_once(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let first = publish(&bus, 1).await;
    let second = publish(&bus, 1).await;
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(first.sequence, second.sequence);
    soon(turns.next()).await.ack().await.unwrap();
    // Also after it was acked and is gone from the queue.
    assert!(publish(&bus, 1).await.duplicate);
    publish(&bus, 2).await;
    let next = soon(turns.next()).await;
    assert_eq!(next.value(), &turn(2));
    next.ack().await.unwrap();
    assert_eq!((bus.stats().published, bus.stats().duplicates), (4, 2));
}

async fn each_message_goes_to_exactly_one_of_several_consumers(bus: Bus) {
    const COUNT: usize = 200;
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let mut turns = bus.work_turn("default", Pull { prefetch: 4, ..pull() }).await.unwrap();
        let sender = sender.clone();
        tasks.spawn(async move {
            loop {
                let delivery = turns.next().await;
                sender.send((worker, delivery.turn_id.clone())).unwrap();
                delivery.ack().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    for n in 0..COUNT {
        publish(&bus, n).await;
    }
    let (mut workers, mut turns) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..COUNT {
        let (worker, turn) = soon(received.recv()).await.unwrap();
        workers.insert(worker);
        assert!(turns.insert(turn), "delivered twice");
    }
    assert!(silent(Duration::from_millis(300), received.recv()).await);
    assert!(workers.len() > 1, "one consumer took everything");
}

async fn lanes_classes_and_owners_do_not_mix(bus: Bus) {
    let mut default = bus.work_turn("default", pull()).await.unwrap();
    let mut batch = bus.work_turn("batch", pull()).await.unwrap();
    let mut owner = bus.owner_turn("w-1", pull()).await.unwrap();
    let mut shell = bus.work_tool("shell", pull()).await.unwrap();
    let space = bus.space();
    publish(&bus, 1).await;
    bus.publish(&space.work_turn("batch").unwrap(), &turn(2), Stamp::new("a")).await.unwrap();
    bus.publish(&space.owner_turn("w-1").unwrap(), &turn(3), Stamp::new("b")).await.unwrap();
    bus.publish(&space.work_tool("shell").unwrap(), &tool(4), Stamp::new("c")).await.unwrap();
    for (deliveries, expected) in [(&mut default, 1), (&mut batch, 2), (&mut owner, 3)] {
        let delivery = soon(deliveries.next()).await;
        assert_eq!(delivery.value(), &turn(expected));
        delivery.ack().await.unwrap();
    }
    let delivery = soon(shell.next()).await;
    assert_eq!(delivery.value(), &tool(4));
    delivery.ack().await.unwrap();
}

async fn messages_wait_for_a_consumer_that_comes_later(bus: Bus) {
    publish(&bus, 1).await;
    publish(&bus, 2).await;
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    for n in [1, 2] {
        let delivery = soon(turns.next()).await;
        assert_eq!(delivery.value(), &turn(n));
        delivery.ack().await.unwrap();
    }
}

async fn what_was_fetched_ahead_goes_back_when_its_consumer_goes(bus: Bus) {
    // Far longer than the test may take: only giving back can make it pass.
    let patient = Pull { ack_wait: Duration::from_secs(120), prefetch: 16, ..pull() };
    for n in 0..4 {
        publish(&bus, n).await;
    }
    let mut one = bus.work_turn("default", patient.clone()).await.unwrap();
    soon(one.next()).await.ack().await.unwrap();
    drop(one);
    let mut other = bus.work_turn("default", patient).await.unwrap();
    let mut rest = BTreeSet::new();
    while rest.len() < 3 {
        let delivery = soon(other.next()).await;
        rest.insert(delivery.turn_id.clone());
        delivery.ack().await.unwrap();
    }
    assert_eq!(rest, ["trn_1", "trn_2", "trn_3"].map(String::from).into());
}

async fn what_cannot_be_decoded_becomes_a_dead_letter_and_the_consumer_goes_on(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let mut dead = bus.dead_letters("operator", pull()).await.unwrap();
    let subject = bus.space().work_turn("default").unwrap();
    let garbage = Bytes::from_static(b"\xff\xfe not a turn");
    bus.publish_raw(subject.as_str(), garbage.clone(), "bad").await.unwrap();
    bus.publish_raw(subject.as_str(), Bytes::new(), "empty").await.unwrap();
    publish(&bus, 1).await;
    let good = soon(turns.next()).await;
    assert_eq!(good.value(), &turn(1));
    good.ack().await.unwrap();

    let mut payloads = BTreeSet::new();
    for _ in 0..2 {
        let letter = soon(dead.next()).await;
        assert_eq!(letter.subject, subject.as_str());
        assert!(letter.reason.contains("not an instar.v1.WorkTurn"), "{}", letter.reason);
        assert_eq!(letter.deliveries, 1);
        assert_eq!(letter.payload_bytes, letter.payload.len() as u64);
        assert!(letter.first_seen > 1_700_000_000_000_000);
        assert!(letter.headers.contains_key("Nats-Msg-Id"));
        payloads.insert(letter.payload.clone());
        letter.ack().await.unwrap();
    }
    assert_eq!(payloads, [Bytes::new(), garbage].into());
    assert_eq!(bus.stats().dead_lettered, 2);
}

async fn a_message_of_the_wrong_type_becomes_a_dead_letter(bus: Bus) {
    let mut tools = bus.work_tool("shell", pull()).await.unwrap();
    let mut dead = bus.dead_letters("operator", pull()).await.unwrap();
    // A whole rune where a tool call belongs: it even decodes.
    use prost::Message;
    let subject = bus.space().work_tool("shell").unwrap();
    let payload = Bytes::from(rune("turn.queued", 1).encode_to_vec());
    bus.publish_raw(subject.as_str(), payload, "wrong").await.unwrap();
    bus.publish(&subject, &tool(1), Stamp::new("right")).await.unwrap();
    let right = soon(tools.next()).await;
    assert_eq!(right.value(), &tool(1));
    right.ack().await.unwrap();
    soon(dead.next()).await.ack().await.unwrap();
}

async fn a_handler_can_give_a_message_up(bus: Bus) {
    let mut turns = bus.work_turn("default", impatient(300)).await.unwrap();
    let mut dead = bus.dead_letters("operator", pull()).await.unwrap();
    publish(&bus, 1).await;
    soon(turns.next()).await.dead_letter("no such session").await.unwrap();
    let letter = soon(dead.next()).await;
    assert_eq!(letter.reason, "no such session");
    // What an operator does after repairing the cause.
    bus.publish_raw(&letter.subject, letter.payload.clone(), "again").await.unwrap();
    letter.ack().await.unwrap();
    let again = soon(turns.next()).await;
    assert_eq!((again.value(), again.deliveries()), (&turn(1), 1));
    again.ack().await.unwrap();
    assert!(silent(Duration::from_millis(700), turns.next()).await);
}

async fn a_message_delivered_too_often_becomes_a_dead_letter(bus: Bus) {
    let pull = Pull { deliveries_max: 2, ..pull() };
    let mut turns = bus.work_turn("default", pull.clone()).await.unwrap();
    let mut dead = bus.dead_letters("operator", pull).await.unwrap();
    publish(&bus, 1).await;
    for _ in 0..2 {
        soon(turns.next()).await.nak(Duration::ZERO).await.unwrap();
    }
    let letter = soon(async {
        tokio::select! {
            letter = dead.next() => letter,
            _ = turns.next() => panic!("delivered a third time"),
        }
    })
    .await;
    assert_eq!((letter.deliveries, letter.payload_bytes > 0), (3, true));
    assert!(letter.reason.contains("more than 2 times"), "{}", letter.reason);
    letter.ack().await.unwrap();
}

async fn a_forged_subject_token_is_refused(bus: Bus) {
    for forged in ["*", ">", "a.b", "a b", "", "a\r\nPUB x 0"] {
        assert!(matches!(bus.work_turn(forged, pull()).await.err(), Some(BusError::Subject(_))));
        assert!(matches!(bus.work_tool(forged, pull()).await.err(), Some(BusError::Subject(_))));
        assert!(matches!(bus.owner_turn(forged, pull()).await.err(), Some(BusError::Subject(_))));
        assert!(matches!(bus.dead_letters(forged, pull()).await.err(), Some(BusError::Subject(_))));
        assert!(bus.transitions(forged, &KINDS, pull()).await.is_err());
        assert!(bus.transitions("reader", &[forged], pull()).await.is_err());
        let mut rune = rune("turn.queued", 1);
        rune.session_id = forged.into();
        assert!(bus.publish_rune(&rune).await.is_err());
        let mut rune = bench::rune("turn.queued", 1);
        rune.id = "a\r\nX: y".into();
        assert!(matches!(bus.publish_rune(&rune).await, Err(BusError::MessageId { .. })));
        let subject = format!("{}.work.turn.{forged}", bus.space().root());
        assert!(bus.publish_raw(&subject, Bytes::new(), "id").await.is_err());
    }
    let foreign = bus.publish_raw("$SYS.REQ.SERVER.PING", Bytes::new(), "id").await.unwrap_err();
    assert!(!foreign.retryable());
}

async fn the_trace_arrives(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let subject = bus.space().work_turn("default").unwrap();
    bus.publish(&subject, &turn(1), Stamp::new("a").trace(TRACE)).await.unwrap();
    bus.publish(&subject, &turn(2), Stamp::new("b").trace("broken\r\n")).await.unwrap();
    for expected in [Some(TRACE), None] {
        let delivery = soon(turns.next()).await;
        assert_eq!(delivery.traceparent(), expected);
        delivery.ack().await.unwrap();
    }
}

async fn a_reader_gets_its_kinds_and_keeps_its_place(bus: Bus) {
    for (kind, seq) in [("turn.queued", 1), ("tool.call", 2), ("turn.completed", 3)] {
        soon(bus.publish_rune(&rune(kind, seq))).await.unwrap();
    }
    let kinds = ["turn.queued", "turn.completed"];
    let mut reader = bus.transitions("webhook", &kinds, pull()).await.unwrap();
    for (kind, seq) in [("turn.queued", 1), ("turn.completed", 3)] {
        let delivery = soon(reader.next()).await;
        assert_eq!(delivery.value(), &rune(kind, seq));
        assert_eq!(delivery.traceparent(), Some(TRACE));
        delivery.ack().await.unwrap();
    }
    drop(reader);
    soon(bus.publish_rune(&rune("turn.queued", 4))).await.unwrap();
    let mut reader = bus.transitions("webhook", &kinds, pull()).await.unwrap();
    let delivery = soon(reader.next()).await;
    assert_eq!(delivery.seq, 4);
    delivery.ack().await.unwrap();
    // Another name reads the same transitions from the beginning.
    let mut other = bus.transitions("audit", &KINDS, pull()).await.unwrap();
    let delivery = soon(other.next()).await;
    assert_eq!(delivery.seq, 1);
    delivery.ack().await.unwrap();
}

async fn messages_handed_over_arrive_in_order_without_waiting(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let subject = bus.space().work_turn("default").unwrap();
    let mut sent = Vec::new();
    for n in 0..500 {
        let handed = bus.publish_soon(&subject, &turn(n), Stamp::new(&format!("turn:{n}")));
        // Every other caller isn't interested in the receipt.
        sent.extend(Some(handed.unwrap()).filter(|_| n % 2 == 0));
    }
    soon(bus.flush(Duration::from_secs(10))).await.unwrap();
    for sent in sent {
        assert!(!soon(sent).await.unwrap().duplicate);
    }
    assert_eq!(bus.stats().published, 500);
    for n in 0..500 {
        let delivery = soon(turns.next()).await;
        assert_eq!(delivery.value(), &turn(n));
        delivery.ack().await.unwrap();
    }
}

async fn a_hint_needs_no_name_and_repeats_itself(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let subject = bus.space().work_turn("default").unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for _ in 0..2 {
        bus.hint(&subject, &turn(7), Some(trace)).unwrap();
    }
    for _ in 0..2 {
        let delivery = soon(turns.next()).await;
        assert_eq!((delivery.value(), delivery.traceparent()), (&turn(7), Some(trace)));
        delivery.ack().await.unwrap();
    }
}

async fn runes_that_follow_each_other_have_one_receipt(bus: Bus) {
    let mut reader = bus.transitions("witness", &KINDS, pull()).await.unwrap();
    let runes: Vec<_> = (1..=9).map(|seq| rune(KINDS[seq as usize % KINDS.len()], seq)).collect();
    let sent: Vec<_> = runes.chunks(3).map(|chunk| bus.publish_runes_soon(chunk).unwrap()).collect();
    for sent in sent {
        assert!(!soon(sent).await.unwrap().duplicate);
    }
    for seq in 1..=9 {
        let delivery = soon(reader.next()).await;
        assert_eq!(delivery.seq, seq, "in the order in which they were handed over");
        delivery.ack().await.unwrap();
    }
    assert!(soon(bus.publish_runes_soon(&runes[8..]).unwrap()).await.unwrap().duplicate);
}

async fn what_a_session_does_reaches_whoever_follows_it(bus: Bus) {
    let own = rune("turn.completed", 2);
    let mut listener = bus.listen_session(&own.session_id).await.unwrap();
    let other = instar_bus::message::Rune { session_id: "ses_other".into(), id: "run_other".into(), ..own.clone() };
    for rune in [&other, &rune("turn.queued", 1), &own] {
        soon(bus.publish_rune(rune)).await.unwrap();
    }
    for seq in [1, 2] {
        let Heard::Message(rune) = soon(listener.next()).await else { panic!("a gap") };
        assert_eq!((rune.seq, rune.session_id), (seq, own.session_id.clone()));
    }
}

async fn a_message_over_the_limit_is_refused(bus: Bus) {
    let mut large = turn(1);
    large.reason = "x".repeat(2000);
    let subject = bus.space().work_turn("default").unwrap();
    let error = bus.publish(&subject, &large, Stamp::new("a")).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { bytes_max: 1024, .. }), "{error}");
    assert!(!error.retryable());
    let delta = Delta { turn_id: "t".into(), text: "x".repeat(2000), ..Delta::default() };
    let topic = bus.space().delta("ses_1").unwrap();
    assert!(matches!(bus.cast(&topic, &delta.into()), Err(BusError::TooLarge { .. })));
}

async fn a_full_work_queue_refuses_loudly(bus: Bus) {
    let mut large = turn(1);
    large.reason = "x".repeat(20_000);
    let subject = bus.space().work_turn("default").unwrap();
    let mut refused = None;
    for n in 0..10 {
        match soon(bus.publish(&subject, &large, Stamp::new(&format!("{n}")))).await {
            Ok(_) => {}
            Err(error) => {
                refused = Some((n, error));
                break;
            }
        }
    }
    let (n, error) = refused.expect("ten large messages fit into a small queue");
    assert!(n > 0);
    assert!(matches!(error, BusError::Full { .. }), "{error}");
    assert!(error.retryable());
    // Room comes back as work is done, and the same id can be sent then.
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    soon(turns.next()).await.ack().await.unwrap();
    soon(turns.next()).await.ack().await.unwrap();
    soon(async {
        while bus.publish(&subject, &turn(1), Stamp::new(&format!("{n}"))).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn delta(index: u64) -> Live {
    Delta { session_id: "ses_1".into(), turn_id: "trn_1".into(), index, text: "word".into(), ..Delta::default() }.into()
}

async fn live_messages_reach_every_listener(bus: Bus) {
    let topic = bus.space().delta("ses_1").unwrap();
    let mut one = bus.listen(&topic).await.unwrap();
    let mut other = bus.listen(&topic).await.unwrap();
    let mut stranger = bus.listen(&bus.space().delta("ses_2").unwrap()).await.unwrap();
    let agent = bus.space().control("agt_1").unwrap();
    let mut worker = bus.listen(&agent).await.unwrap();
    let interrupt = Control {
        session_id: "ses_1".into(),
        agent_id: "agt_1".into(),
        action: control::Action::Interrupt.into(),
        ..Control::default()
    };
    for index in 0..3 {
        bus.cast(&topic, &delta(index)).unwrap();
    }
    bus.cast(&agent, &interrupt).unwrap();
    for index in 0..3 {
        assert_eq!(soon(one.next()).await, Heard::Message(delta(index)));
        assert_eq!(soon(other.next()).await, Heard::Message(delta(index)));
    }
    assert_eq!(soon(worker.next()).await, Heard::Message(interrupt));
    assert!(silent(Duration::from_millis(100), stranger.next()).await);
    assert_eq!(bus.stats().dropped, 0);
}

async fn a_slow_listener_is_told_what_it_lost(bus: Bus) {
    let topic = bus.space().delta("ses_1").unwrap();
    let mut slow = bus.listen(&topic).await.unwrap();
    for index in 0..10 {
        bus.cast(&topic, &delta(index)).unwrap();
    }
    soon(instar_testkit::wait::until(Duration::from_secs(10), || async { bus.stats().dropped == 6 })).await;
    assert_eq!(soon(slow.next()).await, Heard::Gap(Some(6)));
    for index in 6..10 {
        assert_eq!(soon(slow.next()).await, Heard::Message(delta(index)));
    }
}

async fn a_live_transition_reaches_a_listener_of_its_kind(bus: Bus) {
    let mut listener = bus.listen_transitions(&["turn.queued", "tool.call"]).await.unwrap();
    for (kind, seq) in [("turn.queued", 1), ("turn.completed", 2), ("tool.call", 3)] {
        soon(bus.publish_rune(&rune(kind, seq))).await.unwrap();
    }
    let mut seqs = BTreeSet::new();
    for _ in 0..2 {
        let Heard::Message(rune) = soon(listener.next()).await else { panic!("a gap") };
        seqs.insert(rune.seq);
    }
    assert_eq!(seqs, [1, 3].into());
}

async fn the_dead_letter_of_a_message_at_the_limit_fits(bus: Bus) {
    let mut turns = bus.work_turn("default", pull()).await.unwrap();
    let mut dead = bus.dead_letters("operator", pull()).await.unwrap();
    let subject = bus.space().work_turn("default").unwrap();
    let huge = Bytes::from(vec![0xff; 64 << 10]);
    bus.publish_raw(subject.as_str(), huge, "huge").await.unwrap();
    let letter = soon(async {
        tokio::select! {
            letter = dead.next() => letter,
            _ = turns.next() => panic!("garbage was delivered"),
        }
    })
    .await;
    assert_eq!(letter.payload_bytes, 64 << 10);
    assert!(letter.payload.len() > 60 << 10 && letter.payload.len() < 64 << 10);
    letter.ack().await.unwrap();
}
