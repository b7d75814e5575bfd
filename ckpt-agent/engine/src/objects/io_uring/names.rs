//! Names of what requests of an io_uring do (include/uapi/linux/io_uring.h), of those that may wait for a descriptor.

use std::collections::BTreeMap;

const NAMES: &[(u8, &str)] = &[
    (1, "READV"),
    (2, "WRITEV"),
    (4, "READ_FIXED"),
    (5, "WRITE_FIXED"),
    (6, "POLL_ADD"),
    (9, "SENDMSG"),
    (10, "RECVMSG"),
    (13, "ACCEPT"),
    (16, "CONNECT"),
    (22, "READ"),
    (23, "WRITE"),
    (26, "SEND"),
    (27, "RECV"),
    (29, "EPOLL_CTL"),
    (30, "SPLICE"),
    (33, "TEE"),
    (46, "URING_CMD"),
    (47, "SEND_ZC"),
    (48, "SENDMSG_ZC"),
    (49, "READ_MULTISHOT"),
    (58, "RECV_ZC"),
    (59, "EPOLL_WAIT"),
    (60, "READV_FIXED"),
    (61, "WRITEV_FIXED"),
    (62, "PIPE"),
];

/// What those requests do of which the kernel tells that they wait for a descriptor, as part of a message.
pub(super) fn waiting(operations: &[u8]) -> String {
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    for operation in operations {
        *counts.entry(*operation).or_default() += 1;
    }
    let listed: Vec<String> = counts
        .into_iter()
        .map(|(operation, count)| {
            let name = NAMES.iter().find(|(number, _)| *number == operation);
            let name = name.map_or_else(|| operation.to_string(), |(_, name)| (*name).to_owned());
            if count == 1 { name } else { format!("{count} {name}") }
        })
        .collect();
    match listed.is_empty() {
        true => String::new(),
        false => format!(", of which these wait for a descriptor: {}", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::waiting;

    #[test]
    fn requests_are_named_and_counted() {
        assert_eq!(waiting(&[]), "");
        let told = ", of which these wait for a descriptor: 2 POLL_ADD, RECV, 200";
        assert_eq!(waiting(&[6, 27, 6, 200]), told);
    }
}
