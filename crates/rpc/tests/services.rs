//! Tests the services that are available in each session without a grant (measurements and files).
//! The tests encode their requests themselves, so that they can also send invalid requests.

mod hand;

use anyfn::{Any, PackedFunc, registry};
use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_rpc::policy::Policy;
use anyfn_runtime as _;
use blake2::{Blake2s256, Digest};
use hand::*;

fn policy() -> Policy {
    Policy {
        functions: vec!["test.services.*".into()],
        upload: true,
        memory_bytes: 1 << 20,
        store_bytes: 1 << 20,
        ..Policy::closed()
    }
}

fn register_all() {
    let count = PackedFunc::new(|args| Any::new(args.len()));
    registry::register("test.services.count").overriding().set(&count).unwrap();
}

/// Checks that a session still works, and then ends it.
fn part(mut line: Line, server: Server) {
    assert!(line.serves(1 << 40));
    line.send(&frame(BYE, 0, 0, b"well"));
    assert!(server.join().unwrap().contains("well"));
}

/// Returns the encoded options of a measurement, one per element: device, number of calls, number of repeats,
/// minimum duration in milliseconds, number of tries, cooldown in milliseconds, number of repeats between
/// cooldowns, number of bytes to access to flush the caches, name of the preprocessing function, and the
/// preprocessing function itself.
fn measurement(change: impl FnOnce(&mut [Vec<u8>; 10])) -> Vec<Vec<u8>> {
    let float = |value: f64| [&[4][..], &value.to_le_bytes()].concat();
    let mut options =
        [device(1, 0), int(1), int(1), float(0.0), int(1), int(0), int(1), int(0), text(""), none()];
    change(&mut options);
    options.to_vec()
}

#[test]
fn measurements_are_limited_as_calls_are() {
    register_all();
    let (mut line, server) = greeted(policy());
    let count = line.global(1, "test.services.count");
    let float = |value: f64| [&[4][..], &value.to_le_bytes()].concat();
    let evaluator = |line: &mut Line, of: u64, options: Vec<Vec<u8>>| {
        line.send(&ask(2, TIME, &[vec![int(of as i64)], options].concat()));
        line.answer(2).map(|answer| {
            assert_eq!(answer[0], 16);
            u64::from_le_bytes(answer[1..9].try_into().unwrap())
        })
    };
    let once = evaluator(&mut line, count, measurement(|_| ())).unwrap();
    line.send(&call(3, 0, 0, once, &[none()]));
    assert_eq!(line.answer(3).unwrap()[0], 15, "a graph");
    // Memory that a measurement uses to flush caches counts towards the limit, which is 1 MiB in this session.
    for bytes in [(1 << 20) + 1, 64 << 20, 1 << 40, i64::MAX, -1] {
        let refused = evaluator(&mut line, count, measurement(|options| options[7] = int(bytes))).unwrap_err();
        assert!(
            ["MemoryError", "OverflowError", "TypeError", "ValueError"].contains(&&*refused.0),
            "{bytes}: {refused:?}"
        );
    }
    let flushes = evaluator(&mut line, count, measurement(|options| options[7] = int(1 << 20))).unwrap();
    line.send(&call(3, 0, 0, flushes, &[none()]));
    line.answer(3).unwrap();
    // Invalid options, devices that are not granted, and handles that are not functions.
    let nonsense: [(usize, Vec<u8>); 12] = [
        (0, device(2, 0)),
        (0, device(-1, i32::MIN)),
        (1, int(0)),
        (1, int(i64::MAX)),
        (1, int(-1)),
        (2, int(0)),
        (3, float(f64::NAN)),
        (3, float(f64::INFINITY)),
        (3, float(-1.0)),
        (6, int(0)),
        (8, text("l9")),
        (9, int(1)),
    ];
    for (at, option) in nonsense {
        let shown = format!("option {at}: {option:?}");
        evaluator(&mut line, count, measurement(|options| options[at] = option)).expect_err(&shown);
    }
    let tensor = line.empty(4, 16);
    for handle in [tensor, 0, u64::MAX, count + 1000] {
        evaluator(&mut line, handle, measurement(|_| ())).unwrap_err();
    }
    for args in [vec![], vec![none()], vec![int(count as i64); 40]] {
        line.send(&ask(5, TIME, &args));
        line.answer(5).unwrap_err();
    }
    // A measurement that would not end can be cancelled, whether it makes calls, rests or runs another measurement.
    let long = evaluator(&mut line, count, measurement(|options| options[1] = int(1 << 40))).unwrap();
    let rests = |options: &mut [Vec<u8>; 10]| (options[2], options[5]) = (int(i64::MAX), int(i64::MAX));
    let resting = evaluator(&mut line, count, measurement(rests)).unwrap();
    let nested = evaluator(&mut line, long, measurement(|options| options[2] = int(i64::MAX))).unwrap();
    for endless in [long, resting, nested] {
        line.send(&call(6, 0, 0, endless, &[none()]));
        assert!(line.serves(7));
        line.send(&frame(CANCEL, 0, 6, b""));
        let (kind, message) = line.answer(6).unwrap_err();
        assert!(["CancelledError", "InterruptedError"].contains(&&*kind), "{kind}: {message}");
    }
    part(line, server);
}

fn digest(content: &[u8]) -> String {
    Blake2s256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Requests the list of a session's files and returns the encoded reply: the digest and size of
/// each file.
fn files(line: &mut Line) -> Vec<u8> {
    line.send(&ask(900, FILES, &[]));
    line.answer(900).unwrap()
}

fn one_file(digest: &str, size: i64) -> Vec<u8> {
    [&[12, 1, 0, 0, 0][..], &text(digest), &int(size)].concat()
}

const CONTENT: &[u8] = b"what the file is to hold";
const OTHER: &[u8] = b"what it must never holdd";

#[test]
fn uploads_of_one_digest_at_one_time_do_not_mix() {
    let digest = digest(CONTENT);
    let size = CONTENT.len() as i64;
    // Parts of two transfers in all orders: transfer 2 has the right content, transfer 3 the wrong one.
    for order in [[2, 2, 3, 3], [2, 3, 2, 3], [2, 3, 3, 2], [3, 3, 2, 2], [3, 2, 3, 2], [3, 2, 2, 3]] {
        let (mut line, server) = greeted(policy());
        for id in [2, 3] {
            line.send(&ask(id, PUT, &[text(&digest), int(size)]));
        }
        let mut sent = [0, 0];
        for id in order {
            let at = &mut sent[id as usize - 2];
            let content = if id == 2 { CONTENT } else { OTHER };
            line.send(&data(id, *at as u64, &content[*at..][..12]));
            *at += 12;
            // The file does not exist before all of the right content has arrived.
            line.send(&ask(9, HAS, &[array(&[text(&digest)])]));
            let (mut answers, mut is_there) = (Vec::new(), None);
            while is_there.is_none() {
                match line.receive().unwrap() {
                    (RETURN, _, 9, payload) => is_there = Some(payload == [10, 1, 0, 0, 0, 2]),
                    other => answers.push(other),
                }
            }
            assert_eq!(is_there, Some(sent[0] == 24), "{order:?}");
            for (kind, _, of, payload) in answers {
                match (kind, of) {
                    (RETURN, 2) => assert_eq!(payload, none()),
                    (ERROR, 3) => assert!(error_of(&payload).1.contains("not match its digest")),
                    other => panic!("{order:?}: {other:?}"),
                }
            }
        }
        assert_eq!(files(&mut line), one_file(&digest, size), "{order:?}");
        part(line, server);
    }
}

#[test]
fn sessions_that_upload_one_digest_do_not_share_it() {
    let digest = digest(CONTENT);
    let size = CONTENT.len() as i64;
    let (mut right, right_server) = greeted(policy());
    let (mut wrong, wrong_server) = greeted(policy());
    for line in [&mut right, &mut wrong] {
        line.send(&ask(2, PUT, &[text(&digest), int(size)]));
        line.send(&data(2, 0, &CONTENT[..12]));
    }
    wrong.send(&data(2, 12, &OTHER[12..]));
    assert!(wrong.answer(2).unwrap_err().1.contains("not match its digest"));
    right.send(&data(2, 12, &CONTENT[12..]));
    assert_eq!(right.answer(2).unwrap(), none());
    assert_eq!(files(&mut right), one_file(&digest, size));
    assert_eq!(files(&mut wrong), [12, 0, 0, 0, 0]);
    wrong.send(&ask(3, LOAD, &[text(&digest)]));
    assert!(wrong.answer(3).unwrap_err().1.contains("upload it first"));
    // A file that is removed while it is uploaded again, or uploaded again while it exists, exists in the end.
    right.send(&ask(4, PUT, &[text(&digest), int(size)]));
    right.send(&ask(5, REMOVE, &[text(&digest)]));
    assert_eq!(right.answer(5).unwrap(), [2]);
    right.send(&data(4, 0, CONTENT));
    assert_eq!(right.answer(4).unwrap(), none());
    assert_eq!(files(&mut right), one_file(&digest, size));
    part(right, right_server);
    part(wrong, wrong_server);
}

/// Returns the path of the file with the digest `digest` in the folder of the test server.
fn place_of(digest: &str) -> std::path::PathBuf {
    let prefix = format!("anyfn-rpc-hand-{}-", std::process::id());
    let folders = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let ours = folders.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)));
    let mut places = ours.map(|entry| entry.path().join(format!("{digest}.so"))).filter(|path| path.exists());
    places.next().expect("the file is somewhere")
}

#[test]
fn a_file_that_was_changed_is_not_loaded() {
    let content = [CONTENT, &[7; 3 << 19]].concat();
    let digest = digest(&content);
    let (mut line, server) = greeted(Policy { store_bytes: 4 << 20, ..policy() });
    line.send(&ask(2, PUT, &[text(&digest), int(content.len() as i64)]));
    for (at, part) in (0..).step_by(200_000).zip(content.chunks(200_000)) {
        line.send(&data(2, at, part));
    }
    line.answer(2).unwrap();
    // The file is not a library. This error is reported only if the content is unchanged.
    line.send(&ask(3, LOAD, &[text(&digest)]));
    let (_, why) = line.answer(3).unwrap_err();
    assert!(!why.contains("no longer"), "{why}");
    let place = place_of(&digest);
    let changed = |at: usize| {
        let mut changed = content.clone();
        changed[at] ^= 1;
        changed
    };
    for other in
        [changed(0), changed(content.len() - 1), content[1..].to_vec(), vec![], [&content[..], b"x"].concat()]
    {
        std::fs::write(&place, &other).unwrap();
        line.send(&ask(3, LOAD, &[text(&digest)]));
        let (kind, why) = line.answer(3).unwrap_err();
        assert_eq!((&*kind, why.contains("no longer matches its digest")), ("ValueError", true), "{why}");
    }
    // The changed file can be removed.
    line.send(&ask(4, REMOVE, &[text(&digest)]));
    assert_eq!(line.answer(4).unwrap(), [2]);
    part(line, server);
}

#[test]
fn all_of_it_with_a_key() {
    again_with_a_key("all_of_it_with_a_key", 4);
}
