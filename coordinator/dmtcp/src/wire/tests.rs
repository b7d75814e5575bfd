use super::*;
use proptest::prelude::*;

fn header(message: &Message) -> [u8; HEADER] {
    message.encode()[..HEADER].try_into().unwrap()
}

#[test]
fn every_field_comes_back() {
    let message = Message {
        kind: Kind::StoreRequest,
        name: "/plugin/socket/rst".into(),
        store_code: 7,
        state: WorkerState::Restarting,
        from: Identity { host: 0x98ff, time: 1 << 60, pid: 40000, generation: 3 },
        group: Identity { host: 1, time: 2, pid: -3, generation: -4 },
        virtual_pid: 41000,
        real_pid: 7,
        key_length: 4,
        value_length: 2,
        peers: 9,
        is_running: true,
        command: 6,
        command_status: CommandStatus::NotRunning,
        time_stamp: u64::MAX - 1,
        interval: 60,
        address: Ipv4Addr::new(10, 0, 0, 1),
        exit_after: true,
        payload: b"key\0v\0".to_vec(),
    };
    let (mut decoded, length) = Message::decode(&header(&message)).unwrap();
    assert_eq!(length, 6);
    decoded.payload.clone_from(&message.payload);
    assert_eq!(decoded, message);
}

#[test]
fn what_is_wrong_is_told_apart() {
    let good = header(&Message::new(Kind::Barrier));
    let with = |at: usize, bytes: &[u8]| {
        let mut header = good;
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Message::decode(&header).map(|_| ())
    };
    assert_eq!(with(0, b"GET / HTTP/1.1\r\n"), Err(WireError::Magic));
    assert_eq!(with(88, &[200, 0, 0, 0]), Err(WireError::Version { size: 200 }));
    assert_eq!(with(92, &[1, 0, 16, 0]), Err(WireError::TooLarge { size: 0x10_0001 }));
    assert_eq!(with(92, &[0, 0, 16, 0]), Ok(()));
    assert_eq!(with(96, &[25, 0, 0, 0]), Err(WireError::Kind(25)));
    assert_eq!(with(100, &[7, 0, 0, 0]), Err(WireError::State(7)));
    assert_eq!(with(16, &[b'x'; 64]), Err(WireError::Name));
}

#[test]
fn image_names_need_all_their_parts() {
    let name = ImageName { host: "vm".into(), shell: String::new(), path: "/a.dmtcp".into() };
    assert_eq!(ImageName::of(&name.payload()).unwrap(), name);
    for payload in [&b""[..], b"/a\0", b"/a\0\0vm", b"\0\0vm\0", b"/a\0ksh\0vm\0"] {
        assert!(matches!(ImageName::of(payload), Err(WireError::Payload(_))), "{payload:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in proptest::collection::vec(any::<u8>(), HEADER), valid: bool) {
        let mut header: [u8; HEADER] = bytes.try_into().unwrap();
        if valid {
            let good = Message::new(Kind::Null).encode();
            header[..16].copy_from_slice(&good[..16]);
            header[88..92].copy_from_slice(&good[88..92]);
            header[94..96].copy_from_slice(&[0, 0]);
            let (state, kind) = (header[96] % 26, header[100] % 8);
            header[96..104].copy_from_slice(&[state, 0, 0, 0, kind, 0, 0, 0]);
        }
        if let Ok((message, length)) = Message::decode(&header) {
            prop_assert!(length <= MAX_PAYLOAD && message.name.len() <= 3 * MAX_NAME);
            let _ = message.encode();
        }
    }

    #[test]
    fn any_payload_is_a_name_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ImageName::of(&bytes);
    }
}
