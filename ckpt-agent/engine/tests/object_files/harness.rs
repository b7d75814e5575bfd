//! A dump and a restore within one process, the image in memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ckpt_engine::graph::{Blob, BlobId, CarriedInode, Clocks, FileId, Graph, OpenFile};
use ckpt_engine::objects::{
    BlobData, BlobSource, Console, DumpContext, Extent, Object, Probe, RestoreContext,
};
use ckpt_engine::sys::kcmp;
use ckpt_engine::{EngineError, Result, inodes, locks};

/// A restore uses descriptor numbers that other threads might open: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_memory(extent: &Extent) -> Vec<u8> {
    extent.bytes.clone().into_memory().unwrap()
}

#[derive(Debug, Default)]
struct Memory(Vec<BlobData>);

impl BlobSource for Memory {
    fn read(&self, _graph: &Graph, id: BlobId) -> Result<Vec<u8>> {
        let blob = &self.0[id.0 as usize];
        let mut bytes = vec![0; blob.length as usize];
        for extent in &blob.extents {
            let at = extent.offset as usize;
            bytes[at..at + extent.bytes.len()].copy_from_slice(&in_memory(extent));
        }
        Ok(bytes)
    }

    fn copy_to(&self, _graph: &Graph, id: BlobId, to: BorrowedFd<'_>) -> Result<()> {
        let failed = |error| EngineError::system("write to", "a test file", error);
        let blob = &self.0[id.0 as usize];
        let file = std::fs::File::from(to.try_clone_to_owned().map_err(failed)?);
        file.set_len(blob.length).map_err(failed)?;
        for extent in &blob.extents {
            file.write_all_at(&in_memory(extent), extent.offset).map_err(failed)?;
        }
        Ok(())
    }

    fn for_each_span(
        &self,
        _graph: &Graph,
        id: BlobId,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.0[id.0 as usize]
            .extents
            .iter()
            .try_for_each(|extent| each(extent.offset, &in_memory(extent)))
    }
}

/// What a dump made.
#[derive(Debug)]
pub struct Image {
    pub files: Vec<OpenFile>,
    pub inodes: Vec<CarriedInode>,
    pub warnings: Vec<String>,
    /// The description of each descriptor given, in order.
    pub ids: Vec<FileId>,
    pub blobs: Vec<BlobData>,
}

/// What a restore made.
#[derive(Debug)]
pub struct Restored {
    /// One descriptor for each given to the dump, in order.
    pub fds: Vec<OwnedFd>,
    pub console: Console,
    pub warnings: Vec<String>,
}

pub fn dump(fds: &[&dyn AsFd]) -> Result<Image> {
    dump_with(fds, |_| {})
}

pub fn dump_with(fds: &[&dyn AsFd], set_up: impl FnOnce(&mut DumpContext)) -> Result<Image> {
    let me = std::process::id() as i32;
    let mut context = DumpContext::default();
    set_up(&mut context);
    let (mut files, mut probes, mut ids) = (Vec::new(), Vec::<Probe>::new(), Vec::new());
    for fd in fds {
        let fd = fd.as_fd().as_raw_fd();
        let known = probes
            .iter()
            .position(|probe| kcmp::same_file((me, probe.fd), (me, fd)).expect("kcmp"));
        let id = FileId(known.unwrap_or(probes.len()) as u32);
        context.descriptors.insert((me, fd), id);
        ids.push(id);
        if known.is_none() {
            let probe = Probe::of(me, 42, "test", fd)?;
            let object = Object::dump(&probe, &mut context).map_err(|e| e.at(42, "test", fd))?;
            let locks = locks::read(&probe.info)?;
            files.push(OpenFile {
                flags: probe.flags,
                owner: None,
                locks,
                object,
                inside: None,
                network: None,
            });
            probes.push(probe);
        }
    }
    Object::finish_all(&mut files, &probes, &mut context)?;
    // Through the format on disk, so that what it loses is seen.
    let text = serde_json::to_string(&files).expect("written");
    let files = serde_json::from_str(&text).expect("read");
    let DumpContext { inodes, warnings, blobs, .. } = context;
    let text = serde_json::to_string(&inodes).expect("written");
    let inodes = serde_json::from_str(&text).expect("read");
    Ok(Image { files, inodes, warnings, ids, blobs })
}

impl Image {
    pub fn restore(self) -> Result<Restored> {
        self.restore_with(false)
    }

    pub fn restore_with(self, force: bool) -> Result<Restored> {
        let blobs =
            self.blobs.iter().map(|blob| Blob { length: blob.length, spans: Vec::new() }).collect();
        let graph = Graph {
            version: 1,
            architecture: "x86_64".into(),
            page_size: 4096,
            clocks: Clocks { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 },
            vdso: String::new(),
            vdso_image: None,
            layout: Vec::new(),
            offers: Vec::new(),
            root: 42,
            init: 0,
            processes: Vec::new(),
            files: self.files,
            inodes: self.inodes,
            folders: Vec::new(),
            kept: Default::default(),
            ipc: ckpt_engine::graph::IpcObjects::default(),
            namespaces: Vec::new(),
            sharing: Vec::new(),
            relays: Vec::new(),
            remote_shells: Vec::new(),
            blobs,
        };
        let blobs = Memory(self.blobs);
        let mut context = RestoreContext::new(&graph, &blobs, force, 300);
        inodes::restore_all(&mut context)?;
        Object::restore_all(&graph.files, &mut context)?;
        for (index, file) in graph.files.iter().enumerate() {
            for lock in &file.locks {
                let fd = context.parked(FileId(index as u32))?;
                locks::restore_of_description(fd, lock)?;
            }
        }
        inodes::seal_all(&mut context)?;
        let fds = self
            .ids
            .iter()
            .map(|id| Ok(context.parked(*id)?.try_clone_to_owned().expect("copied")))
            .collect::<Result<_>>()?;
        let warnings = std::mem::take(&mut context.warnings);
        Ok(Restored { fds, console: std::mem::take(&mut context.console), warnings })
    }
}

pub fn flags_of(fd: impl AsFd) -> i32 {
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL).expect("flags");
    // pipe2(2) and open(2) differ in it, and nothing depends on it.
    flags & !0o100_000
}

pub fn same(left: impl AsFd, right: impl AsFd) -> bool {
    let me = std::process::id() as i32;
    let (left, right) = (left.as_fd().as_raw_fd(), right.as_fd().as_raw_fd());
    kcmp::same_file((me, left), (me, right)).expect("kcmp")
}

/// Opens the inode of a descriptor once more.
pub fn again(fd: impl AsFd, options: &std::fs::OpenOptions) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    options.open(path).expect("opened again").into()
}
