//! Compression of one chunk, where it pays.

/// The fastest level of zstd that still halves typical memory.
const LEVEL: i32 = 1;
/// Chunks above this length are probed first.
const PROBE_ABOVE: usize = 32 << 10;
/// The probe: so many pieces of so many bytes, spread evenly over the chunk.
const PROBE_PIECES: usize = 8;
const PROBE_PIECE: usize = 1 << 10;

/// Compresses chunks, one after another, with buffers that it keeps.
pub(super) struct Encoder {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    probe: Vec<u8>,
    frame: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        // Without memory for a compressor everything is stored plain.
        let zstd = zstd::bulk::Compressor::new(LEVEL)
            .map_err(|error| tracing::warn!(%error, "chunks are stored without compression"))
            .ok();
        Self { zstd, probe: Vec::new(), frame: Vec::new() }
    }

    /// The chunk as one zstd frame, or `None` where that would not save a sixteenth of it: less
    /// is not worth the time that a restart spends on unpacking.
    pub(super) fn encode(&mut self, chunk: &[u8]) -> Option<&[u8]> {
        if chunk.len() > PROBE_ABOVE && !self.probe_says_yes(chunk) {
            return None;
        }
        self.compress_below(chunk, worth(chunk.len())).then_some(&self.frame)
    }

    /// Random data would cost more time to compress than to hash and write; a small sample of it
    /// tells. What repeats only over long distances is missed, and stored plain.
    fn probe_says_yes(&mut self, chunk: &[u8]) -> bool {
        let mut probe = std::mem::take(&mut self.probe);
        probe.clear();
        let stride = (chunk.len() - PROBE_PIECE) / (PROBE_PIECES - 1);
        for piece in 0..PROBE_PIECES {
            let start = piece * stride;
            probe.extend_from_slice(&chunk[start..start + PROBE_PIECE]);
        }
        let yes = self.compress_below(&probe, worth(probe.len()));
        self.probe = probe;
        yes
    }

    /// Compresses `bytes` into `self.frame` if they fit into `limit` bytes.
    fn compress_below(&mut self, bytes: &[u8], limit: usize) -> bool {
        let Some(zstd) = self.zstd.as_mut() else { return false };
        self.frame.clear();
        self.frame.reserve(limit);
        // zstd ends with an error as soon as the buffer's capacity does not suffice.
        zstd.compress_to_buffer(bytes, &mut self.frame).is_ok_and(|length| length <= limit)
    }
}

fn worth(length: usize) -> usize {
    length - length.div_ceil(16)
}

/// Undoes [`Encoder::encode`]: fills `chunk` exactly, or says why it can't.
pub(super) struct Decoder(zstd::bulk::Decompressor<'static>);

impl Decoder {
    pub(super) fn new() -> std::io::Result<Self> {
        zstd::bulk::Decompressor::new().map(Self)
    }

    pub(super) fn decode(&mut self, frame: &[u8], chunk: &mut [u8]) -> Result<(), &'static str> {
        let expected = chunk.len();
        match self.0.decompress_to_buffer(frame, chunk) {
            Ok(length) if length == expected => Ok(()),
            Ok(_) => Err("its zstd frame holds too few bytes"),
            Err(_) => Err("its zstd frame is damaged"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn noise_stays_plain_and_text_shrinks() {
        let mut encoder = Encoder::new();
        for length in [1, 100, 4096, PROBE_ABOVE, PROBE_ABOVE + 1, 256 << 10] {
            assert!(encoder.encode(&noise(length)).is_none(), "{length}");
        }
        for length in [100, 4096, PROBE_ABOVE + 1, 256 << 10] {
            let chunk = vec![7; length];
            let frame = encoder.encode(&chunk).unwrap().to_vec();
            assert!(frame.len() < length / 2);
            let mut back = vec![0; length];
            Decoder::new().unwrap().decode(&frame, &mut back).unwrap();
            assert_eq!(back, chunk);
        }
    }

    #[test]
    fn a_small_sample_decides_before_the_whole_is_compressed() {
        let mut encoder = Encoder::new();
        // Repeats only after 64 KiB, which the whole would show, and the probe can't.
        let chunk = noise(64 << 10).repeat(4);
        assert!(encoder.encode(&chunk).is_none());
        // Half noise, half zeros.
        let mut chunk = noise(128 << 10);
        chunk.resize(256 << 10, 0);
        assert!(encoder.encode(&chunk).is_some());
    }

    #[test]
    fn a_frame_never_grows_beyond_the_expected_length() {
        let bomb = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        let mut chunk = vec![1; 4096];
        let mut decoder = Decoder::new().unwrap();
        assert!(decoder.decode(&bomb, &mut chunk).is_err());
        assert!(decoder.decode(&bomb[..bomb.len() - 1], &mut vec![0; 1 << 20]).is_err());
        assert!(decoder.decode(&bomb, &mut vec![0; (1 << 20) + 1]).is_err());
    }
}
