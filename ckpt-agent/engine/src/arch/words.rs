//! Structures of the kernel that are made of words: 64 or 32 bits, as the processes of this architecture have them.
//! Images hold 64-bit integers.

/// Bytes of a word.
pub const WORD: usize = size_of::<usize>();

/// The words as they lie in memory. What a word cannot hold was never in one.
pub fn to_words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as usize).to_ne_bytes()).collect()
}

/// The words that lie in memory, as far as there are whole ones.
pub fn from_words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(WORD)
        .map(|chunk| {
            let mut word = [0; WORD];
            word.copy_from_slice(chunk);
            usize::from_ne_bytes(word) as u64
        })
        .collect()
}

/// Bytes of the kernel's struct sigaction: handler, flags, restorer, and 64 bits of mask.
pub const ACTION: usize = 3 * WORD + size_of::<u64>();

/// struct sigaction (include/linux/signal_types.h) of the kernel, as it lies in memory.
pub fn action_to_bytes([handler, flags, restorer, mask]: [u64; 4]) -> Vec<u8> {
    let mut bytes = to_words(&[handler, flags, restorer]);
    bytes.extend(mask.to_ne_bytes());
    bytes
}

/// The same the other way round. `None`: too short.
pub fn action_from_bytes(bytes: &[u8]) -> Option<[u64; 4]> {
    let (words, mask) = bytes.get(..ACTION)?.split_at(3 * WORD);
    match *from_words(words) {
        [handler, flags, restorer] => {
            Some([handler, flags, restorer, u64::from_ne_bytes(mask.try_into().ok()?)])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        assert_eq!(from_words(&to_words(&[1, 2, 0xffff_fff0])), [1, 2, 0xffff_fff0]);
        assert!(from_words(&[1; WORD - 1]).is_empty());
    }

    #[test]
    fn an_action_comes_back() {
        let action = [0x1000, 4, 0x2000, 0xffff_ffff_0000_0001];
        let bytes = action_to_bytes(action);
        assert_eq!(bytes.len(), ACTION);
        assert_eq!(action_from_bytes(&bytes), Some(action));
        assert_eq!(action_from_bytes(&bytes[1..]), None);
    }
}
