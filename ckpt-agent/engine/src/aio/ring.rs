//! The ring of a context (fs/aio.c, struct aio_ring): a header and events, in whole pages.

/// Bytes of the header.
pub const HEADER: usize = 32;
/// Bytes of struct io_event.
pub const EVENT: usize = 32;
/// Where the program's place is in the header.
pub const HEAD_AT: u64 = 8;
/// Places of the largest ring that is kept. To tell what is in flight all places have to be taken: some 10 ms of this one.
pub const MOST_PLACES: u32 = 32 * 1024;

/// AIO_RING_MAGIC
const MAGIC: u32 = 0xa10a_10a1;
/// AIO_RING_COMPAT_FEATURES and AIO_RING_INCOMPAT_FEATURES
const FEATURES: [u32; 2] = [1, 0];

/// How far the kernel and the program are in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Places for events.
    pub places: u32,
    /// The program's place.
    pub head: u32,
    /// The kernel's.
    pub tail: u32,
}

impl Head {
    /// Reads a header. `None`: not one of a ring of this length.
    pub fn parse(bytes: &[u8; HEADER], length: u64) -> Option<Self> {
        let mut words = [0_u32; HEADER / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().ok()?);
        }
        let [_, places, head, tail, magic, compatible, incompatible, header] = words;
        let is_one = magic == MAGIC
            && [compatible, incompatible] == FEATURES
            && header as usize == HEADER
            && places_of(length) == Some(places)
            && head < places
            && tail < places;
        is_one.then_some(Self { places, head, tail })
    }

    /// Events that the program has not taken.
    pub fn unread(self) -> u32 {
        distance(self.head, self.tail, self.places)
    }
}

/// From one place to another, forward.
pub fn distance(from: u32, to: u32, places: u32) -> u32 {
    if to >= from { to - from } else { to + (places - from) }
}

/// Places of a ring of this length. `None`: there is none such.
pub fn places_of(length: u64) -> Option<u32> {
    let events = length.checked_sub(HEADER as u64)? / EVENT as u64;
    u32::try_from(events).ok().filter(|places| *places > 1)
}

/// The smallest number of requests for which io_setup(2) makes a ring of so many places. `None`: a machine of so many
/// processors has no such ring (ioctx_alloc() and aio_setup_ring()).
pub fn requests_for(places: u32, processors: u32, page: u64) -> Option<u32> {
    let in_page = u32::try_from(page / EVENT as u64).ok()?;
    let fewest = places.saturating_sub(in_page).saturating_sub(2) / 2 + 1;
    [1, fewest].into_iter().find(|requests| made_for(*requests, processors, page) == Some(places))
}

/// Places of the ring that io_setup(2) makes for so many requests.
fn made_for(requests: u32, processors: u32, page: u64) -> Option<u32> {
    let wanted = u64::from(requests).max(4 * u64::from(processors)) * 2 + 2;
    let bytes = HEADER as u64 + wanted * EVENT as u64;
    places_of(bytes.checked_next_multiple_of(page)?)
}

/// Places that can't be handed out: processors take as many at once as this leaves over (`req_batch`).
pub fn left_over(places: u32, processors: u32) -> u32 {
    let usable = places.saturating_sub(1);
    usable % (usable / processors.saturating_mul(4).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::eventfd::EventFd;

    use super::super::super::sys::page::page_size;
    use super::super::super::sys::{processors, schedule};
    use super::*;

    const PAGE: u64 = 4096;

    fn header(words: [u32; 8]) -> [u8; HEADER] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.try_into().unwrap()
    }

    #[test]
    fn a_header_is_read() {
        let words = [7, 127, 120, 5, MAGIC, 1, 0, 32];
        let found = Head::parse(&header(words), PAGE).unwrap();
        assert_eq!(found, Head { places: 127, head: 120, tail: 5 });
        assert_eq!(found.unread(), 12);
        for (at, value) in [(1, 126), (2, 127), (3, 200), (4, 0), (5, 2), (6, 1), (7, 64)] {
            let mut other = words;
            other[at] = value;
            assert_eq!(Head::parse(&header(other), PAGE), None, "{at}");
        }
        assert_eq!(Head::parse(&header(words), 2 * PAGE), None);
    }

    /// As seen on Linux 6.18 with two processors.
    #[test]
    fn rings_have_the_kernels_length() {
        for (requests, places) in [(1, 127), (32, 127), (128, 383), (1024, 2175), (16000, 32127)] {
            assert_eq!(made_for(requests, 2, PAGE), Some(places), "{requests}");
            let again = requests_for(places, 2, PAGE).unwrap();
            assert!(again <= requests, "{again}");
            assert_eq!(made_for(again, 2, PAGE), Some(places));
        }
        assert_eq!(left_over(127, 2), 6);
        assert_eq!(left_over(383, 2), 6);
        assert_eq!(left_over(2, 64), 0);
    }

    /// What is in flight is told by how many places this kernel hands out of those that are free.
    #[test]
    fn all_places_but_those_left_over_are_handed_out() {
        let processors = processors::possible().unwrap();
        for requests in [1, 100, 777] {
            let Some(handed_out) = schedule::on_cpu(0, || hold_all(requests)).flatten() else {
                continue;
            };
            let places = made_for(requests, processors, page_size()).unwrap();
            assert_eq!(handed_out, places - 1 - left_over(places, processors), "{requests}");
        }
    }

    /// How many requests wait at once in a new context. `None`: here is none.
    fn hold_all(requests: u32) -> Option<u32> {
        let mut context = 0_usize;
        let event = EventFd::new().unwrap();
        let mut request = super::super::worker::poll_for(event.as_raw_fd() as u32);
        let one = [request.as_mut_ptr()];
        // SAFETY: the kernel writes the context's number, which outlives the call.
        if unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut context) } != 0 {
            return None;
        }
        let mut count = 0;
        // SAFETY: the request, which nothing else knows, and the list outlive the call.
        while unsafe { libc::syscall(libc::SYS_io_submit, context, 1, one.as_ptr()) } == 1 {
            count += 1;
        }
        // SAFETY: nobody else knows the context; what waits in it is cancelled.
        unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        (count > 0).then_some(count)
    }

    #[test]
    fn every_ring_can_be_made_again_where_it_was_made() {
        for processors in [1, 2, 3, 8, 64, 512] {
            for requests in (1..3000).chain([16_383, 65_536]) {
                let places = made_for(requests, processors, PAGE).unwrap();
                let again = requests_for(places, processors, PAGE).unwrap();
                assert_eq!(made_for(again, processors, PAGE), Some(places), "{requests}");
            }
        }
    }

    #[test]
    fn a_machine_of_many_processors_has_no_small_ring() {
        let small = made_for(8, 2, PAGE).unwrap();
        assert_eq!(requests_for(small, 64, PAGE), None);
        assert_eq!(requests_for(small, 15, PAGE), Some(1));
    }
}
