//! References to chunks in an order, however many there are: what memory does not take waits in a file without a name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::chunk::{ChunkRef, Encoding, PackId};
use super::hash::ChunkHash;

/// Bytes of a reference: its two parts in their order, numbers with the highest byte first, so that bytes compare as
/// references do.
const LENGTH: usize = HASH + PLACE;
const HASH: usize = 32;
/// Pack, offset, stored, length, encoding.
const PLACE: usize = 8 + 8 + 4 + 4 + 1;
/// References held in memory before they are written: 15 MiB.
const IN_MEMORY: usize = 1 << 18;
/// References of one run that are read at a time.
const PER_READ: usize = 1 << 10;
/// The file, for the moment in which it has a name.
const NAME: &str = ".references";

type Record = [u8; LENGTH];

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As they lie in packs.
    Place,
    /// Equal ones side by side.
    Hash,
}

/// Takes references in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    order: Order,
    folder: PathBuf,
    most: usize,
    waiting: Vec<Record>,
    spilled: Option<Spilled>,
}

/// Sorted runs, one after the other.
#[derive(Debug)]
struct Spilled {
    file: File,
    /// Where each ends, in references.
    ends: Vec<u64>,
}

impl Sorter {
    /// One whose file is made in `folder`, when there has to be one.
    pub(super) fn new(folder: &Path, order: Order) -> Self {
        let (waiting, spilled) = (Vec::new(), None);
        Self { order, folder: folder.to_owned(), most: IN_MEMORY, waiting, spilled }
    }

    /// Takes one more.
    pub(super) fn add(&mut self, chunk: &ChunkRef) -> io::Result<()> {
        if self.waiting.len() >= self.most {
            self.spill()?;
        }
        self.waiting.push(record(chunk, self.order));
        Ok(())
    }

    /// All of them, each once.
    pub(super) fn sorted(mut self) -> Sorted {
        self.waiting.sort_unstable();
        self.waiting.dedup();
        Sorted { order: self.order, last: self.waiting, spilled: self.spilled }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.waiting.sort_unstable();
        self.waiting.dedup();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled { file: nameless(&self.folder)?, ends: Vec::new() }),
        };
        let start = spilled.ends.last().copied().unwrap_or(0);
        spilled.file.write_all_at(self.waiting.as_flattened(), start * LENGTH as u64)?;
        spilled.ends.push(start + self.waiting.len() as u64);
        self.waiting.clear();
        Ok(())
    }
}

fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(NAME);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// What a [`Sorter`] has taken.
#[derive(Debug)]
pub(super) struct Sorted {
    order: Order,
    last: Vec<Record>,
    spilled: Option<Spilled>,
}

impl Sorted {
    /// From the first to the last.
    pub(super) fn iter(&self) -> io::Result<Merged<'_>> {
        let mut heads = BinaryHeap::new();
        let mut start = 0;
        for end in self.spilled.iter().flat_map(|spilled| &spilled.ends) {
            let file = self.spilled.as_ref().map(|spilled| &spilled.file);
            let run = Run { file, next: start, end: *end, read: Vec::new(), at: 0, of: &[] };
            add_head(&mut heads, run)?;
            start = *end;
        }
        let run = Run { file: None, next: 0, end: 0, read: Vec::new(), at: 0, of: &self.last };
        add_head(&mut heads, run)?;
        Ok(Merged { order: self.order, heads, last: None })
    }
}

fn add_head<'a>(heads: &mut BinaryHeap<Reverse<Head<'a>>>, mut run: Run<'a>) -> io::Result<()> {
    if let Some(first) = run.next()? {
        heads.push(Reverse(Head { first, run }));
    }
    Ok(())
}

/// A sorted run: what has been read of a file, or what is in memory.
struct Run<'a> {
    file: Option<&'a File>,
    next: u64,
    end: u64,
    read: Vec<Record>,
    at: usize,
    of: &'a [Record],
}

impl Run<'_> {
    fn next(&mut self) -> io::Result<Option<Record>> {
        if let Some((first, rest)) = self.of.split_first() {
            self.of = rest;
            return Ok(Some(*first));
        }
        if self.at == self.read.len() {
            let count = (self.end - self.next).min(PER_READ as u64);
            let Some(file) = self.file.filter(|_| count > 0) else { return Ok(None) };
            self.read.resize(count as usize, [0; LENGTH]);
            file.read_exact_at(self.read.as_flattened_mut(), self.next * LENGTH as u64)?;
            self.next += count;
            self.at = 0;
        }
        self.at += 1;
        Ok(Some(self.read[self.at - 1]))
    }
}

struct Head<'a> {
    first: Record,
    run: Run<'a>,
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.first.cmp(&other.first)
    }
}

/// All references in their order.
pub(super) struct Merged<'a> {
    order: Order,
    heads: BinaryHeap<Reverse<Head<'a>>>,
    last: Option<Record>,
}

impl Iterator for Merged<'_> {
    type Item = io::Result<ChunkRef>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut head = self.heads.peek_mut()?;
            let first = head.0.first;
            match head.0.run.next() {
                Ok(Some(next)) => head.0.first = next,
                Ok(None) => drop(PeekMut::pop(head)),
                Err(error) => return Some(Err(error)),
            }
            if self.last != Some(first) {
                self.last = Some(first);
                return Some(chunk(&first, self.order));
            }
        }
    }
}

fn record(chunk: &ChunkRef, order: Order) -> Record {
    let (hash, place) = match order {
        Order::Hash => (0, HASH),
        Order::Place => (PLACE, 0),
    };
    let encoding = match chunk.encoding {
        Encoding::Plain => 0,
        Encoding::Zstd => 1,
    };
    let mut record = [0; LENGTH];
    record[hash..hash + HASH].copy_from_slice(&chunk.hash.to_bytes());
    let fields: [&[u8]; 5] = [
        &chunk.pack.number().to_be_bytes(),
        &chunk.offset.to_be_bytes(),
        &chunk.stored.to_be_bytes(),
        &chunk.length.to_be_bytes(),
        &[encoding],
    ];
    record[place..place + PLACE].copy_from_slice(&fields.concat());
    record
}

/// Undoes [`record`]; an error where the file has been changed.
fn chunk(record: &Record, order: Order) -> io::Result<ChunkRef> {
    let (hash, place) = match order {
        Order::Hash => record.split_at(HASH),
        Order::Place => {
            let (place, hash) = record.split_at(PLACE);
            (hash, place)
        }
    };
    read_record(hash, place).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn read_record(hash: &[u8], place: &[u8]) -> Option<ChunkRef> {
    let (pack, rest) = place.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (stored, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    Some(ChunkRef {
        hash: ChunkHash::of_bytes(hash.try_into().ok()?),
        pack: PackId::of_number(u64::from_be_bytes(*pack)),
        offset: u64::from_be_bytes(*offset),
        stored: u32::from_be_bytes(*stored),
        length: u32::from_be_bytes(*length),
        encoding: match rest {
            [0] => Encoding::Plain,
            [1] => Encoding::Zstd,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> ChunkRef {
        let of = |seed: u64| u64::from_le_bytes(blake_start(seed));
        ChunkRef {
            hash: ChunkHash::of(&(of(number) % 40).to_le_bytes()),
            pack: PackId::of_number(of(number + 1000) % 3),
            offset: of(number + 2000) % 100_000,
            stored: 5 + u32::from(number % 2 == 0),
            length: 6,
            encoding: if number % 2 == 0 { Encoding::Plain } else { Encoding::Zstd },
        }
    }

    fn blake_start(seed: u64) -> [u8; 8] {
        *blake3::hash(&seed.to_le_bytes()).as_bytes().first_chunk().unwrap()
    }

    #[test]
    fn they_come_back_in_their_order_and_once() {
        let folder = tempfile::tempdir().unwrap();
        for (order, most) in [(Order::Place, 7), (Order::Hash, 7), (Order::Place, 5000)] {
            let mut sorter = Sorter { most, ..Sorter::new(folder.path(), order) };
            let mut all: Vec<ChunkRef> = (0..2500).map(sample).collect();
            for chunk in all.iter().chain(&all[..100]) {
                sorter.add(chunk).unwrap();
            }
            assert_eq!(sorter.spilled.is_some(), most == 7);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            let place = |chunk: &ChunkRef| (chunk.pack, chunk.offset, chunk.stored, chunk.length);
            match order {
                Order::Place => all.sort_by_key(|chunk| (place(chunk), chunk.hash)),
                Order::Hash => all.sort_by_key(|chunk| (chunk.hash, place(chunk))),
            }
            all.dedup();
            let sorted = sorter.sorted();
            for _ in 0..2 {
                let found: Vec<ChunkRef> = sorted.iter().unwrap().map(Result::unwrap).collect();
                assert_eq!(found, all);
            }
        }
    }
}
